"""Columns of times that are written as numbers: seconds since 1970, and parts of them.

Such a column only rises, so that no sample would be like one before: whatever is learned of it
holds for none of those that come, and samples depend on the ones before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FIRST_S: Final = 946_684_800.0  # 2000-01-01
_END_S: Final = 4_102_444_800.0  # 2100-01-01
_PER_SECOND: Final = (1.0, 1e3, 1e6, 1e9)

_LEAST: Final = 20
"""Numbers; fewer may rise by chance."""

_RISES: Final = 2
"""Steps upwards. What never changes, or changed once, such as a limit, is no time."""


@dataclass
class Times:
    """What a column's numbers say about whether they are times, as they come.

    Example:
        >>> times = Times()
        >>> times.add(1.7e9 + np.arange(30))
        >>> times.found
        True
        >>> times.add(np.array([1.7e9]))
        >>> times.found
        False
    """

    _n: int = 0
    _rises: int = 0
    _falls: bool = False
    _first: float = np.nan
    _last: float = np.nan

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Look at more of them, in order.

        Arguments:
            numbers: With shape (N,); NaN where one is missing.
        """
        known = numbers[~np.isnan(numbers)]
        if self._falls or not len(known):
            return
        if not self._n:
            self._first = self._last = float(known[0])
        steps = np.diff(known, prepend=self._last)
        self._falls = not bool((steps >= 0).all())
        self._rises += int((steps > 0).sum())
        self._n += len(known)
        self._last = float(known[-1])

    @property
    def found(self) -> bool:
        """Whether they never fall, and lie in the years 2000 to 2100: as seconds, or in parts."""
        if self._falls or self._n < _LEAST or self._rises < _RISES:
            return False
        return any(
            _FIRST_S * unit <= self._first and self._last < _END_S * unit for unit in _PER_SECOND
        )
