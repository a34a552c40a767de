"""Which entries are being applied, noted in Redis before they are, so that one that kills is found.

Rules of this module:

1. Entries that were read together are noted together, in one write. After a death each of them is
   noted by itself, so that the next death tells which it was. Of entries that are learned as one
   batch that is told by stages: the group is noted by itself, and after `MOST_DEATHS` taken apart.
2. An entry by which the trainer died `MOST_DEATHS` times in a row is given up. Deaths of which the
   trainer could say that the machine had no room count apart, up to `MOST_PASSING`: they pass, and
   must not decide what is learned; but nothing may go on for ever.
3. An orderly end, and a stream that is quiet, remove the note.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.trainer.faults import may_pass

logger = logging.getLogger(__name__)

MOST_DEATHS: Final = 3

MOST_PASSING: Final = 30
"""With the pauses of a supervisor about five minutes."""

UNKNOWN: Final = "the process ended without a word: killed, or a crash of native code"


@dataclass(frozen=True)
class Attempt:
    """Entries that are being applied.

    Arguments:
        first: Id of the first; empty where there is none.
        last: Id of the last.
        deaths: Of the trainer while it applied them, in a row, before.
        passing: The same, but of deaths for want of room.
        reason: Of this death, as far as the trainer could say, or else of the one before.
        passes: Whether this death, if it is one, is for want of room.
        given_up: Entries given up that no checkpoint holds yet, and why.
    """

    first: str = ""
    last: str = ""
    deaths: int = 0
    passing: int = 0
    reason: str = UNKNOWN
    passes: bool = False
    given_up: dict[str, str] = field(default_factory=dict)

    def covers(self, entry_id: str) -> bool:
        """Whether an entry is one of them."""
        return bool(self.first) and _place(self.first) <= _place(entry_id) <= _place(self.last)

    def died(self) -> Attempt:
        """After the death of the trainer that noted it."""
        if self.passes:
            return replace(self, passing=self.passing + 1, passes=False)
        return replace(self, deaths=self.deaths + 1)

    @property
    def is_hopeless(self) -> bool:
        """Whether the trainer has died by them too often."""
        return self.deaths >= MOST_DEATHS or self.passing >= MOST_PASSING

    @property
    def verdict(self) -> str | None:
        """Why its only entry is given up; None where it is not, or where there are several."""
        if self.first != self.last or not self.is_hopeless:
            return None
        return (
            f"The trainer died {self.deaths + self.passing} times in a row while it applied this "
            f"entry ({self.reason}). It is a dead letter now, so that the entries after it are "
            f"learned; send it again once the cause is gone."
        )

    def to_json(self) -> bytes:
        """As kept in Redis."""
        return orjson.dumps(asdict(self))

    @classmethod
    def of(cls, data: bytes | None) -> Attempt:
        """The inverse of `to_json`; no entry where there is no note, or none of this release."""
        try:
            values: dict[str, Any] = orjson.loads(data or b"{}")
            return cls(**values)
        except (TypeError, ValueError):
            return cls()


class Attempts:
    """Notes what is being applied and finds what must not be applied again.

    Arguments:
        feed: By which to write.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._noted = Attempt()  # by this trainer
        self._suspect = Attempt()  # that the trainer before died by
        self._given_up: dict[str, str] = {}
        self._read_to = ""

    def open(self, position: Position, *, died: bool = True) -> None:
        """Look at what the trainer before has left.

        Arguments:
            position: What the checkpoint holds; entries up to it are no matter any more.
            died: Whether that one ended by what it was applying, if it was.
        """
        left = Attempt.of(self._feed.get(self._feed.keys.applying))
        checkpointed = _place(position.last_entry_id)
        self._given_up = {id: why for id, why in left.given_up.items() if _place(id) > checkpointed}
        if died and left.first and _place(left.last) > checkpointed:
            self._suspect = left.died()
            logger.warning(
                "the trainer before ended while it applied entries %s to %s (%s)",
                left.first,
                left.last,
                left.reason,
            )

    def expect(self, entries: Sequence[Entry]) -> None:
        """Entries that come next, as they were read."""
        self._read_to = entries[-1].id

    def begin(self, entry: Entry) -> str | None:
        """Note an entry, unless that is done.

        Returns:
            Why the entry must not be applied; None where it may be.
        """
        if entry.id in self._given_up:
            return self._given_up[entry.id]
        suspect = self._suspect
        if suspect.covers(entry.id) and suspect.verdict is not None:
            self._given_up[entry.id] = suspect.verdict
            self._note(Attempt())
            return suspect.verdict
        self._begin(entry.id, entry.id)
        return None

    def begin_together(self, entries: Sequence[Entry]) -> bool:
        """Note entries that are applied as one, unless that is done.

        Returns:
            Whether they may be. Not where the trainer before died too often by them, or by one of
            them: then each is to be applied by itself.
        """
        first, last = entries[0].id, entries[-1].id
        if any(entry.id in self._given_up for entry in entries):
            return False
        suspect = self._suspect
        if suspect.first and _place(first) <= _place(suspect.first):
            if (suspect.first, suspect.last) == (first, last):
                if suspect.is_hopeless:
                    self._suspect = replace(suspect, deaths=0, passing=0)  # none of them alone
                    return False
            elif _place(suspect.last) <= _place(last):
                return False  # they were taken apart before
        self._begin(first, last)
        return True

    def died(self, error: BaseException) -> None:
        """The trainer ends by an error: leave the reason with the note."""
        if self._noted.first:
            reason = f"{type(error).__name__}: {error}"[:500]
            self._note(replace(self._noted, reason=reason, passes=may_pass(error)))

    def done(self) -> None:
        """Everything noted has been applied, and nothing more is there."""
        if self._noted.first:
            self._note(Attempt())

    def _begin(self, first: str, last: str) -> None:
        suspect = self._suspect
        if suspect.covers(first):
            self._note(replace(suspect, first=first, last=last))
        elif suspect.first and _place(first) < _place(suspect.first):
            self._note(Attempt(first, last))
        elif not (self._noted.covers(first) and self._noted.covers(last)):
            self._suspect = Attempt()
            self._note(Attempt(first, max(last, self._read_to, key=_place)))

    def _note(self, attempt: Attempt) -> None:
        self._noted = replace(attempt, given_up=self._given_up)
        self._feed.set(self._feed.keys.applying, self._noted.to_json())


def _place(entry_id: str) -> tuple[int, int]:
    """Where an entry is in the stream; before all where there is none.

    Example:
        >>> _place("1700000000000-3") < _place("1700000000000-20")
        True
    """
    milliseconds, _, sequence = (entry_id or "0-0").partition("-")
    return int(milliseconds), int(sequence)
