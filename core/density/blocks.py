"""The number of samples that are scored at a time."""

ROWS = 512
"""Rows: the factors of all components take K * L numbers a row. What is said of a block does not
depend on the rows that follow, to the bit, so that whoever takes samples in blocks from the first
one on can use what others were told."""
