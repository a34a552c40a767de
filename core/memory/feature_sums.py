"""Sums over samples, of every feature by itself: of values, and of powers of centred values.

Made by operations on tensors, each sum takes a copy of all samples in double precision. A loop
makes the sums that are wanted together in one pass. It takes four samples at a time, so that sums
are fetched and put back less often.

On a device operations on tensors add in the order of the loop, one sample after the other. So the
same stream gives the same numbers there, where the device rounds alike.

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


def centred_sums(x: Tensor, origin: Tensor) -> Tensor:
    """Sums of x - origin, and of its square, with shape (2, D), float64.

    Arguments:
        x: Samples, with shape (N, D), floating point.
        origin: With shape (D,), float64, on the same device.

    Example:
        >>> centred_sums(torch.tensor([[1.0], [-3.0]]), torch.zeros(1).double()).tolist()
        [[-2.0], [10.0]]
    """
    if not _is_plain(x):
        away = x - origin
        return _in_order(torch.stack([away, away.square()]))
    sums = np.zeros((2, x.shape[1]))
    _add_centred(x.contiguous().numpy(), origin.numpy(), sums)
    return torch.from_numpy(sums)


def absolute_sums(x: Tensor, origin: Tensor) -> Tensor:
    """Sums of |x - origin|, of its square and of its fourth power, with shape (3, D), float64.

    Arguments:
        x: Samples, with shape (N, D), floating point.
        origin: With shape (D,), float64, on the same device.

    Example:
        >>> absolute_sums(torch.tensor([[1.0], [-3.0]]), torch.zeros(1).double()).tolist()
        [[4.0], [10.0], [82.0]]
    """
    if not _is_plain(x):
        away = (x - origin).abs_()
        squares = away.square()
        return _in_order(torch.stack([away, squares, squares.square()]))
    sums = np.zeros((3, x.shape[1]))
    _add_absolute(x.contiguous().numpy(), origin.numpy(), sums)
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
    """Add to a sum, with shape (D,), samples with shape (N, D), float32."""
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
def _add_centred(x: Array, origin: Array, sums: Array) -> None:
    """Add to sums, with shape (2, D), those of samples, with shape (N, D), float32."""
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
def _add_absolute(x: Array, origin: Array, sums: Array) -> None:
    """Add to sums, with shape (3, D), those of absolute values of samples, likewise."""
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
