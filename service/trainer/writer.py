"""The single writer of one model: entries -> engine -> snapshots, events, checkpoints.

Which entry comes next is for `service.trainer.host` to say, which leads one writer or a thousand.
Here is the life of a writer: how it becomes the only one, goes on, and ends. Its parts are put
together in `assembly`. Entries are taken in by `intake`, and what one does to the model is in
`applier`; what is due besides is decided by the schedules (`own_entries`, `publish_schedule`,
`checkpoint_schedule`) and told by the `reporter`.

Rules of this module:

1. What changes the model is an entry of the input stream, so that reading the same
   stream gives the same model. The trainer's own decision that the stream is quiet
   is an entry too: it appends one and reads it like any other. So is the one to join what
   waits (`joining`).
2. Entries are let go only when two checkpoints that contain them are on disk. Recovery
   is: load the newest that can be read, read on.
3. Events come before the notice that the model which they speak of is served:
   whoever sees a backlog of 0 finds every boundary reported.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final

from core.config import too_short
from core.engine.engine import Engine
from core.errors import InvalidSettings
from core.events import EntriesLost
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
from service.settings import MIB, Settings
from service.signature import key_of
from service.store.kept import StoreUnavailable
from service.trainer.assembly import Assembly
from service.trainer.device import choose_device
from service.trainer.gap import check_accepted, find_gap
from service.trainer.heartbeat import Heartbeat, Pulse
from service.trainer.intake import Intake
from service.trainer.joining import FEW
from service.trainer.pace import Pace
from service.trainer.saver import Checkpoint, Saver
from service.trainer.standing import Standing
from service.trainer.takeover import Takeover, place_of
from service.trainer.totals import Totals
from service.webhook.receiver import Receiver
from service.webhook.sender import WebhookSender

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
        self._saver = saver = Saver(
            place, engine, saving, heartbeat.activity.saving, feed.kept_versions.let_go
        )
        self._takeover = Takeover(
            feed, pointer, place, saver, heartbeat.activity, self._is_stopping
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
        self._dying = False

    def _assemble(self, recovered: Checkpoint | None) -> None:
        """Make what follows a model, beginning with what was kept of it."""
        if recovered is None:
            now, totals = Standing.begun(self._engine.start()), Totals()
        else:
            now, totals = Standing.recovered(recovered), recovered.totals
        self._parts = Assembly.of(
            settings=self._settings,
            engine=self._engine,
            feed=self._feed,
            saver=self._saver,
            store=self._place,
            files=self._files,
            archive=self._archive,
            heartbeat=self._heartbeat,
            pulse=self._pulse,
            pace=self._pace,
            now=now,
            totals=totals,
        )
        self._intake = Intake(self._parts, now, self._heartbeat.activity)
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
        return self._intake.now

    @property
    def position(self) -> Position:
        """How far into the stream its state reaches."""
        return self._intake.now.position

    @property
    def nbytes(self) -> int:
        """Bytes of the newest checkpoint: about what the state takes in memory, too."""
        return self._saver.nbytes

    @property
    def may_unload(self) -> bool:
        """Whether nothing waits that time alone would bring on."""
        state = self._intake.now.state
        if self._parts.joining.is_open or not self._parts.gatekeeper.is_checked(state):
            return False
        return self._engine.is_settled(state) and not state.pending.awaiting.raw_samples

    @property
    def has_to_tell(self) -> bool:
        """Whether the webhook has not been told everything yet."""
        return self._webhook is not None and self._webhook.is_behind

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
        if self._webhook is not None:
            self._webhook.__enter__()
        self._begun = True

    def expect(self, entries: Sequence[Entry]) -> None:
        """Entries that come next, as they were read."""
        self._parts.attempts.expect(entries)

    def learn(self, entry: Entry, *, more: bool, crowded: bool = False) -> None:
        """Apply the next entry, or keep it for those that belong to it; look after what is due.

        Arguments:
            entry: As it came.
            more: Whether others wait behind it; without, whoever sent it soon has the model.
            crowded: Whether entries of any model wait.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._intake.take(entry)
        if self._parts.joining.would_gain(entry, more=more):
            logger.warning(
                "batches of %d samples and less wait for each other; GMR_JOIN_SAMPLES=100 lets "
                "those that wait be learned as one, in a fraction of the time",
                FEW,
            )
        if self._parts.joining.is_open and not more:
            self._parts.own_entries.join()
        at_once = not (more or self._parts.joining.is_open or self._pace.asks)
        if at_once:
            at_once = self._parts.house.is_time_to_publish(self._intake.now, quiet=self._is_quiet())
        self._keep_house(at_once=at_once, crowded=crowded)

    def read_again(self) -> None:
        """Go back to where the model stands. Not while a read is under way."""
        self._parts.joining.drop()
        self._feed.go_back(self._intake.now.position)

    def idle(self, *, crowded: bool = False) -> None:
        """Look after what is due while no entry waits.

        Arguments:
            crowded: Whether entries of other models wait.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._parts.attempts.done()
        if self._is_quiet(CALM_S):
            self._parts.starts.clear()
        if self._parts.joining.is_open:
            self._parts.own_entries.join()
        else:
            self._parts.own_entries.settle(self._intake.now.state, quiet_s=self._quiet_s)
        self._keep_house(crowded=crowded)

    def ring(self) -> None:
        """Say that readers want something."""
        self._parts.house.ring()

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
        if not self._parts.gatekeeper.is_checked(self._intake.now.state):
            self._parts.own_entries.check()
            self._drain()
        self._finish(phase)

    def fall(self, error: Exception) -> None:
        """Leave behind what the next trainer must know of an end by an error."""
        if isinstance(error, StreamUnavailable):
            # What a checkpoint holds is safe, and what it does not hold is in the stream, and is
            # reported when it is read again.
            logger.warning("stopping without Redis: %s", error)
            good = self._parts.gatekeeper.good(self._intake.now)
            all_reported = self._intake.is_whole and not self._feed.reports.waiting
            if all_reported and self._parts.checkpoints.is_behind(good):
                self._parts.checkpoints.save_without_redis(good)
            self._saver.wait()
        elif self._begun and not isinstance(error, LeaseLost):
            self._dying = True  # so that nothing waits for Redis any more
            with suppress(StreamUnavailable, LeaseLost):
                self._parts.attempts.died(error)

    def close(self) -> None:
        """Let go of threads and of the folder."""
        if self._begun and self._webhook is not None:
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

    def _sender(self) -> WebhookSender | None:
        """Tells the webhook, if there is one."""
        url, secret = self._settings.webhook_url, self._settings.webhook_secret
        if url is None or secret is None:
            return None
        receiver = Receiver(url.get_secret_value(), key_of(secret.get_secret_value()))
        deliveries = self._parts.metrics.webhook_deliveries
        return WebhookSender(self._client, self._feed.keys, self._lease, receiver, deliveries)

    def _open(self) -> None:
        held = self._intake.now.position
        position = self._feed.open(held)
        self._parts.starts.begin()
        gap = find_gap(self._feed, held, position)
        if gap is not None:
            self._accept(gap)
        self._parts.attempts.open(position, died=not self._stood_aside)
        samples = self._intake.now.ledger.since, self._intake.now.ledger.accepted
        self._parts.checkpoints.open(position if gap is None else Position(), samples)
        self._intake.now = replace(self._intake.now, position=position)
        self._parts.publishing.open()
        gate_events = self._parts.gatekeeper.begin(self._intake.now)
        self._intake.now = replace(self._intake.now, gate=self._parts.gatekeeper.gate)
        self._parts.journal.write(position.last_entry_id, gate_events, first=LAST_REPORT - 1)
        self._parts.reporter.features(self._intake.now.state)
        self._feed.kept_versions.tell({one["version"] for one in self._saver.versions()})
        self._parts.reporter.versions()
        self._parts.reporter.branch(self._intake.now.branch, position.last_entry_id)
        logger.info(
            "model %r, version %d, %s, after entry %s (%d entries)",
            self._settings.model,
            self._intake.now.state.model.version,
            self._engine.device,
            position.last_entry_id,
            position.entries_applied,
        )
        if warning := too_short(self._intake.now.state.watch.ert or self._engine.config.ert):
            logger.warning(warning)
        self._parts.reporter.phase = "running"
        self._keep_house(at_once=True)

    def _accept(self, gap: EntriesLost) -> None:
        """Go on without what is lost, if that was asked for."""
        try:
            check_accepted(gap, self._settings.accept_loss, self._place.place)
        except InvalidSettings as error:
            self._parts.reporter.phase = "refused"
            self._parts.reporter.report(self._intake.now, str(error), at_once=True)
            self._lease.release()
            raise
        self._intake.now = self._intake.now.without(gap, self._feed.samples_released())
        self._parts.journal.write(next_id(gap.last_entry_id), [gap])
        self._parts.checkpoints.soon()

    def _drain(self) -> None:
        assert self._stop_asked_at is not None
        end = self._stop_asked_at + self._settings.drain_timeout_s
        self._parts.reporter.phase = "draining"
        logger.info("model %r: learning what is left in the stream", self._settings.model)
        self.read_again()
        while time.monotonic() < end:
            entries = self._feed.read(block_ms=0)
            if not entries and not self._parts.joining.is_open:
                break
            if not entries:
                self._parts.own_entries.join()
                continue
            self._parts.attempts.expect(entries)
            for entry in entries:
                if time.monotonic() >= end:
                    break
                self._intake.take(entry)
                self._keep_house()
        self._parts.joining.drop()  # the next trainer reads it again

    def _finish(self, phase: str) -> None:
        self._parts.attempts.done()
        self._parts.starts.clear()
        self._parts.publishing.soon()
        self._keep_house(at_once=True)
        self._parts.checkpoints.finish(self._parts.gatekeeper.good(self._intake.now))
        self._parts.reporter.versions()
        self._parts.reporter.phase = phase
        self._keep_house(at_once=True)
        self._lease.release()
        logger.info(
            "model %r is %s, version %d, after entry %s",
            self._settings.model,
            phase,
            self._intake.now.state.model.version,
            self._intake.now.position.last_entry_id,
        )

    # Housekeeping ---------------------------------------------------------------

    def _keep_house(self, *, at_once: bool = False, crowded: bool = False) -> None:
        """Report, publish, write down: whatever is due."""
        quiet, stopping = self._is_quiet(), self._stop_asked_at is not None
        self._intake.now = self._parts.house.look(
            self._intake.now, quiet=quiet, stopping=stopping, at_once=at_once, crowded=crowded
        )

    def _is_quiet(self, seconds: float | None = None) -> bool:
        return self._quiet_s >= (self._settings.settle_after_s if seconds is None else seconds)

    @property
    def _quiet_s(self) -> float:
        """Seconds since the last entry."""
        return time.monotonic() - self._intake.learned_at

    def _is_stopping(self) -> bool:
        return self._stop_asked_at is not None

    def _gives_up(self) -> bool:
        """Whether a call of Redis should fail instead of waiting on."""
        if self._dying:
            return True
        asked_at = self._stop_asked_at
        return asked_at is not None and time.monotonic() - asked_at > REDIS_GRACE_S
