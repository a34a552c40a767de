"""Checkpoints in an object store or in Redis.

They are put if absent, under epochs, and a pointer to them is set under the fence.
"""
