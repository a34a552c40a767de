"""Entries of one model's stream, taken in one by one, or several as one.

Rules of this module:

1. An entry is applied or rejected, and either way dealt with: what came of it is told, written
   down where there is an archive, and the model stands behind it.
2. One bad entry must not stop the stream: it is rejected, and kept as a dead letter with the
   reason; so is one by which the process keeps dying. For faults of the machine none is: they are
   raised, the process ends, and the next one reads the entry again.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace

from core.errors import GMRError
from core.events import BoundaryDetected, Event, OutlierBurst
from service.broker.connection import StreamUnavailable
from service.broker.entries import Entry
from service.broker.fenced import LeaseLost
from service.trainer.activity import Activity
from service.trainer.applier import Applied
from service.trainer.archived import records_of
from service.trainer.assembly import Assembly
from service.trainer.faults import is_machines
from service.trainer.joining import EntryGroup
from service.trainer.standing import Standing
from service.wire import REQUEUED_FROM

logger = logging.getLogger(__name__)


class Intake:
    """Takes entries in, in the order in which they are given to it.

    Arguments:
        parts: What follows the model.
        now: Where the model stands.
        activity: Told of every entry.

    Attributes:
        now: Where the model stands by now. Whoever looks after what is due may replace it.
        is_whole: Whether no entry is being applied.
        learned_at: When the last entry was dealt with, by the monotonic clock.
    """

    def __init__(self, parts: Assembly, now: Standing, activity: Activity) -> None:
        self._parts, self._activity = parts, activity
        self.now = now
        self.is_whole = True
        self.learned_at = time.monotonic()

    def take(self, entry: Entry) -> None:
        """Take the next entry: learn what it completes.

        Raises:
            StreamUnavailable: Redis is away.
            LeaseLost: Another trainer has taken over.
        """
        for group in self._parts.joining.add(entry):
            if not group.parts or not self._learn_joined(group):
                for one in group.apart():
                    self._learn(one)

    def _learn_joined(self, group: EntryGroup) -> bool:
        """Learn the batches of several entries as one, where that can be done."""
        if not self._parts.attempts.begin_together(group.entries):
            self._parts.checkpoints.soon()
            return False
        started, before = time.perf_counter(), self.now
        self.is_whole = False
        try:
            applied = self._parts.applier.apply(before, group.last, group.batch)
        except (StreamUnavailable, LeaseLost):
            raise
        except Exception as error:
            if is_machines(error):
                raise
            # A state is replaced only after success, so this one is whole. Each entry by itself
            # tells which of them is at fault.
            self.is_whole = True
            first, last = group.entries[0].id, group.last.id
            logger.warning("entries %s to %s cannot be learned as one: %s", first, last, error)
            return False
        self._dealt_with(group, before, applied, self._adopt(group, before, applied))
        self._parts.metrics.step_duration.observe(time.perf_counter() - started)
        return True

    def _learn(self, group: EntryGroup) -> None:
        """Apply one entry, or reject it. Either way it is dealt with."""
        started = time.perf_counter()
        before, applied, entry = self.now, None, group.last
        gate_events: list[Event] = []
        given_up = self._parts.attempts.begin(entry)
        self.is_whole = False
        try:
            if not given_up:
                applied = self._parts.applier.apply(before, entry)
        except (StreamUnavailable, LeaseLost):
            raise  # no fault of the entry
        except GMRError as error:
            self._reject(entry, _reason(error), str(error))
        except Exception as error:
            if is_machines(error):
                # Every later entry would fare the same, or a passing fault would decide what
                # is learned. A fresh process goes on from the checkpoint.
                logger.critical(
                    "entry %s was not learned (%s: %s), which is no fault of its own: the trainer "
                    "ends, and whoever starts it again has it read again",
                    entry.id,
                    type(error).__name__,
                    error,
                )
                raise
            # A state is replaced only after success, so this one is whole.
            logger.exception("entry %s cannot be learned", entry.id)
            self._reject(entry, "internal_error", f"{type(error).__name__}: {error}")
        if given_up:
            self._reject(entry, "trainer_died", given_up)
            self._parts.checkpoints.soon()
        elif applied is not None:
            gate_events += self._adopt(group, before, applied)
        self._dealt_with(group, before, applied, gate_events)
        self._parts.metrics.step_duration.observe(time.perf_counter() - started)

    def _dealt_with(
        self, group: EntryGroup, before: Standing, applied: Applied | None, gate_events: list[Event]
    ) -> None:
        """Go on behind entries, whatever came of them."""
        entry = group.last
        if self._parts.archive is not None:
            records = records_of(group, before.position, applied)
            self._parts.archive.append(
                records, lambda: self._parts.saver.dump(self._parts.checkpoints.checkpoint(before))
            )
        self._parts.own_entries.read(entry, applied=applied is not None)
        self._tell_readers(entry, before)
        self.now = self.now.after(group.entries)
        self._pass_gate(entry, applied, gate_events)
        for one in group.entries:
            self._parts.checkpoints.read(one)
        self.is_whole = True
        self.learned_at = time.monotonic()
        self._activity.went_on()
        self._parts.starts.applied(self.now.position.entries_applied)

    def _adopt(self, group: EntryGroup, before: Standing, applied: Applied) -> list[Event]:
        """Go on from what came of entries, and report it; what the gate has to say comes later."""
        self.now, gate_events, entry = applied.now, list[Event](), group.last
        state = self.now.state
        if applied.restored is not None:
            version, origin = applied.restored.version, applied.restored.origin
            self._parts.saver.restored(version, origin, before.position.entries_applied + 1)
            self._parts.publishing.restored()
            self._parts.reporter.features(state)
            self._parts.reporter.feature_names(applied.restored.feature_names, entry.id)
            self._parts.checkpoints.soon()
        elif entry.text("kind") == "mode":
            self._parts.publishing.soon()
        for event in applied.events:
            if isinstance(event, BoundaryDetected):
                branch = self.now.branch
                gate_events += self._parts.gatekeeper.crossing(before, entry)
                left = replace(before, branch=branch, gate=self._parts.gatekeeper.gate)
                self._parts.checkpoints.save_before(left, event.boundary)
                branch = replace(branch, boundaries=branch.boundaries + 1)
                self.now = replace(self.now, branch=branch)
                self._parts.publishing.soon()
            elif isinstance(event, OutlierBurst):
                self._parts.journal.quarantine(entry.id, state.pending.quarantined)
        by, began = entry.text("by"), group.entries[0].id
        self._parts.journal.write(entry.id, applied.events, by=by, began=began)
        if applied.restored is not None:
            self._parts.journal.went_back(applied.restored.totals, state.stream.prequential)
        again, outliers = entry.text(REQUEUED_FROM), state.pending.quarantined
        of_entry = again, applied.events, outliers, state.stream, group.samples
        ledger = self.now.ledger.applied(entry.id, *of_entry)
        self.now = replace(self.now, ledger=ledger)
        return gate_events

    def _pass_gate(self, entry: Entry, applied: Applied | None, gate_events: list[Event]) -> None:
        """Let the gate judge what has come of an entry, where that is due.

        Arguments:
            entry: Which was dealt with.
            applied: What came of it; None where it was rejected.
            gate_events: What the gate had to say before.
        """
        events = [] if applied is None else applied.events
        crossed = any(isinstance(event, BoundaryDetected) for event in events)
        restored = None if applied is None else applied.restored
        gate_events = [
            *gate_events,
            *self._parts.gatekeeper.applied(self.now, entry, restored, crossed=crossed),
        ]
        self.now = replace(self.now, gate=self._parts.gatekeeper.gate)
        # A rejection is two events at most.
        self._parts.journal.write(
            entry.id, gate_events, first=2 if applied is None else len(events)
        )
        if gate_events:
            self._parts.checkpoints.soon()
        if gate_events or entry.text("kind") == "check":
            self._parts.publishing.soon()
        if self._parts.gatekeeper.asked is not None:
            self._parts.publishing.take(*self._parts.gatekeeper.asked)
            self._parts.gatekeeper.asked = None

    def _reject(self, entry: Entry, reason: str, detail: str) -> None:
        samples = self._parts.journal.reject(entry, reason, detail)
        ledger = self.now.ledger.refused(entry.text(REQUEUED_FROM), samples)
        self.now = replace(self.now, ledger=ledger)

    def _tell_readers(self, entry: Entry, before: Standing) -> None:
        """Say what the API must know of a state before it takes in more, where that changed."""
        state, kind = self.now.state, entry.text("kind")
        if state.n_features != before.state.n_features:
            self._parts.reporter.features(state)
        elif (
            state is before.state
            and state.n_features is self._parts.settings.n_features is None
            and kind in ("batch", "restore")
        ):
            # Rejected, and the first of all: it must not decide on D.
            self._parts.reporter.no_features()
        if kind in ("rollback", "restore"):
            self._parts.reporter.branch(self.now.branch, entry.id)


def _reason(error: GMRError) -> str:
    """A short name for a kind of error, as a label: `ShapeMismatch` is `shape_mismatch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
