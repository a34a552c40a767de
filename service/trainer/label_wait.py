"""When samples have waited for their label for too long, by the clock.

The engine counts samples; it has no clock. What is noted here is how far the stream had come
when, so that after the wait a place in the stream follows before which every wait is over. The
trainer writes that into the stream as an entry, so that reading the stream again gives the same
model.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MARKS: Final = 64
"""Places remembered per wait: a sample waits at most a 64th longer than it should."""


class LabelWait:
    """Remembers how far the stream had come.

    A trainer that starts anew begins to count anew.

    Arguments:
        seconds: That a sample may wait.

    Example:
        >>> wait = LabelWait(10.0)
        >>> wait.note(100.0, samples=5)
        >>> wait.over(109.0), wait.over(110.0)
        (None, 5)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._marks: deque[tuple[float, int]] = deque()
        self._over: int | None = None

    def note(self, now: float, samples: int) -> None:
        """So many samples of the stream have come by now."""
        if self._marks:
            time, before = self._marks[-1]
            if samples == before or now - time < self._seconds / MARKS:
                return
        elif samples == self._over:
            return
        self._marks.append((now, samples))

    def over(self, now: float) -> int | None:
        """Samples of the stream whose wait is over; None while there are none."""
        while self._marks and now - self._marks[0][0] >= self._seconds:
            self._over = self._marks.popleft()[1]
        return self._over
