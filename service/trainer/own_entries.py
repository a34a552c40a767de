"""Entries that a trainer appends by itself, because time has passed.

The engine has no clock, and the same stream gives the same model. So what time alone brings on is
an entry of the stream, which is read like any other: the stream is quiet (`settle`), nothing more
waits that small batches could be joined with (`join`), the rate of samples asks for another run
time between false alarms (`aim`), the wait for labels is over (`expire`), a version is to be asked
before it is served (`check`). So is what the gate wants by itself (`rollback`). Each is appended
once until it is read.
"""

from __future__ import annotations

import time
from typing import Final

from core.engine.engine import Engine
from core.engine.state import EngineState
from service.broker.entries import Entry
from service.broker.feed import Feed
from service.settings import Settings
from service.trainer.arrivals import Arrivals
from service.trainer.gate import GATE, Gate
from service.trainer.label_wait import LabelWait
from service.trainer.run_time_target import RunTimeTarget
from service.wire import Control

STIRRING: Final = frozenset({"batch", "labels", "name", "mode", "rollback", "restore"})
"""Kinds of entries after which there may be something to settle again."""

ARRIVING: Final = frozenset({"batch", "labels"})
"""Kinds of entries that tell how fast the stream goes."""

JOIN_AGAIN_S: Final = 1.0
"""Seconds after which an entry to join that was not read is appended again: Redis may have lost it.
One more of them changes nothing."""


class OwnEntries:
    """Appends to one model's stream what is due.

    Arguments:
        settings: Of the model.
        engine: Whose states are given.
        feed: By which to append.
        samples: Of the stream so far.
        last_entry_id: That was dealt with before.
    """

    def __init__(
        self, settings: Settings, engine: Engine, feed: Feed, samples: int, last_entry_id: str
    ) -> None:
        self._engine = engine
        self._feed = feed
        self._arrivals = Arrivals(last_entry_id)
        self._settle_after_s = settings.settle_after_s
        self._settling = False  # an entry to settle was appended since the last batch
        self._label_wait = LabelWait(settings.label_wait_s)
        self._joined_at: float | None = None  # when an entry to join was appended, not read yet
        self._expiring: int | None = None  # place in the stream of the expire entry appended last
        self._target = None
        if settings.ert_seconds is not None:
            self._target = RunTimeTarget(settings.ert_seconds, samples, time.monotonic())
        self._aimed: int | None = None  # that an entry was appended for, not read yet
        self._checking = False  # an entry to ask the model was appended, and not read yet
        self._rolls_back = settings.gate_rollback
        self._rolled_back: str | None = None  # the hold that a rollback was appended for

    def read(self, entry: Entry, *, applied: bool) -> None:
        """An entry was dealt with.

        Arguments:
            entry: Whoever appended it.
            applied: Whether it was of use.
        """
        kind = entry.text("kind")
        if kind == "join":
            self._joined_at = None
        elif kind == "aim":
            self._aimed = None
        elif kind == "check":
            self._checking = False
        elif applied and kind in STIRRING:
            self._settling = False
        if kind in ARRIVING:
            self._arrivals.note(entry.id)

    def settle(self, state: EngineState, *, quiet_s: float) -> None:
        """Say that the stream is quiet, where that would change anything.

        What is set aside is released then, and so waits for a stream that is silent as it goes.

        Arguments:
            state: With what would be settled.
            quiet_s: Seconds since the last entry.
        """
        if self._settling or self._engine.is_settled(state):
            return
        silence_s = self._arrivals.silence_s if state.suspected else 0.0
        if quiet_s >= max(self._settle_after_s, silence_s):
            self._settling = True  # once, until the next batch
            self._feed.append(Control("settle"))

    def join(self) -> None:
        """Say that nothing more waits for now, so that what was read is learned."""
        now = time.monotonic()
        if self._joined_at is None or now - self._joined_at >= JOIN_AGAIN_S:
            self._joined_at = now
            self._feed.append(Control("join"))

    def aim(self, state: EngineState) -> None:
        """Ask for another run time between false alarms, where it was asked for as a time."""
        if self._aimed is not None or state.watch.ert_asked:
            return
        wanted = None
        if self._target is not None:
            wanted = self._target.due(state.watch.ert, state.stream.samples, time.monotonic())
        elif state.watch.ert is not None and state.watch.ert != self._engine.config.ert:
            wanted = round(self._engine.config.ert)  # it was a time before a restart
        if wanted is not None:
            self._aimed = wanted
            self._feed.append(Control("aim", samples=wanted))

    def check(self) -> None:
        """Have the model asked whether the gate lets it pass."""
        if not self._checking:
            self._checking = True
            self._feed.append(Control("check"))

    def roll_back(self, gate: Gate | None) -> None:
        """Go back to what answers during a hold, where the settings want that."""
        hold = None if gate is None else gate.hold
        if self._rolls_back and hold is not None and hold.entry_id != self._rolled_back:
            self._rolled_back = hold.entry_id  # once for each
            self._feed.append(Control("rollback", version=hold.version, by=GATE))

    def expire(self, state: EngineState) -> None:
        """Let no sample await its label for longer than it may, by the clock."""
        now, oldest = time.monotonic(), state.pending.awaiting.oldest
        self._label_wait.note(now, state.stream.samples)
        before = self._label_wait.over(now)
        if before is None or oldest is None or oldest >= before or before == self._expiring:
            return
        if not state.learns:
            return  # nothing is learned of them before the thaw
        self._expiring = before  # once, until the entry is read
        self._feed.append(Control("expire", samples=before))
