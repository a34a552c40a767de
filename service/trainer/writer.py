"""The single writer of one model: entries -> engine -> snapshots, events, checkpoints.

Which entry comes next is for `service.trainer.host` to say, which leads one writer or a thousand.

Rules of this module:

1. What changes the model is an entry of the input stream, so that reading the same
   stream gives the same model. The trainer's own decision that the stream is quiet
   is an entry too: it appends one and reads it like any other.
2. Entries are let go only when two checkpoints that contain them are on disk. Recovery
   is: load the newest that can be read, read on.
3. One bad entry must not stop the stream: it is set aside with the reason, and so is one
   by which the process keeps dying. For faults of the machine none is: the process ends,
   and the next one reads the entry again.
4. Events come before the notice that the model which they speak of is served:
   whoever sees a backlog of 0 finds every boundary reported.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Final

import orjson
import torch

from core.batch import Batch
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import EmptySubTask, GMRError, InvalidSettings, ModelNotReady
from core.events import BoundaryDetected, EntriesLost, Event, ModelPublished, OutlierBurst
from core.memory.proposals import Proposal
from core.memory.retention import summary
from core.snapshot import Snapshot
from service.broker.branch import Branch
from service.broker.connection import StreamUnavailable, SyncClient, patiently, unavailable
from service.broker.feed import LAST_REPORT, Entry, Feed, LeaseLost, Position, next_id
from service.broker.keys import Keys
from service.broker.lease import LEASE_S, DirectoryLock, Lease
from service.broker.snapshots import Publisher, SnapshotFiles
from service.checkpoints import Checkpoints
from service.settings import MIB, Settings
from service.signature import key_of
from service.trainer import key_shares
from service.trainer.attempts import Attempts
from service.trainer.device import choose_device
from service.trainer.faults import is_machines, is_out_of_memory, make_room
from service.trainer.gap import check_accepted, find_gap
from service.trainer.heartbeat import Heart, Pulse
from service.trainer.journal import Journal, Totals, encode_status
from service.trainer.label_wait import LabelWait
from service.trainer.ledger import Ledger
from service.trainer.metrics import TrainerMetrics
from service.trainer.releases import Releases
from service.trainer.retention_schedule import RetentionSchedule
from service.trainer.run_time_target import RunTimeTarget
from service.trainer.saver import Progress, Saver
from service.trainer.starts import Starts
from service.trainer.status import facts_of
from service.webhook.courier import Courier
from service.webhook.receiver import Receiver
from service.wire import (
    REQUEUED_FROM,
    Control,
    Limits,
    RawBatch,
    RawLabels,
    RawName,
    read_entry,
)

logger = logging.getLogger(__name__)

REDIS_GRACE_S: Final = 2.0
"""Seconds to wait for a Redis that is away when the trainer is to stop."""

PUBLISHING_SHARE: Final = 0.1
"""Share of the time that publishing may take: a large model is published less often."""

CALM_S: Final = 2.0
"""Seconds without an entry after which there is none: a read takes a quarter of one."""

MEMORY_PAUSES_S: Final = (0.1, 0.5, 2.0)
"""Before an entry for which there was no room is tried again: others may let go of some."""

ENDED: Final = ("stopped", "unloaded")
"""Phases after which nothing more is reported."""

NEVER: Final = -math.inf


@dataclass(frozen=True)
class Pace:
    """How often a writer looks after what is not learning.

    Arguments:
        house_s: Seconds between two rounds of reporting, publishing and keeping, at least.
        status_s: Seconds after which the status is sent again although nothing came.
        metrics_s: Seconds between two texts of metrics, at least.
        asks: Whether it asks Redis itself what readers want; else it is told (`ring`).
    """

    house_s: float
    status_s: float
    metrics_s: float = 0.0
    asks: bool = True


SAME_AGAIN_S: Final = 60.0
"""Seconds after which metrics that have not changed are sent again."""

ALONE: Final = Pace(0.1, 3.0)
AMONG_MANY: Final = Pace(0.5, 10.0, 5.0, asks=False)


class ModelWriter:
    """Applies the entries of one model's stream, in the order in which they are given to it.

    Between `begin` and `end` it is the one that may change the model. `close` comes last,
    whatever has happened.

    Arguments:
        settings: Of this model.
        client: Connection to Redis that threads may share.
        heart: Shows that it lives, and keeps its lease.
        pace: How often it reports.
        saving: Thread on which checkpoints are written, of one worker; None for one of its own.
        lease: Of the model, where it was taken before.

    Raises:
        InvalidSettings: They cannot work: no such device, a data dir in use, or a checkpoint of
            another kind of model.
    """

    def __init__(
        self,
        settings: Settings,
        client: SyncClient,
        heart: Heart,
        pace: Pace,
        saving: ThreadPoolExecutor | None = None,
        lease: Lease | None = None,
    ) -> None:
        self._settings = settings
        self._pace = pace
        self._limits = Limits(settings.max_samples, settings.max_features)
        self._engine = Engine(settings.engine_config(), choose_device(settings.device))
        self._lock = None
        if not settings.standby:  # else the lease alone decides
            self._lock = DirectoryLock(settings.data_dir / "checkpoints", "trainer")
        checkpoints = Checkpoints(settings.data_dir / "checkpoints")
        self._keeper = Saver(checkpoints, self._engine, saving)
        self._client = client
        self._lease = lease or Lease(client, Keys(settings.model))
        self._feed = Feed(
            client,
            settings.model,
            self._lease,
            events_length=settings.events_length,
            history_length=settings.history_length,
            give_up=self._gives_up,
            dead_letters_length=settings.dead_letters_length,
            dead_letters_bytes=settings.dead_letters_mib * MIB,
        )
        files = None
        if not settings.snapshots_in_redis:
            files = SnapshotFiles(settings.data_dir / "snapshots")
            files.sweep()  # the lock above is held
        self._attempts = Attempts(self._feed)
        self._starts = Starts(self._feed)
        self._publisher = Publisher(self._feed, files)
        self._look_back = RetentionSchedule(self._engine)
        self._metrics = TrainerMetrics()

        try:
            recovered = self._keeper.recover()
        except BaseException:
            self._unlock()
            raise
        self._state = self._engine.start() if recovered is None else recovered.state
        self._position = Position() if recovered is None else recovered.position
        self._branch = Branch() if recovered is None else recovered.branch
        ledger = None if recovered is None else recovered.ledger
        self._ledger = ledger or Ledger.begun(self._state, self._position)
        self._accounted: Position | None = None
        self._fates: dict[str, bytes] = {}  # as they were told last
        totals = Totals() if recovered is None else recovered.totals
        self._journal = Journal(self._feed, totals, self._metrics, settings.webhook_kinds)
        if self._keeper.checkpoint_time is not None:
            self._metrics.checkpoint_timestamp.set(self._keeper.checkpoint_time)

        self._heart = heart
        self._pulse = Pulse(self._lease, self._feed.keys.status, pace.status_s)
        self._webhook = self._courier()
        self._phase = "starting"
        self._begun = False
        self._rung = True  # something may have been wanted before
        self._stop_asked_at: float | None = None
        self._dying = False
        self._error: str | None = None
        self._settling = False  # an entry to settle was appended since the last batch
        self._learned_at = time.monotonic()
        self._label_wait = LabelWait(settings.label_wait_s)
        self._expiring: int | None = None  # place in the stream of the expire entry appended last
        self._proposals: tuple[Proposal, ...] | None = None  # as they were told last
        self._house_at = NEVER
        self._aim = None
        if settings.ert_seconds is not None:
            seen = self._state.stream.samples
            self._aim = RunTimeTarget(settings.ert_seconds, seen, time.monotonic())
        self._aimed: int | None = None  # that an entry was appended for, not read yet

        self._reported: Position | None = None
        self._reported_at = self._metrics_at = self._metrics_told_at = NEVER
        self._metrics_text = b""
        self._redis_errors = 0

        self._published: tuple[int, Position] | None = None  # version, and what it contains
        self._published_version = 0  # 0 until there is a model
        self._served_entries = 0  # that the model of before this start held
        self._published_at = NEVER
        self._publishing_s = 0.0  # that it took last time
        self._publish_now = True

        self._kept = self._position  # of the newest checkpoint on disk
        self._saved_at = time.monotonic()
        self._save_now = False
        self._releases = Releases(self._feed)
        self._unsaved_bytes = 0

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._settings.model

    @property
    def feed(self) -> Feed:
        """Its end of Redis, to read from."""
        return self._feed

    @property
    def token(self) -> str:
        """Of its lease."""
        return self._lease.token

    @property
    def position(self) -> Position:
        """How far into the stream its state reaches."""
        return self._position

    @property
    def nbytes(self) -> int:
        """Bytes of the newest checkpoint: about what the state takes in memory, too."""
        return self._keeper.nbytes

    @property
    def may_unload(self) -> bool:
        """Whether nothing waits that time alone would bring on."""
        return self._engine.is_settled(self._state) and not self._state.pending.awaiting.raw_samples

    # A life -----------------------------------------------------------------------

    def begin(self, patience_s: float = LEASE_S + 1) -> None:
        """Become the one that may change the model.

        Arguments:
            patience_s: Seconds to wait for the lease of a trainer that is gone to run out.

        Raises:
            InvalidSettings: Another trainer works on this model, or entries are missing.
            StreamUnavailable: It was asked to stop while Redis was away.
        """
        self._take_lease(patience_s)
        self._heart.add(self._pulse)
        self._open()
        self._webhook.__enter__()
        self._begun = True

    def expect(self, entries: Sequence[Entry]) -> None:
        """Entries that come next, as they were read."""
        self._attempts.expect(entries)

    def learn(self, entry: Entry, *, more: bool) -> None:
        """Apply the next entry, and look after what is due.

        Arguments:
            entry: As it came.
            more: Whether others wait behind it; without, whoever sent it soon has the model.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._learn(entry)
        self._keep_house(now=not more and not self._pace.asks and self._is_time_to_publish())

    def rest(self) -> None:
        """Look after what is due while no entry waits.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        self._attempts.done()
        if self._is_quiet(CALM_S):
            self._starts.settle()
        self._settle_when_quiet()
        self._keep_house()

    def ring(self) -> None:
        """Say that readers want something."""
        self._rung = True

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
        self._finish(phase)

    def fall(self, error: Exception) -> None:
        """Leave behind what the next trainer must know of an end by an error."""
        if isinstance(error, StreamUnavailable):
            # What a checkpoint holds is safe, and what it does not hold is in the stream, and is
            # reported when it is read again.
            logger.warning("stopping without Redis: %s", error)
            if self._position != self._kept and not self._feed.has_reports:
                self._keeper.save(self._progress(self._state))
            self._keeper.wait()
        elif self._begun and not isinstance(error, LeaseLost):
            self._dying = True  # so that nothing waits for Redis any more
            with suppress(StreamUnavailable, LeaseLost):
                self._attempts.died(error)

    def close(self) -> None:
        """Let go of threads and of the folder."""
        if self._begun:
            self._webhook.__exit__(None, None, None)
        self._heart.remove(self._pulse)
        self._keeper.close()
        self._unlock()

    def give_up_lease(self) -> None:
        """Let another begin at once. Nothing may be written any more."""
        self._lease.release()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    # Phases ---------------------------------------------------------------------

    def _take_lease(self, patience_s: float) -> None:
        if self._lease.held:
            return

        def failed(error: Exception) -> None:
            if self._is_stopping():
                raise unavailable(error) from error
            logger.warning("waiting for Redis: %s", error)

        patiently(lambda: self._lease.acquire(patience_s), failed)

    def _courier(self) -> AbstractContextManager[object]:
        """Tells the webhook, if there is one."""
        url, secret = self._settings.webhook_url, self._settings.webhook_secret
        if url is None or secret is None:
            return nullcontext()
        receiver = Receiver(url.get_secret_value(), key_of(secret.get_secret_value()))
        deliveries = self._metrics.webhook_deliveries
        return Courier(self._client, self._feed.keys, self._lease, receiver, deliveries)

    def _open(self) -> None:
        position = self._feed.open(self._position)
        self._starts.begin()
        gap = find_gap(self._feed, self._position, position)
        if gap is not None:
            self._accept(gap)
        self._attempts.open(position)
        samples = self._ledger.since, self._ledger.accepted
        self._releases.open(position if gap is None else Position(), samples)
        self._kept, self._position = self._position, position
        self._served_entries = self._feed.served_entries()
        self._report_features()
        self._report_versions()
        self._report_branch(position.last_entry_id)
        logger.info(
            "model %r, version %d, %s, after entry %s (%d entries)",
            self._settings.model,
            self._state.model.version,
            self._engine.device,
            position.last_entry_id,
            position.entries_applied,
        )
        self._phase = "running"
        self._keep_house(now=True)

    def _accept(self, gap: EntriesLost) -> None:
        """Go on without what is lost, if that was asked for."""
        try:
            check_accepted(gap, self._settings.accept_loss, self._settings.data_dir)
        except InvalidSettings as error:
            self._phase, self._error = "refused", str(error)
            self._report_if_due(True)
            self._lease.release()
            raise
        self._branch = self._branch.lost(gap.first_entry_id, gap.last_entry_id)
        released = self._feed.samples_released()
        known = released is not None and released[0] == self._ledger.since
        self._ledger = self._ledger.went_missing(gap, released[1] if released and known else None)
        self._journal.write(next_id(gap.last_entry_id), [gap])
        self._save_now = True

    def _drain(self) -> None:
        assert self._stop_asked_at is not None
        end = self._stop_asked_at + self._settings.drain_timeout_s
        self._phase = "draining"
        logger.info("stopping: learning what is in the stream")
        self._feed.go_back(self._position)
        while time.monotonic() < end and (entries := self._feed.read(block_ms=0)):
            self._attempts.expect(entries)
            for entry in entries:
                if time.monotonic() >= end:
                    break
                self._learn(entry)
                self._keep_house()

    def _finish(self, phase: str) -> None:
        self._attempts.done()
        self._starts.settle()
        self._publish_now = True
        self._keep_house(now=True)
        if self._position != self._kept:
            self._save()
            self._keeper.wait()
            self._let_go()
        if self._position == self._kept and self._releases.twin_missing:
            self._save(twin=True)
        self._keeper.wait()
        self._phase = phase
        self._keep_house(now=True)
        self._lease.release()
        logger.info(
            "stopped at version %d after entry %s",
            self._state.model.version,
            self._position.last_entry_id,
        )

    # One entry ------------------------------------------------------------------

    def _learn(self, entry: Entry) -> None:
        """Apply one entry: learned, or set aside. Either way it is dealt with."""
        started = time.perf_counter()
        before = self._state
        given_up = self._attempts.begin(entry)
        try:
            events = [] if given_up else self._apply_with_room(entry)
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
        else:
            if given_up:
                self._reject(entry, "trainer_died", given_up)
                self._save_now = True
            for event in events:
                if isinstance(event, BoundaryDetected):
                    self._feed.flush()  # as in `_save`
                    self._keeper.save(self._progress(before), before_boundary=event.boundary)
                    n_boundaries = self._branch.boundaries + 1
                    self._branch = replace(self._branch, boundaries=n_boundaries)
                    self._save_now = self._publish_now = True
                elif isinstance(event, OutlierBurst):
                    self._journal.quarantine(entry.id, self._state.pending.quarantined)
            self._journal.write(entry.id, events, by=entry.text("by"))
            again, outliers = entry.text(REQUEUED_FROM), self._state.pending.quarantined
            stream = self._state.stream
            self._ledger = self._ledger.applied(entry.id, again, events, outliers, stream)
        self._tell_readers(entry, before)
        self._position = Position(entry.id, self._position.entries_applied + 1)
        self._releases.read(entry)
        self._unsaved_bytes += entry.nbytes
        self._learned_at = time.monotonic()
        self._heart.progress.went_on()
        self._starts.applied(self._position.entries_applied)
        self._metrics.step_duration.observe(time.perf_counter() - started)

    def _reject(self, entry: Entry, reason: str, detail: str) -> None:
        samples = self._journal.reject(entry, reason, detail)
        self._ledger = self._ledger.refused(entry.text(REQUEUED_FROM), samples)

    def _apply_with_room(self, entry: Entry) -> list[Event]:
        """Apply an entry, trying again where there is no room for the moment."""
        for pause in MEMORY_PAUSES_S:
            try:
                return self._apply(entry)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                logger.warning("no room for entry %s, trying again: %s", entry.id, error)
            # Not before the error is gone, which holds on to what was computed.
            make_room()
            time.sleep(pause)
        return self._apply(entry)

    def _tell_readers(self, entry: Entry, before: EngineState) -> None:
        """Say what the API must know of a state before it takes in more, where that changed."""
        if self._state.n_features != before.n_features:
            self._report_features()
        elif (
            self._state is before
            and self._state.n_features is self._settings.n_features is None
            and entry.text("kind") in ("batch", "restore")
        ):
            # Rejected, and the first of all: it must not decide on D.
            self._feed.forget(self._feed.keys.features)
        if entry.text("kind") in ("rollback", "restore"):
            self._report_branch(entry.id)

    def _apply(self, entry: Entry) -> list[Event]:
        """Give the entry to the engine and take over the new state."""
        asked = read_entry(entry.fields, self._limits)
        if isinstance(asked, RawBatch):
            self._check_share(asked, entry)
            self._state, events = self._engine.step(self._state, _batch(asked))
            self._settling = False
            return events
        if isinstance(asked, RawLabels):
            self._state, events = self._engine.label(self._state, asked.sample_ids, asked.labels)
            self._settling = False  # what was labelled may have been set aside
            return events
        if isinstance(asked, RawName):
            self._state, events = self._engine.name(self._state, asked.proposal, asked.label)
            self._settling = False
            return events
        match asked.kind:
            case "boundary":
                self._state, events = self._engine.declare_boundary(
                    self._state, asked.by, asked.note
                )
                if not events:
                    raise EmptySubTask.of(self._state.sub_task.number)
            case "settle":
                self._state, events = self._engine.settle(self._state)
            case "aim":
                self._aimed = None
                ert, by = asked.samples or None, asked.by
                aimed = self._engine.aim(self._state, ert, asked=by is not None, by=by)
                self._state, events = aimed
            case "mode":
                mode = Mode(asked.mode or "")
                changed = self._engine.change_mode(self._state, mode, asked.by, asked.note)
                self._state, events = changed
                self._settling, self._publish_now = False, True
            case "expire":
                self._state, events = self._engine.expire(self._state, asked.samples or 0)
            case "rollback":
                assert asked.version is not None
                kept = self._keeper.find(asked.version)
                self._state, events = self._engine.restore(self._state, kept.state, "rollback")
                self._branch = self._branch.rolled_back(kept.branch, kept.first_not_held, entry.id)
                self._ledger = self._ledger.rolled_back(kept.ledger, kept.state)
                self._after_restore(asked.version, "rollback")
            case "restore":
                upload = asked.upload
                data = asked.checkpoint if upload is None else self._feed.fetch(upload)
                uploaded = self._keeper.parse(data or b"")
                restored, events = self._engine.restore(self._state, uploaded, "checkpoint")
                self._keeper.try_out(restored)
                self._state = restored
                self._branch = self._branch.uploaded(entry.id)
                self._ledger = self._ledger.uploaded(restored)
                self._after_restore(None, "checkpoint")
        return events

    def _check_share(self, batch: RawBatch, entry: Entry) -> None:
        """Raise `KeyShare` where a key would have more of what is learned than it may have."""
        cap = self._settings.max_key_share
        # A dead letter that was sent again has been looked at, and at rest nothing is learned.
        if cap is None or not self._state.learns or entry.text(REQUEUED_FROM) is not None:
            return
        key_shares.check(self._journal.totals.key_shares, batch.by, len(batch), cap)

    def _after_restore(self, version: int | None, origin: str) -> None:
        self._keeper.restored(version, origin, self._position.entries_applied + 1)
        self._look_back = RetentionSchedule(self._engine)  # what it knows is of another past
        self._settling = False
        self._report_features()
        self._save_now = self._publish_now = True

    def _settle_when_quiet(self) -> None:
        if self._settling or self._engine.is_settled(self._state):
            return
        if self._is_quiet():
            self._settling = True  # once, until the next batch
            self._feed.append(Control("settle"))

    def _aim_again(self) -> None:
        """Ask for another run time between false alarms, where it was asked for as a time."""
        if self._aimed is not None or self._state.watch.ert_asked:
            return
        state, wanted = self._state, None
        if self._aim is not None:
            wanted = self._aim.due(state.watch.ert, state.stream.samples, time.monotonic())
        elif state.watch.ert is not None and state.watch.ert != self._engine.config.ert:
            wanted = round(self._engine.config.ert)  # it was a time before a restart
        if wanted is not None:
            self._aimed = wanted
            self._feed.append(Control("aim", samples=wanted))

    def _end_waits(self) -> None:
        """Let no sample await its label for longer than it may, by the clock."""
        now, oldest = time.monotonic(), self._state.pending.awaiting.oldest
        self._label_wait.note(now, self._state.stream.samples)
        before = self._label_wait.over(now)
        if before is None or oldest is None or oldest >= before or before == self._expiring:
            return
        if not self._state.learns:
            return  # nothing is learned of them before the thaw
        self._expiring = before  # once, until the entry is read
        self._feed.append(Control("expire", samples=before))

    # Housekeeping ---------------------------------------------------------------

    def _keep_house(self, *, now: bool = False) -> None:
        """Report, publish, write down: whatever is due."""
        if self._pulse.lost:
            raise LeaseLost(
                "Another trainer works on this model now; this one was away for too long. "
                "Expected one at a time; it stops, and changes nothing more."
            )
        moment = time.monotonic()
        if not now and moment - self._house_at < self._pace.house_s:
            return
        self._house_at = moment
        self._let_go()
        if not self._is_stopping():
            self._aim_again()
            self._end_waits()
        publish = self._is_time_to_publish()
        self._report_proposals()
        self._report_if_due(now or publish)
        if publish:
            self._publish()
        self._save_if_due()
        self._answer_requests()

    def _let_go(self) -> None:
        """Drop the entries that finished checkpoints make safe to drop."""
        for saved in self._keeper.finished():
            self._metrics.checkpoint_duration.observe(saved.seconds)
            self._metrics.checkpoint_timestamp.set(saved.time)
            self._kept = saved.position
            self._releases.saved(saved)
            self._report_versions()

    def _report_if_due(self, now: bool) -> None:
        """Send events, status and metrics."""
        moment = time.monotonic()
        late = moment - self._reported_at >= self._pace.status_s
        if not (now or late or self._position != self._reported):
            return
        self._reported, self._reported_at = self._position, moment
        self._metrics.redis_errors.inc(self._feed.redis_errors - self._redis_errors)
        self._redis_errors = self._feed.redis_errors
        self._account()
        status = self._status()
        self._feed.put(self._feed.keys.status, encode_status(status))
        self._pulse.told(status)
        patience = self._pace.metrics_s if now else self._pace.status_s
        if moment - self._metrics_at >= patience or self._phase in ENDED:
            text = self._metrics.text()
            # A quiet service writes little; but a Redis without its data must be told again.
            if text != self._metrics_text or moment - self._metrics_told_at >= SAME_AGAIN_S:
                self._metrics_text, self._metrics_told_at = text, moment
                self._feed.put(self._feed.keys.trainer_metrics, text)
            self._metrics_at = moment
        self._feed.flush()

    def _account(self) -> None:
        """Tell the ledger, where the position has changed."""
        if self._phase in ("starting", "refused") or self._position == self._accounted:
            return
        self._ledger = self._ledger.pruned(self._state, self._settings.ledger_length)
        counts = self._ledger.counts(self._state)
        self._metrics.show_ledger(counts)
        told = {
            "entries_applied": self._position.entries_applied,
            "last_entry_id": self._position.last_entry_id,
            "since": self._ledger.since,
            "split_since": self._ledger.split_since,
            "losses": self._ledger.losses,
            "counts": counts,
        }
        fates = {id: orjson.dumps(one) for id, one in self._ledger.fates(self._state).items()}
        changed = {id: one for id, one in fates.items() if self._fates.get(id) != one}
        gone = [id for id in self._fates if id not in fates]
        self._feed.account(orjson.dumps(told), changed, gone, anew=self._accounted is None)
        self._fates, self._accounted = fates, self._position

    def _is_time_to_publish(self) -> bool:
        behind = self._position.entries_applied < self._served_entries
        if behind and not self._is_quiet():
            return False  # reads do not go back: what is served knew more before a crash
        version = self._state.model.version
        if self._published == (version, self._position):
            # How well it holds the past may be news, now that there is time to ask.
            return self._is_quiet() and not self._look_back.is_fresh(self._state)
        first = version > 0 and self._published_version == 0
        since = time.monotonic() - self._published_at
        if first or self._publish_now:
            return True
        if since < self._settings.publish_interval_s:
            return False
        return self._is_quiet() or since >= self._publishing_s / PUBLISHING_SHARE

    def _publish(self) -> None:
        """Publish the model, or only how far it reaches by now."""
        version = self._state.model.version
        started = time.perf_counter()
        snapshot = self._snapshot()
        held = self._look_back.rows(self._state, quiet=self._is_quiet())
        try:
            self._publisher.publish(snapshot, self._position, held)
            self._error = None
        except OSError as error:
            logger.exception("version %d was not published", version)
            self._error = f"snapshot not published: {error}"
            self._published_at = time.monotonic()
            return
        self._metrics.show_held(summary(held))
        if snapshot is not None and version != self._published_version:
            self._announce(snapshot, time.perf_counter() - started)
        self._publishing_s = time.perf_counter() - started
        self._published = (version, self._position)
        self._published_version = 0 if snapshot is None else version
        self._published_at, self._publish_now = time.monotonic(), False

    def _snapshot(self) -> Snapshot | None:
        try:
            return self._engine.snapshot(self._state)
        except ModelNotReady:
            return None

    def _announce(self, snapshot: Snapshot, seconds: float) -> None:
        info = snapshot.info
        event = ModelPublished(
            info.model_version,
            info.sub_task,
            info.samples_seen,
            info.components,
            len(info.classes),
            seconds,
        )
        self._journal.write(self._position.last_entry_id, [event], first=LAST_REPORT)
        self._feed.flush()

    def _save_if_due(self) -> None:
        twin = self._position == self._kept
        if self._keeper.busy or (twin and not self._releases.twin_missing):
            return
        held = self._releases.nbytes if twin else self._unsaved_bytes
        waited = time.monotonic() - self._saved_at >= self._settings.checkpoint_interval_s
        large = held >= self._settings.checkpoint_mib * MIB
        if waited or large or (self._save_now and not twin):
            self._save(twin=twin)

    def _save(self, *, twin: bool = False) -> None:
        # What a checkpoint holds is not read again, so its events must be told before.
        self._feed.flush()
        self._keeper.save(self._progress(self._state), twin=twin)
        self._saved_at, self._save_now, self._unsaved_bytes = time.monotonic(), False, 0

    def _progress(self, state: EngineState) -> Progress:
        totals = copy.deepcopy(self._journal.totals)
        aside = state.stream.batches - len(state.pending.set_aside)
        place = state.stream.batch_place(aside)
        ledger = self._ledger.pruned(state, self._settings.ledger_length)
        open_from = None
        if state.pending.set_aside:
            # Where more has passed by since than is remembered, the ledger still knows.
            open_from = totals.entry_of(place) or ledger.first_set_aside(state)
        return Progress(state, self._position, totals, self._branch, open_from, ledger)

    def _answer_requests(self) -> None:
        if not (self._pace.asks or self._rung):
            return
        self._rung = False
        for request in self._feed.requests():
            what, _, request_id = request.partition(" ")
            if what == "checkpoint" and request_id:
                self._feed.answer(request_id, self._keeper.dump(self._progress(self._state)))
            else:
                logger.warning("unknown request %r", request[:80])

    def _report_features(self) -> None:
        """Say which D the model has, so that the API refuses any other."""
        n_features = self._state.n_features or self._settings.n_features
        if n_features is not None:
            self._feed.put(self._feed.keys.features, b"%d" % n_features)

    def _report_branch(self, decided: str) -> None:
        """Say which entries are no part of the model any more.

        Arguments:
            decided: The last entry; of rollbacks and uploads up to it the result is known.
        """
        self._feed.put(self._feed.keys.branch, self._branch.to_json(decided=decided))

    def _report_versions(self) -> None:
        self._feed.put(self._feed.keys.versions, orjson.dumps(self._keeper.versions()))

    def _report_proposals(self) -> None:
        """Say which proposals are open, where that has changed."""
        proposals = self._state.pending.proposals.open
        if proposals != self._proposals:
            self._proposals = proposals
            place = self._state.stream.place
            rows = [
                {
                    **one.to_dict(),
                    "first_sample": place(one.first),
                    "last_sample": place(one.last),
                }
                for one in proposals
            ]
            self._feed.put(self._feed.keys.proposals, orjson.dumps(rows))

    def _status(self) -> dict[str, object]:
        state = self._state
        ert = state.watch.ert or self._engine.config.ert
        totals = self._journal.totals
        achieved, between = totals.achieved(ert), totals.achieved_between(ert)
        self._metrics.show_ert(ert, achieved, between, totals.probe_alarms)
        self._metrics.show_mode(state.rest.mode)
        shares = key_shares.told(totals.key_shares)
        self._metrics.show_key_shares(shares)
        return self._journal.status(
            {
                "pid": os.getpid(),
                "starts": self._starts.count,
                **self._heart.progress.measure(),
                "state": self._phase,
                "error": self._error or self._keeper.error,
                "detector": self._settings.detector,
                "shadows": list(self._engine.config.shadows),
                "ert": ert,
                "ert_achieved": achieved,
                "ert_achieved_low": between.low,
                "ert_achieved_high": between.high,
                "entries_applied": self._position.entries_applied,
                "last_entry_id": self._position.last_entry_id,
                **facts_of(state, self._engine),
                "boundaries": self._branch.boundaries,
                "boundaries_dropped": max(
                    0, self._journal.totals.boundaries - self._branch.boundaries
                ),
                "checkpoint_time": self._keeper.checkpoint_time,
                "redis_errors": self._feed.redis_errors,
                "key_shares": shares,
            }
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


def _batch(raw: RawBatch) -> Batch:
    """A batch as core takes it."""
    # uint8 and the shape of images go on as they are: they tell images from tables.
    features = raw.features
    if not features.flags.writeable:  # a view of what Redis sent, which torch cannot share
        features = features.copy()
    codes = None if raw.codes is None else torch.from_numpy(raw.codes.copy())
    return Batch(torch.from_numpy(features), codes, raw.vocabulary, raw.sample_ids)


def _reason(error: GMRError) -> str:
    """A short name for a kind of error, as a label: `ShapeMismatch` is `shape_mismatch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
