"""The contract of the input stream, as a state machine on a real Redis.

What is accepted is read by whichever trainer works, in order, each once since its checkpoint; a
repeat is told as what became of the first; and what is gone is held by two checkpoints.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.broker.connection import connect
from service.broker.dead_letters import DeadLetters
from service.broker.entries import Position, report_id
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.records import Appended
from service.broker.stream import Stream
from service.broker.stream_errors import (
    BacklogFull,
    BatchConflict,
    LetterConflict,
    UnknownLetter,
)
from service.supervisor.embedded import EmbeddedRedis
from service.wire import RawBatch, RawLabels, read_entry
from tests.service.conftest import MakeSettings

MAX_BACKLOG = 12
NAMES = ("a", "b")

Content = tuple[str, int]
"""Of which kind, and which of several."""


def request(name: str | None, content: Content) -> RawBatch | RawLabels:
    kind, which = content
    if kind == "labels":
        return RawLabels.of([which], ["x"], name)
    return RawBatch.of(np.full((2, 3), which, "f4"), ["x", None], name)


@dataclass
class Sent:
    """One time that a batch was accepted.

    Arguments:
        entry: Its entry.
        name: Its batch id.
        content: What it is.
        letter: Of it, where it was rejected.
        again: Whether that was sent again.
        dropped: Whether that is gone.
    """

    entry: str
    name: str
    content: Content
    letter: str | None = field(default=None)
    again: bool = False
    dropped: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it is learned, or will be."""
        return self.letter is None

    @property
    def waits_as_letter(self) -> bool:
        """Whether it can be sent again by its letter alone."""
        return self.letter is not None and not (self.again or self.dropped)


class Contract(RuleBasedStateMachine):
    """Senders, a trainer, and the trainer that follows it."""

    redis: EmbeddedRedis
    make: MakeSettings

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        settings = type(self).make(max_backlog=MAX_BACKLOG, model=uuid.uuid4().hex)
        self.stream: Stream = self._await(_opened(settings))
        self.client = connect(self.redis.url)
        self.keys = Keys(settings.model)
        self.log: list[Sent] = []
        self.old: Feed | None = None
        self.checkpoints = [Position(), Position()]  # the older, and the newer
        self._begin(Position())

    def teardown(self) -> None:
        self._await(self.stream.close())
        self.runner.close()
        self.client.close()

    def _await(self, what: Any) -> Any:
        return self.runner.run(what)

    def _begin(self, position: Position) -> None:
        self.client.delete(self.keys.lease)
        lease = Lease(self.client, self.keys)
        lease.acquire()
        self.feed = Feed(self.client, self.keys.model, lease, events_length=10, history_length=10)
        assert self.feed.open(position) == position
        self.position, self.unreleased = position, list[str]()

    def _times(self, name: str) -> list[Sent]:
        return [one for one in self.log if one.name == name]

    # Senders --------------------------------------------------------------------

    @rule(
        name=st.sampled_from((None, *NAMES)),
        kind=st.sampled_from(("batch", "labels")),
        which=st.integers(0, 1),
    )
    def send(self, name: str | None, kind: str, which: int) -> None:
        """A batch, or labels: new, again, or other ones under a name that is taken."""
        content, times = (kind, which), [] if name is None else self._times(name)
        applied = self.checkpoints[1].entries_applied
        asked = request(name, content)

        async def append() -> Appended:
            if isinstance(asked, RawBatch):
                return await self.stream.append(asked, entries_applied=applied)
            return await self.stream.append_labels(asked, entries_applied=applied)

        live = [one for one in times if one.is_live]
        letters = [one for one in times if one.waits_as_letter]
        if live or letters:
            known = (live or letters)[-1]
            if known.content != content:
                with pytest.raises(BatchConflict):
                    self._await(append())
                return
            found = self._await(append())
            assert (found.entry_id, found.duplicate) == (known.entry, True)
            assert (found.dead_letter, found.rejected) == (
                (None, None) if live else (known.letter, "invalid")
            )
        elif len(self.log) >= applied + MAX_BACKLOG:
            with pytest.raises(BacklogFull):
                self._await(append())
        else:
            found = self._await(append())
            assert not found.duplicate
            assert found.accepted == len(self.log) + 1
            self.log.append(Sent(found.entry_id, found.batch_id, content))

    @property
    def letters(self) -> list[Sent]:
        """What was rejected, ever."""
        return [one for one in self.log if one.letter is not None]

    @precondition(lambda self: self.letters)
    @rule(which=st.integers(0, 3))
    def send_letter_again(self, which: int) -> None:
        """By whom the letter is seen, once."""
        one = self.letters[-1 - which % len(self.letters)]
        assert one.letter is not None
        fields = self._await(DeadLetters(self.stream).payload(one.letter))
        named = fields or {b"id": one.name.encode()}
        d = 3 if one.content[0] == "batch" else None
        again = self.stream.requeue(one.letter, named, samples=2 if d else 1, d=d)
        if one.dropped:
            with pytest.raises(UnknownLetter):
                self._await(again)
        elif one.again:
            with pytest.raises(LetterConflict):
                self._await(again)
        else:
            found = self._await(again)
            if others := [other for other in self._times(one.name) if other.is_live]:
                # Its sender has sent it once more meanwhile.
                assert found.entry_id == others[-1].entry
                return
            one.again = True
            self.log.append(Sent(found.entry_id, one.name, one.content))

    @precondition(lambda self: self.letters)
    @rule(which=st.integers(0, 3))
    def drop_letter(self, which: int) -> None:
        """For good."""
        one = self.letters[-1 - which % len(self.letters)]
        assert one.letter is not None
        if one.dropped:
            return
        self._await(DeadLetters(self.stream).drop(one.letter))
        one.dropped = True

    # The trainer ----------------------------------------------------------------

    @rule(rejects=st.sets(st.integers(0, 3)))
    def read(self, rejects: set[int]) -> None:
        """All that is there; some of what was never read before is rejected."""
        entries = []
        while some := self.feed.read(block_ms=0):
            entries += some
        expected = self.log[self.position.entries_applied :]
        assert [entry.id for entry in entries] == [one.entry for one in expected]
        known = {one.letter for one in self.log}
        for number, (entry, one) in enumerate(zip(entries, expected, strict=True)):
            found = read_entry(entry.fields)
            assert isinstance(found, RawBatch | RawLabels)
            assert found.batch_id in (one.name, None)
            asked = request(found.batch_id, one.content)
            assert type(found) is type(asked)
            if isinstance(found, RawBatch) and isinstance(asked, RawBatch):
                assert found.features.tolist() == asked.features.tolist()
            letter = report_id(entry.id, 0)
            is_new = entry.id not in self.unreleased_ever
            if letter in known or (is_new and number in rejects):
                self.feed.dead_letters.bury(entry, "invalid", {"reason": "invalid"})
                one.letter = letter
            self.unreleased_ever.add(entry.id)
        self.unreleased += [entry.id for entry in entries]
        if entries:
            self.position = Position(entries[-1].id, len(self.log))

    @property
    def unreleased_ever(self) -> set[str]:
        """Entries that some trainer has read: its verdicts are those of all that follow."""
        return self.__dict__.setdefault("_read_ever", set())

    @rule()
    def save(self) -> None:
        """A checkpoint; what the one before holds, too, is let go of."""
        self.checkpoints = [self.checkpoints[1], self.position]
        held = self.checkpoints[0].entries_applied
        done = {one.entry for one in self.log[:held]}
        ids = [entry for entry in self.unreleased if entry in done]
        self.feed.release(self.checkpoints[0], ids)
        self.unreleased = [entry for entry in self.unreleased if entry not in done]

    @rule(older=st.booleans())
    def restart(self, older: bool) -> None:
        """Another trainer goes on, from the newest checkpoint or from the one before it."""
        self.old = self.feed
        position = self.checkpoints[0 if older else 1]
        if older:
            self.checkpoints = [position, position]
        self._begin(position)

    @precondition(lambda self: self.old is not None)
    @rule()
    def the_old_one_wakes(self) -> None:
        """It changes nothing."""
        assert self.old is not None
        with pytest.raises(LeaseLost):
            self.old.release(Position("9999999999999-0", 10**6), [])

    @rule()
    def connections_die(self) -> None:
        """All of them, between two calls."""
        with connect(self.redis.url) as other:
            other.client_kill_filter(_type="normal", skipme=True)

    # What always holds ----------------------------------------------------------

    @invariant()
    def nothing_is_missing(self) -> None:
        """What two checkpoints do not hold is in the stream."""
        assert self._await(self.stream.accepted()) == len(self.log)
        rows: Any = self.feed.call(lambda: self.client.xrange(self.keys.input))
        there = [id.decode() for id, _ in rows]
        expected = [one.entry for one in self.log]
        assert there == expected[len(expected) - len(there) :]
        assert len(expected) - len(there) <= self.checkpoints[0].entries_applied


async def _opened(settings: Any) -> Stream:
    return Stream.open(settings)


def test_the_stream_keeps_its_contract(redis_server: EmbeddedRedis, settings: MakeSettings) -> None:
    bound = type("Bound", (Contract,), {"redis": redis_server, "make": staticmethod(settings)})
    case = bound.TestCase
    case.settings = of_hypothesis(max_examples=40, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
