"""Checkpoints in an object store: put-if-absent under epochs, a pointer set under the fence."""
