"""Learners that climb a gradient, as in the paper, and replay samples."""
