"""The gatekeeper: asks versions at the gate, keeps the one that answers, and says what is served.

The gate itself (`service.trainer.gate`) is a value; this is what goes with it in one writer: the
state that passed last, and the snapshot that answers during a hold, which lies on disk too.

Rules of this module:

1. While the gate is open, what is published and what is kept on disk are states that passed. So
   whoever starts from a checkpoint has what must be served if the next version does not pass.
2. While it is closed, the snapshot that answers is a file beside the checkpoints, written before
   anything that speaks of the hold is. A restart serves the same bytes.
3. Without a limit there is no gate: everything is served, and nothing here costs anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import GMRError, ModelNotReady
from core.events import Event, HoldEnded, VersionHeld
from core.memory.retention import ClassRetention, SubTaskRetention
from core.snapshot import Snapshot
from service.broker.entries import Entry
from service.settings import Settings
from service.store.kept import CheckpointStore
from service.trainer.applier import Restored
from service.trainer.gate import CHECK_EVERY, Gate, Hold
from service.trainer.publish_schedule import Instead
from service.trainer.saver import Checkpoint, Saver
from service.trainer.standing import Standing
from service.trainer.totals import Totals

logger = logging.getLogger(__name__)

ASKING_SHARE: Final = 0.1
"""Share of the time that asking may take where no batch brings it about."""

ROWS: Final = "held"
"""Text beside a kept snapshot: how well it holds past sub-tasks, as JSON."""


@dataclass(frozen=True)
class Passed(Standing):
    """Where the model stood when it passed last.

    Arguments:
        checkpoint: What a checkpoint holds of it, with what was counted by then.
    """

    checkpoint: Checkpoint = field(kw_only=True)

    def to_checkpoint(self, totals: Totals, ledger_length: int) -> Checkpoint:
        """As it was counted then."""
        return self.checkpoint


class Gatekeeper:
    """Opens and closes the gate of one writer.

    Arguments:
        settings: With the largest fall that is served, if there is one.
        engine: Whose states are asked.
        saver: Keeps the version that a rollback by itself goes back to.
        checkpoints: Keep the snapshot that answers.
        checkpoint: What a checkpoint would hold of a standing.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        saver: Saver,
        checkpoints: CheckpointStore,
        checkpoint: Callable[[Standing], Checkpoint],
    ) -> None:
        self._limit = settings.gate_max_forgetting
        self._rolls_back = settings.gate_rollback
        self._engine = engine
        self._saver = saver
        self._checkpoints = checkpoints
        self._checkpoint = checkpoint
        self._gate = Gate()
        self._passed: Passed | None = None
        self._next = 0.0  # when there is time to ask again
        self.instead: Instead | None = None
        """What answers in place of what is learned; None where that does."""
        self.asked: tuple[EngineState, tuple[SubTaskRetention, ...]] | None = None
        """The state that was asked last, and how well it holds past sub-tasks."""

    @property
    def gate(self) -> Gate | None:
        """As it stands; None without a limit."""
        return None if self._limit is None else self._gate

    def is_checked(self, state: EngineState) -> bool:
        """Whether nothing needs to be asked about a state."""
        if self._limit is None or not state.past.retention.sets:
            return True
        return state.model.version == self._gate.checked

    def wants_check(self, state: EngineState) -> bool:
        """Whether a state should be asked now, although no batch brings it about."""
        return not self.is_checked(state) and time.monotonic() >= self._next

    def good(self, now: Standing) -> Standing:
        """What may be published and kept on disk: what passed, or, during a hold, all.

        Arguments:
            now: Where the model stands.
        """
        if self._passed is None or self._gate.hold is not None or self.is_checked(now.state):
            return now
        return self._passed

    # What happens -----------------------------------------------------------------------

    def begin(self, now: Standing) -> list[Event]:
        """Go on from what was recovered.

        Arguments:
            now: Where the model stands, with the gate of the checkpoint.

        Returns:
            What happened, where the settings have changed since.
        """
        before = now.gate
        hold = None if before is None else before.hold
        if self._limit is None:
            return [] if hold is None else [self._ended(now, hold, "settings")]
        self._gate = before or Gate()
        if before is None:  # what was forgotten before there was a gate counts as accepted
            self._accept(now)
        if hold is None:
            self._passed = self._as_passed(now)
            return []
        self.instead = self._recovered(hold)
        if self.instead is not None:
            return []
        logger.error("VERSION %d, WHICH ANSWERED, IS LOST: the hold ends", hold.version)
        return self._serve(now, hold, "settings")

    def crossing(self, before: Standing, entry: Entry) -> list[Event]:
        """A boundary is crossed: what is left behind must be known to pass.

        Arguments:
            before: Where the model stood.
            entry: At which it is crossed.
        """
        state = before.state
        if self._limit is None:
            return []
        if state.past.retention.sets and self._gate.checked == state.model.version:
            return []
        return self._check(before, entry)

    def applied(
        self, now: Standing, entry: Entry, restored: Restored | None, *, crossed: bool
    ) -> list[Event]:
        """An entry was applied: ask the version, where that is due.

        Arguments:
            now: Where the model stands, the entry included.
            entry: The entry.
            restored: Where the model went back, or is another one: what somebody wants served.
            crossed: Whether it crossed a boundary.
        """
        if self._limit is None:
            return []
        kind, hold = entry.text("kind"), self._gate.hold
        if restored is not None:
            self._gate = restored.gate or Gate()
            return self._serve(now, hold, restored.origin, restored.by)
        if kind == "release" and hold is not None:
            return self._serve(now, hold, "released", entry.text("by"), entry.text("note"))
        if not crossed and self.is_checked(now.state):
            return []
        late = now.state.stream.samples - self._gate.checked_at >= CHECK_EVERY
        if crossed or late or kind in ("check", "settle"):
            return self._check(now, entry)
        return []

    # Within -----------------------------------------------------------------------------

    def _check(self, now: Standing, entry: Entry) -> list[Event]:
        assert self._limit is not None
        self._ask(now)
        hold = self._gate.hold
        if self._gate.passes(self._limit):
            self._open(now)
            return [] if hold is None else [self._ended(now, hold, "retained")]
        return [] if hold is not None else self._close(now, entry)

    def _ask(self, now: Standing) -> tuple[SubTaskRetention, ...]:
        started, state = time.monotonic(), now.state
        rows = self._engine.held(state)
        ended = time.monotonic()
        self._next = ended + (ended - started) / ASKING_SHARE
        self.asked = state, rows
        self._gate = self._gate.asked(rows, state.model.version, state.stream.samples)
        return rows

    def _accept(self, now: Standing) -> None:
        """Take what was lost as accepted."""
        assert self._limit is not None
        rows = self._ask(now)
        self._gate = self._gate.accepting(rows, self._limit)

    def _serve(
        self,
        now: Standing,
        hold: Hold | None,
        reason: str,
        by: str | None = None,
        note: str | None = None,
    ) -> list[Event]:
        """Serve what somebody wants served."""
        self._accept(now)
        self._open(now)
        return [] if hold is None else [self._ended(now, hold, reason, by, note)]

    def _open(self, now: Standing) -> None:
        self._gate = replace(self._gate, hold=None)
        self.instead = None
        self._passed = self._as_passed(now)

    def _as_passed(self, now: Standing) -> Passed:
        now = replace(now, gate=self._gate)
        return Passed(
            now.state,
            now.position,
            now.branch,
            now.ledger,
            now.gate,
            checkpoint=self._checkpoint(now),
        )

    def _close(self, now: Standing, entry: Entry) -> list[Event]:
        """Hold a version back: the one that passed last goes on answering."""
        passed, found = self._passed, self._gate.finding
        assert self._limit is not None
        assert found is not None
        snapshot = None if passed is None else self._snapshot(passed)
        if passed is None or snapshot is None:  # nothing is there that could answer
            return self._serve(now, None, "")
        version, state = snapshot.version, now.state
        rows = self._engine.held(passed.state)
        self._checkpoints.write_held(
            version, snapshot.to_bytes({ROWS: orjson.dumps(rows).decode()})
        )
        self._saver.save(passed.checkpoint)
        self.instead, self._passed = Instead(snapshot, rows), None
        self._gate = replace(self._gate, hold=Hold(version, state.model.version, entry.id))
        return [
            VersionHeld(
                model_version=state.model.version,
                served_version=version,
                forgetting=found.forgetting,
                max_forgetting=self._limit,
                past_sub_task=found.sub_task,
                accuracy_before=found.accuracy_before,
                accuracy_now=found.accuracy_now,
                sub_task=state.sub_task.number,
                rollback=self._rolls_back,
            )
        ]

    def _snapshot(self, passed: Passed) -> Snapshot | None:
        try:
            return self._engine.snapshot(passed.state)
        except ModelNotReady:
            return None

    def _ended(
        self,
        now: Standing,
        hold: Hold,
        reason: str,
        by: str | None = None,
        note: str | None = None,
    ) -> HoldEnded:
        found = self._gate.finding
        return HoldEnded(
            model_version=now.state.model.version,
            served_version=hold.version,
            reason=reason,
            forgetting=None if found is None else found.forgetting,
            sub_task=now.state.sub_task.number,
            by=by,
            note=note,
        )

    def _recovered(self, hold: Hold) -> Instead | None:
        """The snapshot that answered, as it was."""
        try:
            data = self._checkpoints.read_held(hold.version)
            snapshot, metadata = Snapshot.from_bytes(data, self._engine.device)
            return Instead(snapshot, _rows(metadata.get(ROWS, "[]")))
        except (OSError, GMRError, TypeError, KeyError) as error:
            logger.error("the snapshot of version %d cannot be read: %s", hold.version, error)
        try:
            state = self._saver.find(hold.version).state
            return Instead(self._engine.snapshot(state), self._engine.held(state))
        except GMRError as error:
            logger.error("version %d cannot be read either: %s", hold.version, error)
            return None


def _rows(text: str) -> tuple[SubTaskRetention, ...]:
    """What `ROWS` says."""
    return tuple(
        SubTaskRetention(**{**row, "classes": tuple(ClassRetention(**c) for c in row["classes"])})
        for row in orjson.loads(text)
    )
