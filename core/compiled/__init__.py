"""Loops over samples, compiled by numba."""
