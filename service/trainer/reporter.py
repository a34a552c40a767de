"""What the API learns of a model besides its snapshots: status, metrics, ledger, and lists.

Each is a plain value of Redis, made anew from where the model stands; whoever comes late reads the
latest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

import orjson

from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory.feature_drift import feature_drift
from core.memory.proposals import Proposal
from service.broker.branch import Branch
from service.broker.entries import Position
from service.broker.feed import Feed
from service.settings import Settings
from service.trainer import key_shares
from service.trainer.heartbeat import Heartbeat, Pulse
from service.trainer.journal import Journal, encode_status
from service.trainer.metrics import TrainerMetrics
from service.trainer.pace import NEVER, Pace
from service.trainer.saver import Saver
from service.trainer.standing import Standing
from service.trainer.starts import Starts
from service.trainer.status import facts_of

ENDED: Final = ("stopped", "unloaded")
"""Phases after which nothing more is reported."""

SAME_AGAIN_S: Final = 60.0
"""Seconds after which metrics that have not changed are sent again."""


class Reporter:
    """Tells the API of one model.

    Arguments:
        settings: Of the model.
        engine: Whose states are given.
        feed: By which to tell.
        saver: Which knows what is kept.
        journal: Which has counted.
        metrics: Are sent along.
        heartbeat: Knows how long ago work went on.
        pulse: Repeats the status.
        starts: Counts the starts.
        pace: How often.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        feed: Feed,
        saver: Saver,
        journal: Journal,
        metrics: TrainerMetrics,
        heartbeat: Heartbeat,
        pulse: Pulse,
        starts: Starts,
        pace: Pace,
    ) -> None:
        self.phase = "starting"
        self._settings = settings
        self._engine = engine
        self._feed = feed
        self._saver = saver
        self._journal = journal
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._pulse = pulse
        self._starts = starts
        self._pace = pace
        self._reported: Position | None = None
        self._reported_at = self._metrics_at = self._metrics_told_at = NEVER
        self._metrics_text = b""
        self._redis_errors = 0
        self._accounted: Position | None = None
        self._fates: dict[str, bytes] = {}  # as they were told last
        self._proposals: tuple[Proposal, ...] | None = None  # as they were told last

    def is_due(self, position: Position) -> bool:
        """Whether the last report is old, or of another position."""
        late = time.monotonic() - self._reported_at >= self._pace.status_s
        return late or position != self._reported

    def report(
        self,
        now: Standing,
        error: str | None,
        *,
        at_once: bool,
        archive_error: str | None = None,
    ) -> None:
        """Send events, status and metrics.

        Arguments:
            now: Where the model stands.
            error: That an operator should know of.
            at_once: Whether somebody waits for it.
            archive_error: Why the archive has a gap; None where it goes on.
        """
        moment = time.monotonic()
        self._reported, self._reported_at = now.position, moment
        self._metrics.redis_errors.inc(self._feed.redis_errors - self._redis_errors)
        self._redis_errors = self._feed.redis_errors
        self._account(now)
        status = self._status(now, error or archive_error, archive_error)
        self._feed.reports.put(self._feed.keys.status, encode_status(status))
        self._pulse.told(status)
        patience = self._pace.metrics_s if at_once else self._pace.status_s
        due = moment - self._metrics_at >= patience or self.phase in ENDED
        # One that is refused has counted nothing. Counters that fell to 0 would look like a
        # restart, and what they come back to like news.
        if due and self.phase != "refused":
            text = self._metrics.text()
            # A quiet service writes little; but a Redis without its data must be told again.
            if text != self._metrics_text or moment - self._metrics_told_at >= SAME_AGAIN_S:
                self._metrics_text, self._metrics_told_at = text, moment
                self._feed.reports.put(self._feed.keys.trainer_metrics, text)
            self._metrics_at = moment
        self._feed.reports.flush()

    def features(self, state: EngineState) -> None:
        """Say which D the model has, so that the API refuses any other."""
        n_features = state.n_features or self._settings.n_features
        if n_features is not None:
            self._feed.reports.put(self._feed.keys.features, b"%d" % n_features)

    def feature_names(self, names: Sequence[str] | None, entry_id: str) -> None:
        """Say what the features of a model from elsewhere are called, where that came with it.

        Arguments:
            names: In the order of the features; None leaves those that are kept.
            entry_id: By which the model came.
        """
        if names is not None:
            self._feed.feature_names.take(names, entry_id)

    def no_features(self) -> None:
        """Say that no batch has decided on D."""
        self._feed.reports.forget(self._feed.keys.features)

    def branch(self, branch: Branch, decided: str) -> None:
        """Say which entries are no part of the model any more.

        Arguments:
            branch: The model's.
            decided: The last entry; of rollbacks and uploads up to it the result is known.
        """
        self._feed.reports.put(self._feed.keys.branch, branch.to_json(decided=decided))

    def versions(self) -> None:
        """Say which versions are kept."""
        self._feed.reports.put(self._feed.keys.versions, orjson.dumps(self._saver.versions()))

    def proposals(self, state: EngineState) -> None:
        """Say which proposals are open, where that has changed."""
        proposals = state.pending.proposals.open
        if proposals == self._proposals:
            return
        self._proposals, place = proposals, state.stream.place
        rows = [
            {**one.to_dict(), "first_sample": place(one.first), "last_sample": place(one.last)}
            for one in proposals
        ]
        self._feed.reports.put(self._feed.keys.proposals, orjson.dumps(rows))

    def _account(self, now: Standing) -> None:
        """Tell the ledger, where the position has changed."""
        if self.phase in ("starting", "refused") or now.position == self._accounted:
            return
        ledger = now.ledger
        counts = ledger.counts(now.state)
        self._metrics.show_ledger(counts)
        account = {
            "entries_applied": now.position.entries_applied,
            "last_entry_id": now.position.last_entry_id,
            "since": ledger.since,
            "split_since": ledger.split_since,
            "losses": ledger.losses,
            "counts": counts,
        }
        fates = {id: orjson.dumps(one) for id, one in ledger.fates(now.state).items()}
        changed = {id: one for id, one in fates.items() if self._fates.get(id) != one}
        gone = [id for id in self._fates if id not in fates]
        self._feed.reports.account(
            orjson.dumps(account), changed, gone, anew=self._accounted is None
        )
        self._fates, self._accounted = fates, now.position

    def _status(
        self, now: Standing, error: str | None, archive_error: str | None
    ) -> dict[str, object]:
        state, totals = now.state, self._journal.totals
        ert = state.watch.ert or self._engine.config.ert
        achieved, between = totals.achieved(ert), totals.achieved_between(ert)
        self._metrics.show_ert(ert, achieved, between, totals.probe_alarms)
        self._metrics.show_mode(state.rest.mode)
        self._metrics.show_archive(archive_error)
        gate = None
        if now.gate is not None:
            settings = self._settings
            gate = now.gate.told(settings.gate_max_forgetting, rolls_back=settings.gate_rollback)
        self._metrics.show_gate(gate)
        components = 0
        if state.model.learner is not None:
            components = self._engine.learner.n_components(state.model.learner)
        self._metrics.show_state(state, components)
        self._metrics.show_arming(self._engine.arming(state))
        classes = state.sub_task.class_shares.told(
            self._engine.naming.labels(state), self._settings.class_series
        )
        self._metrics.show_classes(classes)
        features = feature_drift(state.sub_task.course)
        self._metrics.show_features(features)
        shares = key_shares.told(totals.key_shares)
        self._metrics.show_key_shares(shares)
        return self._journal.status(
            {
                "pid": os.getpid(),
                "starts": self._starts.count,
                **self._heartbeat.activity.measure(),
                "state": self.phase,
                "error": error or self._saver.error,
                "checkpoint_error": self._saver.error,
                "archive_error": archive_error,
                "detector": self._settings.detector,
                "shadows": list(self._engine.config.shadows),
                "ert": ert,
                "ert_achieved": achieved,
                "ert_achieved_low": between.low,
                "ert_achieved_high": between.high,
                "entries_applied": now.position.entries_applied,
                "last_entry_id": now.position.last_entry_id,
                **facts_of(state, self._engine),
                "boundaries": now.branch.boundaries,
                "boundaries_dropped": max(0, totals.boundaries - now.branch.boundaries),
                "checkpoint_time": self._saver.checkpoint_time,
                "unsaved_since": self._saver.unsaved_since,
                "redis_errors": self._feed.redis_errors,
                "key_shares": shares,
                "class_shares": classes,
                "feature_drift": features,
                "gate": gate,
            }
        )
