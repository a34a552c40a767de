"""How often in a row a trainer has begun without getting any further than the one before.

A trainer that dies reads some entries again, so that learning these is no progress. Its number of
starts says that it keeps dying, however slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from service.broker.feed import Feed

MANY: Final = 3
"""Starts in a row that are no accident."""


@dataclass(frozen=True)
class _Note:
    """As kept in Redis.

    Arguments:
        starts: In a row, without progress.
        furthest: Entries that the trainers before had applied.
    """

    starts: int = 0
    furthest: int = 0


class Starts:
    """Counts the starts of one model's trainers.

    Arguments:
        feed: By which to remember.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._note = _Note()

    @property
    def count(self) -> int:
        """Starts in a row, this one included; 0 once it got further."""
        return self._note.starts

    def begin(self) -> None:
        """One more."""
        keys = self._feed.keys
        before = _read(self._feed.get(keys.starts))
        status = _read(self._feed.get(keys.status))
        furthest = max(int(before.get("furthest", 0)), int(status.get("entries_applied", 0)))
        self._keep(_Note(int(before.get("starts", 0)) + 1, furthest))

    def applied(self, entries: int) -> None:
        """So many entries are applied now."""
        if self._note.starts and entries > self._note.furthest:
            self.clear()

    def clear(self) -> None:
        """It got further, or there is nothing to get further with."""
        if self._note.starts:
            self._keep(_Note())

    def _keep(self, note: _Note) -> None:
        self._note = note
        self._feed.set(self._feed.keys.starts, orjson.dumps(vars(note)))


def _read(text: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = {} if text is None else orjson.loads(text)
    return document
