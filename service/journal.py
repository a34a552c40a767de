"""What the trainer tells the world: events as records, and its own state as a status.

`Journal.write` is the only way out for events: it stamps each with the entry that
caused it, sorts it into the streams where readers look, counts it, and passes it to
the metrics. `Totals` is what must outlive the process for that; a checkpoint carries it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from core.events import (
    BatchLearned,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ClassProposed,
    EntryRejected,
    Event,
    LabelsMatched,
    LabelsMissed,
    ModelRestored,
    ProposalClosed,
    Replayed,
    SetAsideReleased,
    UnknownsLearned,
)
from service.feed import Entry, Feed
from service.metrics import TrainerMetrics

logger = logging.getLogger(__name__)


@dataclass
class Totals:
    """What was counted since the very first entry. A checkpoint carries it.

    Arguments:
        samples_learned: Learned in all, those that a rollback dropped included.
        rejected: Entries refused, by reason.
        labels_matched: Samples whose label came after them.
        labels_unmatched: Labels that met no sample, by reason.
        proposals: Classes proposed.
        latest: The latest batch's scores, by the names of `BatchScored`.
    """

    samples_learned: int = 0
    batches_learned: int = 0
    boundaries: int = 0
    replayed: int = 0
    batches_since_boundary: int = 0
    samples_since_boundary: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    labels_matched: int = 0
    labels_unmatched: dict[str, int] = field(default_factory=dict)
    proposals: int = 0
    latest: dict[str, Any] = field(default_factory=dict)

    def count(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, BatchScored):
            self.latest = {name: getattr(event, name) for name in LATEST}
            self.batches_since_boundary += 1
            self.samples_since_boundary += event.samples
        match event:
            case BatchLearned():
                self.samples_learned += event.samples - event.awaiting - event.unknown
                self.batches_learned += 1
            case LabelsMatched():
                self.samples_learned += event.samples_learned
                self.labels_matched += event.matched
                for reason, count in event.unmatched.items():
                    self.labels_unmatched[reason] = self.labels_unmatched.get(reason, 0) + count
                self.latest["prequential_accuracy_mean"] = event.prequential_accuracy_mean
            case LabelsMissed() | ProposalClosed() | UnknownsLearned():
                self.samples_learned += event.samples_learned
            case ClassProposed():
                self.proposals += 1
            case SetAsideReleased():
                self.samples_learned += event.samples
                self.batches_learned += event.batches
            case BoundaryDetected():
                self.samples_learned += event.set_aside_samples
                self.batches_learned += event.set_aside_batches
                self.boundaries += 1
                # The batches set aside are the first of the new sub-task; the one that
                # decided it is counted by its own event, which comes later.
                self.batches_since_boundary = event.set_aside_batches
                self.samples_since_boundary = event.set_aside_samples
            case Replayed():
                self.replayed += event.samples
            case ModelRestored():
                self.latest = {}
                self.batches_since_boundary = self.samples_since_boundary = 0
            case EntryRejected():
                self.rejected[event.reason] = self.rejected.get(event.reason, 0) + 1

    def to_json(self) -> str:
        """As text for a checkpoint."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Totals:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


LATEST = (
    "inlier_rate",
    "inlier_rate_mean",
    "log_likelihood_mean",
    "statistic",
    "threshold",
    "statistics",
    "thresholds",
    "armed",
    "prequential_accuracy",
    "prequential_accuracy_mean",
)
"""Fields of `BatchScored` that the status repeats."""


class Journal:
    """Where events go.

    Arguments:
        feed: Takes the records.
        totals: To go on from.
        metrics: Follows every event.
    """

    def __init__(self, feed: Feed, totals: Totals, metrics: TrainerMetrics) -> None:
        self.totals = totals
        self._feed = feed
        self._metrics = metrics
        metrics.resume(
            samples=totals.samples_learned,
            batches=totals.batches_learned,
            boundaries=totals.boundaries,
            replayed=totals.replayed,
            rejected=totals.rejected,
            labels_matched=totals.labels_matched,
            labels_unmatched=totals.labels_unmatched,
            proposals=totals.proposals,
        )

    def write(self, entry_id: str, events: Sequence[Event], first: int = 0) -> None:
        """Report the events of one entry.

        Arguments:
            entry_id: Of the entry that caused them.
            events: In order; all that the entry caused, or the rest.
            first: Index of the first among all events of the entry.
        """
        now = time.time()
        keys = self._feed.keys
        for index, event in enumerate(events, first):
            self.totals.count(event)
            self._metrics.observe(event)
            # Not `to_dict`, which copies what is about to become bytes anyway.
            record = {"kind": event.kind, **vars(event), "entry_id": entry_id, "time": now}
            data = orjson.dumps(record)
            self._feed.report(keys.events, entry_id, index, data)
            if isinstance(event, BatchLearned | BatchSetAside):
                self._feed.report(keys.history, entry_id, index, data)
            if isinstance(event, BoundaryDetected):
                self._feed.report(keys.boundaries, entry_id, index, data)
            _log(event, entry_id)

    def reject(self, entry: Entry, reason: str, detail: str) -> None:
        """Report an entry that could not be used, and keep its copy."""
        self.write(entry.id, [EntryRejected(entry.id, reason, detail)])
        self._feed.set_aside(entry, reason, detail)

    def status(self, facts: Mapping[str, object]) -> dict[str, object]:
        """The trainer's state, for GET /drift: the given facts, and what events told."""
        totals = self.totals
        unknown: dict[str, object] = dict.fromkeys(LATEST)
        return {
            **unknown,
            "statistics": {},
            "thresholds": {},
            "armed": False,
            **totals.latest,
            "boundaries": totals.boundaries,
            "batches_since_boundary": totals.batches_since_boundary,
            "samples_since_boundary": totals.samples_since_boundary,
            "rejected": totals.rejected,
            **facts,
        }


def encode_status(status: Mapping[str, object]) -> bytes:
    """The status as JSON, stamped with the time, which makes it the heartbeat."""
    return orjson.dumps({**status, "time": time.time()})


def _log(event: Event, entry_id: str) -> None:
    match event:
        case BoundaryDetected():
            logger.info(
                "boundary: sub-task %d begins at batch %d (entry %s, %s)",
                event.sub_task,
                event.batch_index,
                entry_id,
                event.detector,
            )
        case EntryRejected():
            logger.warning("entry %s set aside (%s): %s", entry_id, event.reason, event.detail)
        case ModelRestored():
            logger.info(
                "version %d takes the place of %d (%s)",
                event.model_version,
                event.replaced_version,
                event.source,
            )
