"""Which entries of the log the model has come from: what a rollback leaves out is dropped.

A rollback goes back to a kept version, and every entry after that version, up to the rollback
itself, is no part of the model any more. A later rollback may go forward again, to a version
of the dropped branch: so what is dropped belongs to a checkpoint, and comes back with it.

Rules of this module:

1. A branch is made of ids of entries alone: the log and the checkpoints decide it, no clock.
2. What is dropped is a few ranges of ids, one for each rollback on the way to the model. The
   oldest ranges are let go of, so that an entry may count as learned that was dropped very
   long ago; the opposite never happens, so that nothing is learned twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

MOST_RANGES: Final = 1000
"""Rollbacks on the way to one model whose dropped entries are remembered."""

FIRST_ID: Final = "0-0"


@dataclass(frozen=True)
class Branch:
    """Where the model comes from.

    Arguments:
        dropped: Ranges of entries that are no part of it: the first and the last of each,
            both included, in ascending order.
        boundaries: Boundaries on the way to it, that this service has reported.
        restored: The entry of the newest rollback or upload on the way to it.
    """

    dropped: tuple[tuple[str, str], ...] = ()
    boundaries: int = 0
    restored: str | None = None

    def rolled_back(self, kept: Branch, first: str, entry_id: str) -> Branch:
        """After a rollback.

        Arguments:
            kept: Of the version that is served again.
            first: The first entry that this version does not hold.
            entry_id: Of the rollback.
        """
        dropped = (*kept.dropped, (first, entry_id))[-MOST_RANGES:]
        return Branch(dropped, kept.boundaries, entry_id)

    def uploaded(self, entry_id: str) -> Branch:
        """After the upload of a checkpoint, which may come from elsewhere: nothing is left."""
        return Branch(((FIRST_ID, entry_id),), 0, entry_id)

    def lost(self, first: str, last: str) -> Branch:
        """After a loss of entries, the first and the last of which are given."""
        return replace(self, dropped=(*self.dropped, (first, last))[-MOST_RANGES:])

    def drops(self, entry_id: str) -> bool:
        """Whether an entry was accepted and is no part of the model any more.

        Example:
            >>> branch = Branch().rolled_back(Branch(), first="5-1", entry_id="9-0")
            >>> [branch.drops(entry) for entry in ("5-0", "5-1", "9-0", "9-1")]
            [False, True, True, False]
        """
        place = position(entry_id)
        return any(position(first) <= place <= position(last) for first, last in self.dropped)

    def to_json(self, **more: Any) -> bytes:
        """As text, for a checkpoint and for Redis, whose scripts read it too."""
        return orjson.dumps({**asdict(self), **more})

    @classmethod
    def from_json(cls, text: str | bytes) -> Branch:
        """The inverse of `to_json`; anything more that it was given is left out.

        Raises:
            KeyError, TypeError, ValueError: It is no such text.
        """
        document = orjson.loads(text)
        ranges = tuple((str(first), str(last)) for first, last in document["dropped"])
        return cls(ranges, int(document["boundaries"]), document["restored"])


def position(entry_id: str) -> tuple[int, int]:
    """An id of a Redis stream as numbers, which compare as its entries are ordered."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)
