"""Checkpoints in a folder, in an object store or in Redis.

In a folder they are files, which one trainer has to itself. As objects, which several trainers may
reach, they are put if absent, under epochs, and a pointer to them is set under the fence.
"""
