"""The single writer of one model: entries -> engine -> snapshots, events, checkpoints.

Which entry comes next is for `service.trainer.host` to say, which leads one writer or a thousand.
What an entry does to the model is in `applier`; what is due besides is decided by the schedules
(`own_entries`, `publish_schedule`, `checkpoint_schedule`) and told by the `reporter`.

Rules of this module:

1. What changes the model is an entry of the input stream, so that reading the same
   stream gives the same model. The trainer's own decision that the stream is quiet
   is an entry too: it appends one and reads it like any other. So is the one to join what
   waits (`joining`).
2. Entries are let go only when two checkpoints that contain them are on disk. Recovery
   is: load the newest that can be read, read on.
3. One bad entry must not stop the stream: it is rejected, and kept as a dead letter with the
   reason; so is one by which the process keeps dying. For faults of the machine none is: the
   process ends, and the next one reads the entry again.
4. Events come before the notice that the model which they speak of is served:
   whoever sees a backlog of 0 finds every boundary reported.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from core.config import too_short
from core.engine.engine import Engine
from core.errors import GMRError, InvalidSettings
from core.events import BoundaryDetected, EntriesLost, Event, OutlierBurst
from service.archive.parts import ARCHIVE
from service.archive.writer import Archive
from service.broker.connection import StreamUnavailable, SyncClient
from service.broker.entries import LAST_REPORT, Entry, Position, next_id
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.lease import DirectoryLock, Lease
from service.broker.pointer import Pointer
from service.broker.snapshots import SnapshotFiles
from service.checkpoints import StoreUnavailable
from service.settings import MIB, Settings
from service.signature import key_of
from service.trainer import detector_table
from service.trainer.applier import Applied, Applier
from service.trainer.archived import records_of
from service.trainer.attempts import Attempts
from service.trainer.checkpoint_schedule import CheckpointSchedule
from service.trainer.device import choose_device
from service.trainer.faults import is_machines
from service.trainer.gap import check_accepted, find_gap
from service.trainer.gatekeeper import Gatekeeper
from service.trainer.heartbeat import Heartbeat, Pulse
from service.trainer.housekeeping import Housekeeping
from service.trainer.joining import FEW, Group, Joining
from service.trainer.journal import Journal
from service.trainer.metrics import TrainerMetrics
from service.trainer.own_entries import OwnEntries
from service.trainer.pace import Pace
from service.trainer.publish_schedule import PublishSchedule
from service.trainer.reporter import Reporter
from service.trainer.saver import Progress, Saver
from service.trainer.standing import Standing
from service.trainer.starts import Starts
from service.trainer.takeover import Takeover, place_of
from service.trainer.totals import Totals
from service.webhook.receiver import Receiver
from service.webhook.sender import WebhookSender
from service.wire import REQUEUED_FROM, Limits

logger = logging.getLogger(__name__)

REDIS_GRACE_S: Final = 2.0
"""Seconds to wait for a Redis that is away when the trainer is to stop."""

CALM_S: Final = 2.0
"""Seconds without an entry after which there is none: a read takes a quarter of one."""


class ModelWriter:
    """Applies the entries of one model's stream, in the order in which they are given to it.

    Between `begin` and `end` it is the one that may change the model. `close` comes last,
    whatever has happened.

    Arguments:
        settings: Of this model.
        client: Connection to Redis that threads may share.
        heartbeat: Shows that it lives, and keeps its lease.
        pace: How often it reports.
        saving: Thread on which checkpoints are written, of one worker; None for one of its own.
        lease: Of the model, where it was taken before.
        patience_s: Seconds for which a call of Redis is repeated while that is away.
        stood_aside: Whether it goes on with a lease that this process has had all the while.

    Raises:
        InvalidSettings: They cannot work: no such device, a data dir in use, or a checkpoint of
            another kind of model. Where no lock keeps others away, `begin` looks for that.
    """

    def __init__(
        self,
        settings: Settings,
        client: SyncClient,
        heartbeat: Heartbeat,
        pace: Pace,
        saving: ThreadPoolExecutor | None = None,
        lease: Lease | None = None,
        patience_s: float = math.inf,
        *,
        stood_aside: bool = False,
    ) -> None:
        self._settings = settings
        self._pace = pace
        self._client = client
        self._heartbeat = heartbeat
        self._engine = engine = Engine(settings.engine_config(), choose_device(settings.device))
        self._lock = None
        if not (settings.standby or settings.checkpoints_in_store):  # there the fence decides
            self._lock = DirectoryLock(settings.data_dir / "checkpoints", "trainer")
        self._lease = lease or Lease(client, Keys(settings.model), settings.lease_s)
        self._feed = feed = Feed.of(settings, client, self._lease, self._gives_up, patience_s)
        pointer = Pointer(client, feed.keys, self._lease)
        self._place = place = place_of(settings, pointer)
        self._saver = saver = Saver(place, engine, saving, heartbeat.progress.saving)
        self._takeover = Takeover(
            feed, pointer, place, saver, heartbeat.progress, self._is_stopping
        )
        self._files = None
        if not settings.snapshots_in_redis:
            self._files = SnapshotFiles(settings.data_dir / "snapshots")
            self._files.sweep()  # the lock above is held
        self._archive = None
        if settings.archive_mib is not None:
            self._archive = Archive(settings.data_dir / ARCHIVE, settings.archive_mib * MIB)
        self._pulse = Pulse(self._lease, feed.keys.status, pace.status_s)
        self._stop_asked_at: float | None = None
        try:
            # Where there is no lock, another trainer may write until the fence is taken.
            self._assemble(None if self._lock is None else saver.recover())
        except BaseException:
            self._unlock()
            raise
        self._begun = False
        self._stood_aside = stood_aside
        self._is_whole = True  # no entry is being applied
        self._dying = False
        self._learned_at = time.monotonic()

    def _assemble(self, recovered: Progress | None) -> None:
        """Make what follows a model, beginning with what was kept of it."""
        settings, engine, feed, saver = self._settings, self._engine, self._feed, self._saver
        if recovered is None:
            self._now, totals = Standing.begun(engine.start()), Totals()
        else:
            self._now, totals = Standing.recovered(recovered), recovered.totals
        held, samples = self._now.position, self._now.state.stream.samples
        shadows = engine.config.shadows
        totals.detectors = detector_table.begun(totals.detectors, settings.detector, shadows)

        self._metrics = metrics = TrainerMetrics()
        self._journal = journal = Journal(feed, totals, metrics, settings.webhook_kinds)
        self._attempts, self._starts = Attempts(feed), Starts(feed)
        self._applier = Applier(settings, engine, feed, saver, journal)
        limits = Limits(settings.max_samples, settings.max_features)
        self._joining = Joining(settings.join_samples, limits)
        self._own_entries = OwnEntries(settings, engine, feed, samples)
        interval_s = settings.publish_interval_s
        self._publishing = PublishSchedule(engine, feed, self._files, journal, metrics, interval_s)
        parts = settings, saver, feed, journal, metrics
        keeping = held, self._archive, self._pace.checkpoints
        self._checkpoints = CheckpointSchedule(*parts, *keeping)
        progress = self._checkpoints.progress
        self._gatekeeper = Gatekeeper(settings, engine, saver, self._place, progress)
        shown = self._heartbeat, self._pulse, self._starts
        sources = settings, engine, feed, saver, journal, metrics
        self._reporter = Reporter(*sources, *shown, self._pace)
        due = self._own_entries, self._gatekeeper, self._publishing, self._checkpoints
        readers = feed, saver, self._archive, self._reporter
        self._house = Housekeeping(settings, self._pace, self._pulse, *due, *readers)
        self._webhook = self._sender()

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._settings.model

    @property
    def feed(self) -> Feed:
        """Its end of Redis, to read from."""
        return self._feed

    @property
    def lease(self) -> Lease:
        """By which it may change the model."""
        return self._lease

    @property
    def now(self) -> Standing:
        """Where the model stands."""
        return self._now

    @property
    def position(self) -> Position:
        """How far into the stream its state reaches."""
        return self._now.position

    @property
    def nbytes(self) -> int:
        """Bytes of the newest checkpoint: about what the state takes in memory, too."""
        return self._saver.nbytes

    @property
    def may_unload(self) -> bool:
        """Whether nothing waits that time alone would bring on."""
        state = self._now.state
        if self._joining.is_open or not self._gatekeeper.is_checked(state):
            return False
        return self._engine.is_settled(state) and not state.pending.awaiting.raw_samples

    # A life -----------------------------------------------------------------------

    def begin(self, patience_s: float | None = None) -> None:
        """Become the one that may change the model.

        Arguments:
            patience_s: Seconds to wait for the lease of a trainer that is gone to run out; None:
                as long as that takes.

        Raises:
            InvalidSettings: Another trainer works on this model, or entries are missing.
            StreamUnavailable: Redis stayed away, or it was asked to stop while that was away.
        """
        patience_s = self._lease.seconds + 1 if patience_s is None else patience_s
        self._take_lease(patience_s)
        self._heartbeat.add(self._pulse)
        self._take_fence(patient=patience_s > 0)
        self._open()
        self._webhook.__enter__()
        self._begun = True

    def expect(self, entries: Sequence[Entry]) -> None:
        """Entries that come next, as they were read."""
        self._attempts.expect(entries)

    def learn(self, entry: Entry, *, more: bool, crowded: bool = False) -> None:
        """Apply the next entry, or keep it for those that belong to it; look after what is due.

        Arguments:
            entry: As it came.
            more: Whether others wait behind it; without, whoever sent it soon has the model.
            crowded: Whether entries of any model wait.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._take(entry)
        if self._joining.would_gain(entry, more=more):
            logger.warning(
                "batches of %d samples and less wait for each other; GMR_JOIN_SAMPLES=100 lets "
                "those that wait be learned as one, in a fraction of the time",
                FEW,
            )
        if self._joining.is_open and not more:
            self._own_entries.join()
        at_once = not (more or self._joining.is_open or self._pace.asks)
        if at_once:
            at_once = self._house.is_time_to_publish(self._now, quiet=self._is_quiet())
        self._keep_house(at_once=at_once, crowded=crowded)

    def read_again(self) -> None:
        """Go back to where the model stands. Not while a read is under way."""
        self._joining.drop()
        self._feed.go_back(self._now.position)

    def rest(self, *, crowded: bool = False) -> None:
        """Look after what is due while no entry waits.

        Arguments:
            crowded: Whether entries of other models wait.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._attempts.done()
        if self._is_quiet(CALM_S):
            self._starts.clear()
        if self._joining.is_open:
            self._own_entries.join()
        else:
            self._own_entries.settle(self._now.state, quiet=self._is_quiet())
        self._keep_house(crowded=crowded)

    def ring(self) -> None:
        """Say that readers want something."""
        self._house.ring()

    def stop(self) -> None:
        """Prepare for an orderly end: calls of Redis wait no longer for ever."""
        if self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()

    def end(self, phase: str = "stopped") -> None:
        """Learn what is in the stream already, as far as time allows; publish, keep, let go.

        Arguments:
            phase: What the status says afterwards.

        Raises:
            StreamUnavailable: Redis is away.
            LeaseLost: Another trainer has taken over.
        """
        self.stop()
        self._drain()
        if not self._gatekeeper.is_checked(self._now.state):
            self._own_entries.check()
            self._drain()
        self._finish(phase)

    def fall(self, error: Exception) -> None:
        """Leave behind what the next trainer must know of an end by an error."""
        if isinstance(error, StreamUnavailable):
            # What a checkpoint holds is safe, and what it does not hold is in the stream, and is
            # reported when it is read again.
            logger.warning("stopping without Redis: %s", error)
            good = self._gatekeeper.good(self._now)
            told = self._is_whole and not self._feed.reports.waiting
            if told and self._checkpoints.is_behind(good):
                self._checkpoints.save_without_redis(good)
            self._saver.wait()
        elif self._begun and not isinstance(error, LeaseLost):
            self._dying = True  # so that nothing waits for Redis any more
            with suppress(StreamUnavailable, LeaseLost):
                self._attempts.died(error)

    def close(self) -> None:
        """Let go of threads and of the folder."""
        if self._begun:
            self._webhook.__exit__(None, None, None)
        self._heartbeat.remove(self._pulse)
        for budget in (self._pace.house, self._pace.checkpoints):
            if budget is not None:
                budget.left(self.model)
        self._saver.close()
        if self._archive is not None:
            self._archive.close()
        self._unlock()

    def give_up_lease(self) -> None:
        """Let another begin at once. Nothing may be written any more."""
        self._lease.release()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    # Phases ---------------------------------------------------------------------

    def _take_lease(self, patience_s: float) -> None:
        if not self._lease.held:
            self._feed.call(lambda: self._lease.acquire(patience_s))

    def _take_fence(self, *, patient: bool) -> None:
        try:
            epoch = self._takeover.take_fence(patient=patient)
            if self._lock is None:
                self._assemble(self._takeover.recover(patient=patient))
        except (InvalidSettings, StoreUnavailable):
            self._lease.release()
            raise
        logger.info("epoch %d of model %r", epoch, self._settings.model)

    def _sender(self) -> AbstractContextManager[object]:
        """Tells the webhook, if there is one."""
        url, secret = self._settings.webhook_url, self._settings.webhook_secret
        if url is None or secret is None:
            return nullcontext()
        receiver = Receiver(url.get_secret_value(), key_of(secret.get_secret_value()))
        deliveries = self._metrics.webhook_deliveries
        return WebhookSender(self._client, self._feed.keys, self._lease, receiver, deliveries)

    def _open(self) -> None:
        held = self._now.position
        position = self._feed.open(held)
        self._starts.begin()
        gap = find_gap(self._feed, held, position)
        if gap is not None:
            self._accept(gap)
        self._attempts.open(position, died=not self._stood_aside)
        samples = self._now.ledger.since, self._now.ledger.accepted
        self._checkpoints.open(position if gap is None else Position(), samples)
        self._now = replace(self._now, position=position)
        self._publishing.open()
        told = self._gatekeeper.begin(self._now)
        self._now = replace(self._now, gate=self._gatekeeper.gate)
        self._journal.write(position.last_entry_id, told, first=LAST_REPORT - 1)
        self._reporter.features(self._now.state)
        self._reporter.versions()
        self._reporter.branch(self._now.branch, position.last_entry_id)
        logger.info(
            "model %r, version %d, %s, after entry %s (%d entries)",
            self._settings.model,
            self._now.state.model.version,
            self._engine.device,
            position.last_entry_id,
            position.entries_applied,
        )
        if said := too_short(self._now.state.watch.ert or self._engine.config.ert):
            logger.warning(said)
        self._reporter.phase = "running"
        self._keep_house(at_once=True)

    def _accept(self, gap: EntriesLost) -> None:
        """Go on without what is lost, if that was asked for."""
        try:
            check_accepted(gap, self._settings.accept_loss, self._place.place)
        except InvalidSettings as error:
            self._reporter.phase = "refused"
            self._reporter.report(self._now, str(error), at_once=True)
            self._lease.release()
            raise
        self._now = self._now.without(gap, self._feed.samples_released())
        self._journal.write(next_id(gap.last_entry_id), [gap])
        self._checkpoints.soon()

    def _drain(self) -> None:
        assert self._stop_asked_at is not None
        end = self._stop_asked_at + self._settings.drain_timeout_s
        self._reporter.phase = "draining"
        logger.info("stopping: learning what is in the stream")
        self.read_again()
        while time.monotonic() < end:
            entries = self._feed.read(block_ms=0)
            if not entries and not self._joining.is_open:
                break
            if not entries:
                self._own_entries.join()
                continue
            self._attempts.expect(entries)
            for entry in entries:
                if time.monotonic() >= end:
                    break
                self._take(entry)
                self._keep_house()
        self._joining.drop()  # the next trainer reads it again

    def _finish(self, phase: str) -> None:
        self._attempts.done()
        self._starts.clear()
        self._publishing.soon()
        self._keep_house(at_once=True)
        self._checkpoints.finish(self._gatekeeper.good(self._now))
        self._reporter.versions()
        self._reporter.phase = phase
        self._keep_house(at_once=True)
        self._lease.release()
        logger.info(
            "stopped at version %d after entry %s",
            self._now.state.model.version,
            self._now.position.last_entry_id,
        )

    # One entry, or several as one -----------------------------------------------

    def _take(self, entry: Entry) -> None:
        """Take the next entry: learn what it completes."""
        for group in self._joining.add(entry):
            if not group.parts or not self._learn_joined(group):
                for one in group.apart():
                    self._learn(one)

    def _learn_joined(self, group: Group) -> bool:
        """Learn the batches of several entries as one, where that can be done."""
        if not self._attempts.begin_together(group.entries):
            self._checkpoints.soon()
            return False
        started, before = time.perf_counter(), self._now
        self._is_whole = False
        try:
            applied = self._applier.apply(before, group.last, group.batch)
        except (StreamUnavailable, LeaseLost):
            raise
        except Exception as error:
            if is_machines(error):
                raise
            # A state is replaced only after success, so this one is whole. Each entry by itself
            # tells which of them is at fault.
            self._is_whole = True
            first, last = group.entries[0].id, group.last.id
            logger.warning("entries %s to %s cannot be learned as one: %s", first, last, error)
            return False
        self._dealt_with(group, before, applied, self._adopt(group, before, applied))
        self._metrics.step_duration.observe(time.perf_counter() - started)
        return True

    def _learn(self, group: Group) -> None:
        """Apply one entry, or reject it. Either way it is dealt with."""
        started = time.perf_counter()
        before, applied, entry = self._now, None, group.last
        told: list[Event] = []  # of the gate
        given_up = self._attempts.begin(entry)
        self._is_whole = False
        try:
            if not given_up:
                applied = self._applier.apply(before, entry)
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
            self._checkpoints.soon()
        elif applied is not None:
            told += self._adopt(group, before, applied)
        self._dealt_with(group, before, applied, told)
        self._metrics.step_duration.observe(time.perf_counter() - started)

    def _dealt_with(
        self, group: Group, before: Standing, applied: Applied | None, told: list[Event]
    ) -> None:
        """Go on behind entries, whatever came of them."""
        entry = group.last
        if self._archive is not None:
            records = records_of(group, before.position, applied)
            self._archive.append(
                records, lambda: self._saver.dump(self._checkpoints.progress(before))
            )
        self._own_entries.read(entry, applied=applied is not None)
        self._tell_readers(entry, before)
        self._now = self._now.after(group.entries)
        self._pass_gate(entry, applied, told)
        for one in group.entries:
            self._checkpoints.read(one)
        self._is_whole = True
        self._learned_at = time.monotonic()
        self._heartbeat.progress.went_on()
        self._starts.applied(self._now.position.entries_applied)

    def _adopt(self, group: Group, before: Standing, applied: Applied) -> list[Event]:
        """Go on from what came of entries, and report it; what the gate has to say comes later."""
        self._now, told, entry = applied.now, list[Event](), group.last
        state = self._now.state
        if applied.restored is not None:
            version, origin = applied.restored.version, applied.restored.origin
            self._saver.restored(version, origin, before.position.entries_applied + 1)
            self._publishing.restored()
            self._reporter.features(state)
            self._checkpoints.soon()
        elif entry.text("kind") == "mode":
            self._publishing.soon()
        for event in applied.events:
            if isinstance(event, BoundaryDetected):
                branch = self._now.branch
                told += self._gatekeeper.crossing(before, entry)
                left = replace(before, branch=branch, gate=self._gatekeeper.gate)
                self._checkpoints.save_before(left, event.boundary)
                branch = replace(branch, boundaries=branch.boundaries + 1)
                self._now = replace(self._now, branch=branch)
                self._publishing.soon()
            elif isinstance(event, OutlierBurst):
                self._journal.quarantine(entry.id, state.pending.quarantined)
        by, began = entry.text("by"), group.entries[0].id
        self._journal.write(entry.id, applied.events, by=by, began=began)
        again, outliers = entry.text(REQUEUED_FROM), state.pending.quarantined
        of_entry = again, applied.events, outliers, state.stream, group.samples
        ledger = self._now.ledger.applied(entry.id, *of_entry)
        self._now = replace(self._now, ledger=ledger)
        return told

    def _pass_gate(self, entry: Entry, applied: Applied | None, told: list[Event]) -> None:
        """Let the gate judge what has come of an entry, where that is due.

        Arguments:
            entry: Which was dealt with.
            applied: What came of it; None where it was rejected.
            told: What the gate had to say before.
        """
        events = [] if applied is None else applied.events
        crossed = any(isinstance(event, BoundaryDetected) for event in events)
        restored = None if applied is None else applied.restored
        told = [*told, *self._gatekeeper.applied(self._now, entry, restored, crossed=crossed)]
        self._now = replace(self._now, gate=self._gatekeeper.gate)
        # A rejection is two events at most.
        self._journal.write(entry.id, told, first=2 if applied is None else len(events))
        if told:
            self._checkpoints.soon()
        if told or entry.text("kind") == "check":
            self._publishing.soon()
        if self._gatekeeper.asked is not None:
            self._publishing.take(*self._gatekeeper.asked)
            self._gatekeeper.asked = None

    def _reject(self, entry: Entry, reason: str, detail: str) -> None:
        samples = self._journal.reject(entry, reason, detail)
        ledger = self._now.ledger.refused(entry.text(REQUEUED_FROM), samples)
        self._now = replace(self._now, ledger=ledger)

    def _tell_readers(self, entry: Entry, before: Standing) -> None:
        """Say what the API must know of a state before it takes in more, where that changed."""
        state, kind = self._now.state, entry.text("kind")
        if state.n_features != before.state.n_features:
            self._reporter.features(state)
        elif (
            state is before.state
            and state.n_features is self._settings.n_features is None
            and kind in ("batch", "restore")
        ):
            # Rejected, and the first of all: it must not decide on D.
            self._reporter.no_features()
        if kind in ("rollback", "restore"):
            self._reporter.branch(self._now.branch, entry.id)

    # Housekeeping ---------------------------------------------------------------

    def _keep_house(self, *, at_once: bool = False, crowded: bool = False) -> None:
        """Report, publish, write down: whatever is due."""
        quiet, stopping = self._is_quiet(), self._stop_asked_at is not None
        self._now = self._house.look(
            self._now, quiet=quiet, stopping=stopping, at_once=at_once, crowded=crowded
        )

    def _is_quiet(self, seconds: float | None = None) -> bool:
        wanted = self._settings.settle_after_s if seconds is None else seconds
        return time.monotonic() - self._learned_at >= wanted

    def _is_stopping(self) -> bool:
        return self._stop_asked_at is not None

    def _gives_up(self) -> bool:
        """Whether a call of Redis should fail instead of waiting on."""
        if self._dying:
            return True
        asked_at = self._stop_asked_at
        return asked_at is not None and time.monotonic() - asked_at > REDIS_GRACE_S


def _reason(error: GMRError) -> str:
    """A short name for a kind of error, as a label: `ShapeMismatch` is `shape_mismatch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
