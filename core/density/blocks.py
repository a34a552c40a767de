"""How work is cut into pieces: samples into blocks, and a mixture into components.

A CPU is quick to begin and slow to compute, so it goes through components one by one wherever that
spares it work: only samples that a component answers for, only components that are likely. A
device is slow to begin and quick to compute, so it does all of them at once, needless ones too.
"""

from __future__ import annotations

from torch import Tensor

ROWS = 512
"""Rows of a block on a CPU: the factors of all components take K * L numbers a row. What is said of
a block does not depend on the rows that follow, to the bit, so that whoever takes samples in blocks
from the first one on can use what others were told."""

DEVICE_ROWS = 4096
"""The same on a device."""

ALL_AT_ONCE = False
"""Whether a CPU works as a device does. Tests compare the two by it."""


def one_by_one(x: Tensor) -> bool:
    """Whether components are gone through one by one for samples that lie where x does."""
    return x.is_cpu and not ALL_AT_ONCE


def rows_of(x: Tensor) -> int:
    """Rows of a block for samples that lie where x does."""
    return ROWS if x.is_cpu else DEVICE_ROWS
