"""The parts that follow one model: who applies its entries, tells of them, publishes and keeps."""

from __future__ import annotations

from dataclasses import dataclass

from core.engine.engine import Engine
from service.archive.writer import Archive
from service.broker.feed import Feed
from service.broker.snapshots import SnapshotFiles
from service.settings import Settings
from service.store.kept import CheckpointStore
from service.trainer import detector_table
from service.trainer.applier import Applier
from service.trainer.attempts import Attempts
from service.trainer.checkpoint_schedule import CheckpointSchedule
from service.trainer.gatekeeper import Gatekeeper
from service.trainer.heartbeat import Heartbeat, Pulse
from service.trainer.housekeeping import Housekeeping
from service.trainer.joining import Joining
from service.trainer.journal import Journal
from service.trainer.metrics import TrainerMetrics
from service.trainer.own_entries import OwnEntries
from service.trainer.pace import Pace
from service.trainer.publish_schedule import PublishSchedule
from service.trainer.reporter import Reporter
from service.trainer.saver import Saver
from service.trainer.standing import Standing
from service.trainer.starts import Starts
from service.trainer.totals import Totals
from service.wire import Limits


@dataclass(frozen=True)
class Assembly:
    """What follows one model, put together. Each part has a module of its own."""

    settings: Settings
    saver: Saver
    archive: Archive | None
    metrics: TrainerMetrics
    journal: Journal
    attempts: Attempts
    starts: Starts
    applier: Applier
    joining: Joining
    own_entries: OwnEntries
    publishing: PublishSchedule
    checkpoints: CheckpointSchedule
    gatekeeper: Gatekeeper
    reporter: Reporter
    house: Housekeeping

    @classmethod
    def of(
        cls,
        *,
        settings: Settings,
        engine: Engine,
        feed: Feed,
        saver: Saver,
        store: CheckpointStore,
        files: SnapshotFiles | None,
        archive: Archive | None,
        heartbeat: Heartbeat,
        pulse: Pulse,
        pace: Pace,
        now: Standing,
        totals: Totals,
    ) -> Assembly:
        """Put the parts together, beginning with what was kept of the model.

        Arguments:
            settings: Of the model.
            engine: How it learns.
            feed: Its end of Redis.
            saver: Writes its checkpoints.
            store: Where these are.
            files: Where snapshots go; None: into Redis.
            archive: Of its entries; None without one.
            heartbeat: Of the process.
            pulse: Of the model.
            pace: How often the process reports.
            now: Where the model stands.
            totals: What was counted so far.
        """
        shadows = engine.config.shadows
        totals.detectors = detector_table.begun(totals.detectors, settings.detector, shadows)
        metrics, starts = TrainerMetrics(), Starts(feed)
        journal = Journal(feed, totals, metrics, settings.webhook_kinds)
        own_entries = OwnEntries(
            settings, engine, feed, now.state.stream.samples, now.position.last_entry_id
        )
        interval_s = settings.publish_interval_s
        publishing = PublishSchedule(engine, feed, files, journal, metrics, interval_s)
        checkpoints = CheckpointSchedule(
            settings, saver, feed, journal, metrics, now.position, archive, pace.checkpoints
        )
        gatekeeper = Gatekeeper(settings, engine, saver, store, checkpoints.checkpoint)
        reporter = Reporter(
            settings, engine, feed, saver, journal, metrics, heartbeat, pulse, starts, pace
        )
        house = Housekeeping(
            settings,
            pace,
            pulse,
            own_entries,
            gatekeeper,
            publishing,
            checkpoints,
            feed,
            saver,
            archive,
            reporter,
        )
        limits = Limits(settings.max_samples, settings.max_features)
        return cls(
            settings=settings,
            saver=saver,
            archive=archive,
            metrics=metrics,
            journal=journal,
            attempts=Attempts(feed),
            starts=starts,
            applier=Applier(settings, engine, feed, saver, journal),
            joining=Joining(settings.join_samples, limits),
            own_entries=own_entries,
            publishing=publishing,
            checkpoints=checkpoints,
            gatekeeper=gatekeeper,
            reporter=reporter,
            house=house,
        )
