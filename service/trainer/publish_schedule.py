"""When a model is published: as soon as readers gain by it, and for little of the time.

Rules of this module:

1. Publishing takes at most `PUBLISHING_SHARE` of the time while the stream flows: a large model is
   published less often. When the stream is quiet, what is served is the model as it is.
2. What is served goes back by a rollback only. A start that reads entries again publishes nothing
   before it has come as far as the trainer before it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import ModelNotReady
from core.events import ModelPublished
from core.memory.retention import SubTaskRetention, summary
from core.snapshot import Snapshot
from service.broker.entries import LAST_REPORT, Position
from service.broker.feed import Feed
from service.broker.snapshots import Publisher, SnapshotFiles
from service.trainer.journal import Journal
from service.trainer.metrics import TrainerMetrics
from service.trainer.pace import NEVER
from service.trainer.retention_schedule import RetentionSchedule
from service.trainer.standing import Standing

logger = logging.getLogger(__name__)

PUBLISHING_SHARE: Final = 0.1


@dataclass(frozen=True)
class Instead:
    """What answers in place of what is learned.

    Arguments:
        snapshot: An earlier version.
        held: How well it holds past sub-tasks.
    """

    snapshot: Snapshot
    held: tuple[SubTaskRetention, ...]


class PublishSchedule:
    """Publishes one model.

    Arguments:
        engine: Whose states are given.
        feed: By which readers are told.
        files: Where snapshots are; None where they travel through Redis.
        journal: Takes the event.
        metrics: Takes how well the past is held.
        interval_s: Seconds between two models, at least.
    """

    def __init__(
        self,
        engine: Engine,
        feed: Feed,
        files: SnapshotFiles | None,
        journal: Journal,
        metrics: TrainerMetrics,
        interval_s: float,
    ) -> None:
        self.error: str | None = None  # of the last try
        self._engine = engine
        self._feed = feed
        self._publisher = Publisher(feed, files)
        self._journal = journal
        self._metrics = metrics
        self._interval_s = interval_s
        self._retention = RetentionSchedule(engine)
        self._published: tuple[int, Position] | None = None  # version, and what it contains
        self._version = 0  # of that; 0 until there is a model
        self._served_entries = 0  # that the model of before this start held
        self._published_at = NEVER
        self._took_s = 0.0
        self._soon = True

    def open(self) -> None:
        """Ask what is served."""
        self._served_entries = self._feed.served_entries()

    def soon(self) -> None:
        """Let nothing but a crash before it keep the next one back."""
        self._soon = True

    def restored(self) -> None:
        """The model does not grow from the one before it."""
        self._retention = RetentionSchedule(self._engine)  # what it knows is of another past
        self._soon = True

    @property
    def is_recent(self) -> bool:
        """Whether the last one is younger than two of them should be apart."""
        return time.monotonic() - self._published_at < self._interval_s

    def take(self, state: EngineState, rows: tuple[SubTaskRetention, ...]) -> None:
        """Take over how well a state holds the past, where somebody else has asked it."""
        self._retention.take(state, rows)

    def is_due(self, now: Standing, *, quiet: bool, instead: Instead | None = None) -> bool:
        """Whether it is time to publish.

        Arguments:
            now: Where the model stands.
            quiet: Whether nothing has come for a while.
            instead: What answers in place of it.
        """
        behind = now.position.entries_applied < self._served_entries
        if behind and not quiet:
            return False  # reads do not go back: what is served knew more before a crash
        version = now.state.model.version if instead is None else instead.snapshot.version
        if self._published == (version, now.position):
            # How well it holds the past may be news, now that there is time to ask.
            return quiet and instead is None and not self._retention.is_fresh(now.state)
        first = version > 0 and self._version == 0
        since = time.monotonic() - self._published_at
        if first or self._soon:
            return True
        if since < self._interval_s:
            return False
        return quiet or since >= self._took_s / PUBLISHING_SHARE

    def publish(self, now: Standing, *, quiet: bool, instead: Instead | None = None) -> None:
        """Publish the model, or only how far it reaches by now; arguments as of `is_due`."""
        position, started = now.position, time.perf_counter()
        if instead is None:
            version, snapshot = now.state.model.version, self._snapshot(now)
            held = self._retention.rows(now.state, quiet=quiet)
        else:
            version, snapshot, held = instead.snapshot.version, instead.snapshot, instead.held
        try:
            self._publisher.publish(snapshot, position, held)
            self.error = None
        except OSError as error:
            logger.exception("version %d was not published", version)
            self.error = f"snapshot not published: {error}"
            self._published_at = time.monotonic()
            return
        self._metrics.show_held(summary(held))
        if snapshot is not None and version != self._version:
            self._announce(snapshot, position, time.perf_counter() - started)
        self._took_s = time.perf_counter() - started
        self._published = (version, position)
        self._version = 0 if snapshot is None else version
        self._published_at, self._soon = time.monotonic(), False

    def _snapshot(self, now: Standing) -> Snapshot | None:
        try:
            return self._engine.snapshot(now.state)
        except ModelNotReady:
            return None

    def _announce(self, snapshot: Snapshot, position: Position, seconds: float) -> None:
        info = snapshot.info
        event = ModelPublished(
            info.model_version,
            info.sub_task,
            info.samples_seen,
            info.components,
            len(info.classes),
            seconds,
        )
        self._journal.write(position.last_entry_id, [event], first=LAST_REPORT)
        self._feed.reports.flush()
