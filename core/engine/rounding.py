"""What float32 loses of a batch of float64: columns that lie far from zero for what varies in them.

`clients.rounding` has the same rule for what clients send; `core.memory.coarse_features` the one
for what has been learned.
"""

from __future__ import annotations

import warnings
from typing import Final

import torch
from torch import Tensor

from core.batch import Batch
from core.memory.coarse_features import FEWEST_STEPS, WHOLE, spacing_at
from core.precision import PrecisionLost

WIDE: Final = (torch.float64, torch.int64, torch.int32, torch.uint32)
"""Types of which float32 does not hold every number."""

FEWEST_ROWS: Final = 10
"""Samples that tell how wide a column is."""

MOST_ROWS: Final = 1000
"""Samples, spread evenly, that are looked at; and the first samples of a stream that are."""

WIDTH: Final = 2.56
"""Of the middle eight tenths of a normal column, in deviations."""


def is_wide(batch: Batch) -> bool:
    """Whether a batch is a table of a type that float32 cannot hold."""
    return batch.features.dtype in WIDE and batch.features.ndim == 2 and not batch.images


def rounded_columns(x: Tensor) -> list[int]:
    """Columns that float32 is too coarse for, and that it does not hold as they are.

    Arguments:
        x: Samples, with shape (N, D).

    Example:
        >>> rounded_columns(torch.tensor([[0.5, 1.8e9 + i] for i in range(50)]).double())
        []
        >>> rows = [[0.5 * i, 1.8e9 + i] for i in range(50)]
        >>> rounded_columns(torch.tensor(rows, dtype=torch.float64))
        [1]
    """
    if len(x) < FEWEST_ROWS:
        return []
    x = x[:: -(-len(x) // MOST_ROWS)].double()
    n = len(x)
    ordered = x.sort(0).values
    centre, width = ordered[n // 2], ordered[n - 1 - n // 10] - ordered[n // 10]
    width = torch.where(width > 0, width, ordered[-1] - ordered[0])  # strays must not widen it
    coarse = FEWEST_STEPS * WIDTH * spacing_at(centre) > width
    coarse = torch.where(width > 0, coarse, centre.abs() > WHOLE)
    changed = (x.float().double() != x).any(0)
    columns: list[int] = (coarse & changed).nonzero()[:, 0].tolist()
    return columns


def warn_of(columns: list[int], *, stacklevel: int) -> None:
    """Warn of columns that lose what varies in them.

    Arguments:
        columns: Their places, at least one.
        stacklevel: As `warnings.warn` takes it, of who calls this.
    """
    warnings.warn(PrecisionLost.of([*map(str, columns)]), stacklevel=stacklevel + 1)
