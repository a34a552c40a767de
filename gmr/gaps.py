"""Places in a stream some of whose values are missing, and are not learned."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

MOST: Final = 10_000
"""Gaps that are known one by one."""


class Gaps:
    """Where values are missing between those that are learned.

    A boundary begins in the newest stretch of a stream. So of more than `MOST` gaps the oldest
    are forgotten: what begins before all that are known is placed by the number of those.

    Example:
        >>> gaps = Gaps()
        >>> for missing in (False, True, True, False, True, False):
        ...     gaps.observe(missing)
        >>> [gaps.place(learned) for learned in range(3)]
        [0, 3, 5]
    """

    def __init__(self) -> None:
        self._learned = 0
        self._forgotten = 0
        self._after: list[int] = []
        """Values learned before each gap, ascending."""
        self._missing: list[int] = []
        """Values missing up to the end of each gap."""

    def observe(self, missing: bool) -> None:
        """Take the next value of the stream."""
        if not missing:
            self._learned += 1
        elif self._after and self._after[-1] == self._learned:
            self._missing[-1] += 1
        else:
            self._missing.append(1 + (self._missing[-1] if self._missing else self._forgotten))
            self._after.append(self._learned)
            if len(self._after) > 2 * MOST:
                self._forgotten = self._missing[MOST - 1]
                del self._after[:MOST], self._missing[:MOST]

    def place(self, learned: int) -> int:
        """The place in the stream, from 0, of a value before which so many were learned."""
        known = bisect_right(self._after, learned)
        return learned + (self._missing[known - 1] if known else self._forgotten)
