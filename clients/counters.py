"""Columns of numbers that never fall: counters, such as hours of operation.

Whatever is learned of such a column holds for none of the samples that come, and each depends on
the ones before it. So does a clock; `clients.data.formats.times` knows one sooner, by its size.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RISES: Final = 20
"""Steps upwards of a counter. Of numbers in any order so many hardly ever come without one
downwards: of the orders of 20 numbers it is one in 10^18. A limit that was set anew a few times is
no counter."""


class Counters:
    """What columns of numbers say about whether they count, as they come.

    Example:
        >>> counters = Counters()
        >>> counters.add(np.array([[row // 2, row % 2] for row in range(60)]))
        >>> counting([counters], fewest=50)
        (0,)
        >>> counters.add(np.array([[0, 1]]))
        >>> counting([counters], fewest=50)
        ()
    """

    def __init__(self) -> None:
        self.n = np.zeros(0, dtype=np.int64)  # numbers so far, with shape (D,)
        self.rises = np.zeros(0, dtype=np.int64)  # steps upwards of these
        self.fell = np.zeros(0, dtype=bool)  # whether there was one downwards; they count no more
        self._highest = np.zeros(0)

    def add(self, values: NDArray[Any]) -> None:
        """Look at more of them, in order.

        Arguments:
            values: With shape (N, D), each time the same D; NaN where one is missing.
        """
        d = values.shape[1]
        if not len(self.fell):
            self.n, self.rises = np.zeros((2, d), dtype=np.int64)
            self.fell, self._highest = np.zeros(d, dtype=bool), np.full(d, -np.inf)
        [left] = np.nonzero(~self.fell)
        if not len(values) or not len(left):
            return
        numbers = np.concatenate([self._highest[None, left], values[:, left]])  # (1 + N, left)
        highest = np.fmax.accumulate(numbers, axis=0)
        before, after, numbers = highest[:-1], highest[1:], numbers[1:]
        # First of all, so that another thread takes none for a counter that has fallen just now.
        self.fell[left] = (numbers < before).any(axis=0)
        self.n[left] += (~np.isnan(numbers)).sum(axis=0)
        # The first number of all is no step.
        self.rises[left] += ((after > before) & (before > -np.inf)).sum(axis=0)
        self._highest[left] = highest[-1]


def counting(parts: Collection[Counters], fewest: int) -> tuple[int, ...]:
    """Columns that count in every part of a table, as far as is known.

    Arguments:
        parts: What is known of each, of the same columns.
        fewest: Numbers of a column, in all parts together, that tell it.
    """
    parts = [part for part in parts if len(part.fell)]
    if not parts:
        return ()
    n, rises = sum(part.n for part in parts), sum(part.rises for part in parts)
    fell = np.any([part.fell for part in parts], axis=0)
    [found] = np.nonzero((n >= fewest) & (rises >= RISES) & ~fell)
    return tuple(found.tolist())
