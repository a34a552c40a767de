"""What each kind of entry does to a model.

Where a model stands goes in and comes out; an entry that raises has changed nothing. Who asks for
what is not asked here: all that is in the stream was let in.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Final

from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidRequest
from core.events import Event
from service.broker.entries import Entry
from service.broker.feed import Feed
from service.settings import Settings
from service.trainer import key_shares
from service.trainer.effects import effect
from service.trainer.faults import is_out_of_memory, make_room
from service.trainer.gate import GATE, Gate
from service.trainer.journal import Journal
from service.trainer.saver import Saver
from service.trainer.standing import Standing
from service.trainer.totals import Totals
from service.wire import (
    REQUEUED_FROM,
    Control,
    Limits,
    RawBatch,
    read_entry,
)

logger = logging.getLogger(__name__)

MEMORY_PAUSES_S: Final = (0.1, 0.5, 2.0)
"""Before an entry for which there was no room is tried again: others may let go of some."""


@dataclass(frozen=True)
class Restored:
    """A model does not grow from the one before it.

    Arguments:
        origin: "rollback" or "checkpoint".
        version: The kept version that it grows from; None for one from elsewhere.
        gate: Of that version.
        by: Who asked.
        entries_applied: Entries that the kept version contains.
        without_raw: Whether it was kept without raw samples.
        totals: What was counted when that version was kept.
        checkpoint: What was uploaded.
        feature_names: That came with it.
    """

    origin: str
    version: int | None = None
    gate: Gate | None = None
    by: str | None = None
    entries_applied: int | None = None
    without_raw: bool = False
    totals: Totals | None = field(default=None, repr=False)
    checkpoint: bytes | None = field(default=None, repr=False)
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Applied:
    """What came of an entry.

    Arguments:
        now: Where the model stands; its position is that of the entry before.
        events: What happened.
        restored: Where the model went back, or is another one.
    """

    now: Standing
    events: list[Event]
    restored: Restored | None = None


class Applier:
    """Applies the entries of one model's stream.

    Arguments:
        settings: Of the model.
        engine: Which learns.
        feed: Which has the pieces of uploads.
        saver: Which has the versions that are kept.
        journal: Which has counted whose samples were learned.
    """

    def __init__(
        self, settings: Settings, engine: Engine, feed: Feed, saver: Saver, journal: Journal
    ) -> None:
        self._limits = Limits(settings.max_samples, settings.max_features)
        self._max_key_share = settings.max_key_share
        self._max_key_outliers = settings.max_key_outliers
        self._engine = engine
        self._feed = feed
        self._saver = saver
        self._journal = journal

    def apply(self, before: Standing, entry: Entry, joined: RawBatch | None = None) -> Applied:
        """Apply an entry, trying again where there is no room for the moment.

        Arguments:
            before: Where the model stands.
            entry: Which; of several that are applied as one, the last.
            joined: What several entries are together; None for one.

        Raises:
            GMRError: The entry cannot be used.
        """
        for pause in MEMORY_PAUSES_S:
            try:
                return self._apply(before, entry, joined)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                logger.warning("no room for entry %s, trying again: %s", entry.id, error)
            # Not before the error is gone, which holds on to what was computed.
            make_room()
            time.sleep(pause)
        return self._apply(before, entry, joined)

    def _apply(self, before: Standing, entry: Entry, joined: RawBatch | None) -> Applied:
        asked = read_entry(entry.fields, self._limits) if joined is None else joined
        engine, state = self._engine, before.state
        if isinstance(asked, RawBatch):
            self._check_key(state, asked, entry)
        elif isinstance(asked, Control):
            if asked.kind == "rollback":
                if asked.by == GATE and not _is_held(before, asked.version):
                    return Applied(before, [])  # it was asked for during a hold that is over
                return self._roll_back(before, entry, asked)
            if asked.kind == "restore":
                return self._restore(before, entry, asked)
            if asked.kind == "release" and not _is_held(before):
                raise InvalidRequest(
                    "No version is held back at the moment. Expected a hold (gate.held of GET "
                    "/drift). Nothing needs to be released."
                )
        state, events = effect(engine, state, asked)
        return Applied(replace(before, state=state), events)

    def _roll_back(self, before: Standing, entry: Entry, asked: Control) -> Applied:
        """Go back to a kept version."""
        assert asked.version is not None
        kept = self._saver.find(asked.version)
        state, events = self._engine.restore(before.state, kept.state, "rollback")
        branch = before.branch.rolled_back(kept.branch, kept.first_not_held, entry.id)
        ledger = before.ledger.rolled_back(kept.ledger, kept.state)
        now = Standing(state, before.position, branch, ledger)
        went = kept.position.entries_applied, kept.without_raw, kept.totals
        return Applied(now, events, Restored("rollback", asked.version, kept.gate, asked.by, *went))

    def _restore(self, before: Standing, entry: Entry, asked: Control) -> Applied:
        """Go on from a checkpoint that was uploaded."""
        data = asked.checkpoint if asked.upload is None else self._feed.requests.fetch(asked.upload)
        uploaded, names = self._saver.parse(data or b"")
        state, events = self._engine.restore(before.state, uploaded, "checkpoint")
        self._saver.try_out(state)
        branch, ledger = before.branch.uploaded(entry.id), before.ledger.uploaded(state)
        return Applied(
            Standing(state, before.position, branch, ledger),
            events,
            Restored("checkpoint", checkpoint=data, feature_names=names),
        )

    def _check_key(self, state: EngineState, batch: RawBatch, entry: Entry) -> None:
        """Raise where the key of a batch may not send more for now.

        Raises:
            KeyShare: It would have more of what is learned than it may have.
            KeyOutliers: Too much of what it has sent were outliers.
        """
        # A dead letter that was sent again has been looked at, and at rest nothing is learned.
        if not state.learns or entry.text(REQUEUED_FROM) is not None:
            return
        window = self._journal.totals.key_shares
        if self._max_key_share is not None:
            key_shares.check(window, batch.by, len(batch), self._max_key_share)
        if self._max_key_outliers is not None:
            key_shares.check_outliers(window, batch.by, self._max_key_outliers)


def _is_held(now: Standing, version: int | None = None) -> bool:
    """Whether what is learned is held back; and a version answers, where one is given."""
    hold = None if now.gate is None else now.gate.hold
    return hold is not None and version in (None, hold.version)
