"""When a model is written down, and what may be let go for that.

Rules of this module:

1. What a checkpoint holds is not read again. So its events are told, and its entries archived,
   before it is written.
2. Where nothing new comes, the newest checkpoint is written once more, as its own twin;
   `service.trainer.releases` says why.
"""

from __future__ import annotations

import time

from service.archive.writer import Archive
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.settings import MIB, Settings
from service.trainer.budget import Budget
from service.trainer.journal import Journal
from service.trainer.metrics import TrainerMetrics
from service.trainer.releases import Releases, Samples
from service.trainer.saver import Checkpoint, Saver
from service.trainer.standing import Standing


class CheckpointSchedule:
    """Has one model written down.

    Arguments:
        settings: Of the model.
        saver: Writes.
        feed: By which entries are let go.
        journal: Which has counted.
        metrics: Takes how long a checkpoint took.
        held: What the newest checkpoint on disk holds.
        archive: Which must have what a checkpoint holds; None without one.
        budget: Of all models that share a process; None without others.
    """

    def __init__(
        self,
        settings: Settings,
        saver: Saver,
        feed: Feed,
        journal: Journal,
        metrics: TrainerMetrics,
        held: Position,
        archive: Archive | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._model, self._budget = settings.model, budget
        self._interval_s = settings.checkpoint_interval_s
        self._most_bytes = settings.checkpoint_mib * MIB
        self._ledger_length = settings.ledger_length
        self._saver = saver
        self._feed = feed
        self._journal = journal
        self._metrics = metrics
        self._releases = Releases(feed)
        self._held = held
        self._archive = archive
        self._saved_at = time.monotonic()
        self._soon = False
        self._unsaved_bytes = 0
        if saver.checkpoint_time is not None:
            metrics.checkpoint_timestamp.set(saver.checkpoint_time)

    def open(self, position: Position, samples: Samples) -> None:
        """Begin with the checkpoint that a start went on from, as `Releases.open` does."""
        self._releases.open(position, samples)

    def read(self, entry: Entry) -> None:
        """An entry is part of the state."""
        self._releases.read(entry)
        self._saver.read(entry.id)
        self._unsaved_bytes += entry.nbytes

    def soon(self) -> None:
        """Write the next one as soon as none is under way."""
        self._soon = True

    def is_behind(self, now: Standing) -> bool:
        """Whether the newest checkpoint on disk holds less than the state does."""
        return now.position != self._held

    def checkpoint(self, now: Standing) -> Checkpoint:
        """What a checkpoint would hold."""
        return now.to_checkpoint(self._journal.totals, self._ledger_length)

    def let_go(self) -> bool:
        """Drop the entries that finished checkpoints make safe to drop.

        Returns:
            Whether there are new ones.
        """
        finished = self._saver.finished()
        for saved in finished:
            self._metrics.checkpoint_duration.observe(saved.seconds)
            if self._budget is not None:
                self._budget.took(self._model, saved.seconds)
            self._metrics.checkpoint_timestamp.set(saved.time)
            self._held = saved.position
            self._releases.saved(saved)
        return bool(finished)

    def save_if_due(self, now: Standing, *, crowded: bool = False) -> None:
        """Write the state down, where it is time to and nothing is being written.

        Arguments:
            now: Where the model stands.
            crowded: Whether entries of any model wait.
        """
        twin = not self.is_behind(now)
        if self._saver.busy or (twin and not self._releases.twin_missing):
            return
        nbytes = self._releases.nbytes if twin else self._unsaved_bytes
        least_s = self._interval_s
        if crowded and self._budget is not None:
            least_s = max(least_s, self._budget.interval_s)
        waited = time.monotonic() - self._saved_at >= least_s
        large = nbytes >= self._most_bytes
        if waited or large or (self._soon and not twin):
            self.save(now, twin=twin)

    def save(self, now: Standing, *, twin: bool = False) -> None:
        """Write the state down in the background.

        Arguments:
            now: Where the model stands.
            twin: Whether it was written down before, and this is the second file of it.
        """
        self._feed.reports.flush()
        self._sync()
        self._saver.save(self.checkpoint(now), twin=twin)
        self._saved_at, self._soon, self._unsaved_bytes = time.monotonic(), False, 0

    def save_before(self, before: Standing, boundary: int) -> None:
        """Write down the state that a boundary comes right after."""
        self._feed.reports.flush()
        self._sync()
        self._saver.save(self.checkpoint(before), before_boundary=boundary)
        self._soon = True

    def save_without_redis(self, now: Standing) -> None:
        """Write the state down at an end by an error; return when it is on disk."""
        self._sync()
        self._saver.save(self.checkpoint(now))
        self._saver.wait()

    def _sync(self) -> None:
        if self._archive is not None:
            self._archive.sync()

    def finish(self, now: Standing) -> None:
        """Write the state down twice, unless that is done; return when it is on disk."""
        if self.is_behind(now):
            self.save(now)
            self._saver.wait()
            self.let_go()
        if not self.is_behind(now) and self._releases.twin_missing:
            self.save(now, twin=True)
        self._saver.wait()
