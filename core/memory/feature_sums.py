"""Sums over samples of every feature by itself: of values, and of powers of their distances.

Each of them would be a pass over all samples in double precision, with room for as many numbers.
Here a loop makes together what is wanted together, four samples at a time, so that sums are
fetched and put back less often.

On a device whole tensors are added up in the same order, one sample after the other, so that the
same stream gives the same numbers where the device rounds alike.

Throughout: N samples, D features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array, columnwise

COLUMNS = 64
"""Features whose sums are made at a time, so that these stay next to the processor."""


def totals(x: Tensor) -> Tensor:
    """Sum of samples, with shape (D,), float64.

    Arguments:
        x: With shape (N, D), floating point.

    Example:
        >>> totals(torch.tensor([[1.0], [-3.0]])).tolist()
        [-2.0]
    """
    if not _is_plain(x):
        return _in_order(x[None])[0]
    sums = np.zeros(x.shape[1])
    _add(x.contiguous().numpy(), sums)
    return torch.from_numpy(sums)


def distances(x: Tensor, origin: Tensor) -> Tensor:
    """Sums of x - origin, and of its square, with shape (2, D), float64.

    Arguments:
        x: Samples, with shape (N, D), floating point.
        origin: With shape (D,), float64, on the same device.

    Example:
        >>> distances(torch.tensor([[1.0], [-3.0]]), torch.zeros(1).double()).tolist()
        [[-2.0], [10.0]]
    """
    if not _is_plain(x):
        away = x - origin
        return _in_order(torch.stack([away, away.square()]))
    sums = np.zeros((2, x.shape[1]))
    _add_distances(x.contiguous().numpy(), origin.numpy(), sums)
    return torch.from_numpy(sums)


def deviations(x: Tensor, origin: Tensor) -> Tensor:
    """Sums of |x - origin|, of its square and of its fourth power, with shape (3, D), float64.

    Arguments:
        x: Samples, with shape (N, D), floating point.
        origin: With shape (D,), float64, on the same device.

    Example:
        >>> deviations(torch.tensor([[1.0], [-3.0]]), torch.zeros(1).double()).tolist()
        [[4.0], [10.0], [82.0]]
    """
    if not _is_plain(x):
        away = (x - origin).abs_()
        squares = away.square()
        return _in_order(torch.stack([away, squares, squares.square()]))
    sums = np.zeros((3, x.shape[1]))
    _add_deviations(x.contiguous().numpy(), origin.numpy(), sums)
    return torch.from_numpy(sums)


def _is_plain(x: Tensor) -> bool:
    return x.is_cpu and x.dtype == torch.float32


def _in_order(values: Tensor) -> Tensor:
    """Sums over samples of values with shape (P, N, D), with shape (P, D), as the loops add."""
    p, n, d = values.shape
    if not n:
        return values.new_zeros(p, d, dtype=torch.float64)
    return values.cumsum(1, dtype=torch.float64)[:, -1]


@columnwise
def _add(x: Array, sums: Array) -> None:
    """Add samples, with shape (N, D), float32, to a sum, with shape (D,)."""
    n, d = x.shape
    fours = n - n % 4
    for begin in range(0, d, COLUMNS):
        end = min(begin + COLUMNS, d)
        for row in range(0, fours, 4):
            for column in range(begin, end):
                total = sums[column]
                for one in range(4):
                    total += np.float64(x[row + one, column])
                sums[column] = total
        for row in range(fours, n):
            for column in range(begin, end):
                sums[column] += np.float64(x[row, column])


@columnwise
def _add_distances(x: Array, origin: Array, sums: Array) -> None:
    """Add what samples, with shape (N, D), float32, have to sums, with shape (2, D)."""
    n, d = x.shape
    fours = n - n % 4
    for begin in range(0, d, COLUMNS):
        end = min(begin + COLUMNS, d)
        for row in range(0, fours, 4):
            for column in range(begin, end):
                first, second, at = sums[0, column], sums[1, column], origin[column]
                for one in range(4):
                    away = np.float64(x[row + one, column]) - at
                    first += away
                    second += away * away
                sums[0, column], sums[1, column] = first, second
        for row in range(fours, n):
            for column in range(begin, end):
                away = np.float64(x[row, column]) - origin[column]
                sums[0, column] += away
                sums[1, column] += away * away


@columnwise
def _add_deviations(x: Array, origin: Array, sums: Array) -> None:
    """The same of deviations, for sums with shape (3, D)."""
    n, d = x.shape
    fours = n - n % 4
    for begin in range(0, d, COLUMNS):
        end = min(begin + COLUMNS, d)
        for row in range(0, fours, 4):
            for column in range(begin, end):
                first, second, fourth = sums[0, column], sums[1, column], sums[2, column]
                at = origin[column]
                for one in range(4):
                    away = abs(np.float64(x[row + one, column]) - at)
                    square = away * away
                    first += away
                    second += square
                    fourth += square * square
                sums[0, column], sums[1, column], sums[2, column] = first, second, fourth
        for row in range(fours, n):
            for column in range(begin, end):
                away = abs(np.float64(x[row, column]) - origin[column])
                square = away * away
                sums[0, column] += away
                sums[1, column] += square
                sums[2, column] += square * square
