"""The pace of a stream: when it is silent, as it goes.

What looks like a change is set aside until more samples tell what it is. In a stream of one sample
a minute these take minutes to come; a second without any says nothing there.
"""

from __future__ import annotations

from typing import Final

from service.broker.entries import came_at_ms

GAPS: Final = 3.0
"""Usual gaps between two entries without any entry that are silence."""

KEPT: Final = 0.8
"""Part of the longest gap so far that is usual after one more: what was long ago fades."""


class Arrivals:
    """The gaps between entries, by the times at which Redis took them.

    Arguments:
        last_entry_id: Of the last entry before, if any.

    Example:
        >>> arrivals = Arrivals()
        >>> for minute in range(1, 5):
        ...     arrivals.note(f"{60_000 * minute}-0")
        >>> arrivals.silence_s
        180.0
    """

    def __init__(self, last_entry_id: str = "0-0") -> None:
        self._last_ms = came_at_ms(last_entry_id)
        self._gap_ms = 0.0

    def note(self, entry_id: str) -> None:
        """One more entry, in the order of the stream."""
        now = came_at_ms(entry_id)
        if self._last_ms:
            self._gap_ms = max(now - self._last_ms, KEPT * self._gap_ms)
        self._last_ms = now

    @property
    def silence_s(self) -> float:
        """Seconds without an entry that are silence; 0 where nothing is known."""
        return GAPS * self._gap_ms / 1000
