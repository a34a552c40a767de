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

from core.batch import UNLABELLED, Batch
from core.engine.explanation import HEAVY
from core.engine.state import REMEMBERED_STARTS
from core.errors import GMRError
from core.events import (
    BatchLearned,
    BatchPassed,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ChangeContinued,
    ChangeDetected,
    ClassProposed,
    DeadLettersDropped,
    EntriesLost,
    EntryRejected,
    Event,
    HoldEnded,
    LabelsMatched,
    LabelsMissed,
    ModeChanged,
    ModelRestored,
    OutlierBurst,
    OutlierBurstContinued,
    PriorShift,
    ProposalClosed,
    Replayed,
    RunTimeChanged,
    SetAsideReleased,
    UnknownsLearned,
    VersionHeld,
)
from service.broker.entries import LAST_REPORT, Entry
from service.broker.feed import Feed
from service.trainer import class_accuracies, detector_table, key_shares
from service.trainer.class_accuracies import Means
from service.trainer.metrics import TrainerMetrics
from service.trainer.run_time import Interval, interval
from service.wire import REQUEUED_FROM, Control, read_entry

logger = logging.getLogger(__name__)


@dataclass
class Totals:
    """What was counted since the very first entry. A checkpoint carries it.

    Arguments:
        samples_learned: Learned in all, those that a rollback dropped included.
        recurrences: Boundaries at which an earlier sub-task came back.
        prior_shifts: Changes of the shares of classes alone.
        continued: Changes found again that had gone on since their boundary.
        bursts: Of outliers.
        quarantined: Outliers of those, neither learned nor lost.
        passed_batches: Scored and told while the model was at rest, and not learned.
        passed_samples: Likewise.
        changes_detected: Changes found meanwhile.
        probe_ert: Asked of the detector's probe, in samples; with what it counted so far.
        rejected: Entries refused, by reason.
        letters_dropped: Dead letters that made room for newer ones.
        entries_lost: Entries given up because no checkpoint held them.
        labels_matched: Samples whose label came after them.
        labels_unmatched: Labels that met no sample, by reason.
        proposals: Classes proposed.
        latest: The latest batch's scores, by the names of `BatchScored`.
        entries: Ids of the entries that the last batches came with, as many as the engine
            remembers starts of, so that the start of a change has a name in the stream.
        entries_end: Index of the batch that comes next after those.
        detectors: Shadows beside the detector that decides.
        class_accuracies: Prequential accuracy of each class, since the newest rollback or upload.
        key_shares: What each key sent of the newest samples that were given to the model.
    """

    samples_learned: int = 0
    batches_learned: int = 0
    boundaries: int = 0
    replayed: int = 0
    batches_since_boundary: int = 0
    samples_since_boundary: int = 0
    recurrences: int = 0
    prior_shifts: int = 0
    continued: int = 0
    bursts: int = 0
    quarantined: int = 0
    passed_batches: int = 0
    passed_samples: int = 0
    changes_detected: int = 0
    probe_ert: float = 0.0
    probe_samples: int = 0
    probe_alarms: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    letters_dropped: int = 0
    entries_lost: int = 0
    labels_matched: int = 0
    labels_unmatched: dict[str, int] = field(default_factory=dict)
    proposals: int = 0
    latest: dict[str, Any] = field(default_factory=dict)
    entries: list[str] = field(default_factory=list)
    entries_end: int = 0
    class_accuracies: Means = field(default_factory=dict)
    detectors: detector_table.Table = field(default_factory=dict)
    key_shares: key_shares.Window = field(default_factory=list)

    def remember(self, batch_index: int, entry_id: str) -> None:
        """Note which entry a batch came with."""
        if batch_index != self.entries_end:
            self.entries = []  # of another past
        self.entries = [*self.entries[1 - REMEMBERED_STARTS :], entry_id]
        self.entries_end = batch_index + 1

    def entry_of(self, batch_index: int) -> str | None:
        """The entry that a batch came with; None where that is not known (any more)."""
        place = batch_index - self.entries_end
        return self.entries[place] if -len(self.entries) <= place < 0 else None

    def count(self, event: Event, by: str | None = None) -> None:
        """Add one event.

        Arguments:
            event: What happened.
            by: Name of the key that sent its batch; None without one.
        """
        detector_table.add(self.detectors, event)
        if isinstance(event, BatchScored | LabelsMatched):
            class_accuracies.add(self.class_accuracies, event.class_accuracies)
        if isinstance(event, BatchScored):
            self.latest = {name: getattr(event, name) for name in LATEST}
            self.batches_since_boundary += 1
            self.samples_since_boundary += event.samples
        if isinstance(event, BatchLearned | BatchSetAside):
            inliers = 1.0 if event.inlier_rate is None else event.inlier_rate
            outliers = round((1 - inliers) * event.samples)
            key_shares.add(self.key_shares, by, event.samples, outliers)
        match event:
            case BatchLearned():
                self.samples_learned += (
                    event.samples - event.quarantined - event.awaiting - event.unknown
                )
                self.batches_learned += 1
                self.probe_samples += event.probe_samples
                self.probe_alarms += event.probe_alarms
                self.probe_ert = event.probe_ert or self.probe_ert
            case BatchPassed():
                self.passed_batches += 1
                self.passed_samples += event.samples
            case ChangeDetected():
                self.changes_detected += 1
            case ChangeContinued():
                self.continued += 1
            case PriorShift():
                self.prior_shifts += 1
            case OutlierBurst():
                self.samples_learned += event.released
                self.batches_learned += event.set_aside_batches
                self.bursts += not isinstance(event, OutlierBurstContinued)
                self.quarantined += event.samples
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
                self.recurrences += event.recurrence_of is not None
                # The batches set aside are the first of the new sub-task; the one that
                # decided it is counted by its own event, which comes later.
                self.batches_since_boundary = event.set_aside_batches
                self.samples_since_boundary = event.set_aside_samples
            case Replayed():
                self.replayed += event.samples
            case ModelRestored():
                self.latest, self.class_accuracies = {}, {}
                self.batches_since_boundary = self.samples_since_boundary = 0
            case EntryRejected():
                self.rejected[event.reason] = self.rejected.get(event.reason, 0) + 1
            case DeadLettersDropped():
                self.letters_dropped += event.letters
            case EntriesLost():
                self.entries_lost += event.entries

    def achieved(self, ert: float) -> float | None:
        """Run time between false alarms that is kept, in samples, as the probe has it.

        Its alarms come at the same odds against what it asks for; None before the first.

        Arguments:
            ert: What is asked of the detector.
        """
        if not self.probe_alarms or not self.probe_ert:
            return None
        return ert * self.probe_samples / self.probe_alarms / self.probe_ert

    def achieved_between(self, ert: float) -> Interval:
        """Between what `achieved` lies, by the number of the probe's alarms, at 95 % confidence.

        Before the first alarm there is a lower end only.

        Arguments:
            ert: What is asked of the detector.
        """
        if not self.probe_ert:
            return Interval(None, None)
        ends = interval(self.probe_alarms, self.probe_samples)
        return Interval(*(None if end is None else ert * end / self.probe_ert for end in ends))

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
    "estimated_accuracy",
    "estimated_accuracy_low",
    "estimated_accuracy_high",
    "estimated_unseen",
)
"""Fields of `BatchScored` that the status repeats."""


class Journal:
    """Where events go.

    Arguments:
        feed: Takes the records.
        totals: To go on from.
        metrics: Follows every event.
        outbox: Kinds of events that a webhook is to be told of.
    """

    def __init__(
        self,
        feed: Feed,
        totals: Totals,
        metrics: TrainerMetrics,
        outbox: frozenset[str] = frozenset(),
    ) -> None:
        self.totals = totals
        self._outbox = outbox
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
            recurrences=totals.recurrences,
            prior_shifts=totals.prior_shifts,
            continued=totals.continued,
            bursts=totals.bursts,
            quarantined=totals.quarantined,
            passed_batches=totals.passed_batches,
            passed_samples=totals.passed_samples,
            changes_detected=totals.changes_detected,
            letters_dropped=totals.letters_dropped,
            entries_lost=totals.entries_lost,
        )

    def write(
        self, entry_id: str, events: Sequence[Event], first: int = 0, by: str | None = None
    ) -> None:
        """Report the events of one entry.

        Arguments:
            entry_id: Of the entry that caused them.
            events: In order; all that the entry caused, or the rest.
            first: Index of the first among all events of the entry.
            by: Name of the key that sent the entry, of a batch; None without one.
        """
        now = time.time()
        keys = self._feed.keys
        for index, event in enumerate(events, first):
            self.totals.count(event, by)
            self._metrics.observe(event)
            # Not `to_dict`, which copies what is about to become bytes anyway.
            record = {"kind": event.kind, **vars(event), "entry_id": entry_id, "time": now}
            if isinstance(event, BoundaryDetected):
                record |= self._boundary(event, entry_id)
                heavy = {name: part for name, part in event.explanation.items() if name in HEAVY}
                if heavy:
                    self._feed.reports.add(keys.explanations, entry_id, index, orjson.dumps(heavy))
            elif isinstance(event, ChangeDetected):
                record |= {"explanation": _light(event.explanation)}
            elif isinstance(event, BatchScored):
                self.totals.remember(event.batch_index, entry_id)
            data = orjson.dumps(record)
            self._feed.reports.add(keys.events, entry_id, index, data)
            if isinstance(event, BatchLearned | BatchSetAside | BatchPassed):
                self._feed.reports.add(keys.history, entry_id, index, data)
            if isinstance(event, BoundaryDetected):
                self._feed.reports.add(keys.boundaries, entry_id, index, data)
            if event.kind in self._outbox:
                self._feed.reports.add(keys.outbox, entry_id, index, data)
            _log(event, entry_id)

    def _boundary(self, event: BoundaryDetected, entry_id: str) -> dict[str, object]:
        """What a boundary's record says otherwise, or beside: where it began, and why in short."""
        start = self.totals.entry_of(event.estimated_start_batch)
        if event.estimated_start_batch == event.batch_index and event.detector != "declared":
            start = entry_id  # the batch that decided it is reported after it
        return {"estimated_start_entry_id": start, "explanation": _light(event.explanation)}

    def quarantine(self, entry_id: str, batches: Sequence[Batch]) -> None:
        """Keep the outliers of a burst where people can look at them.

        Arguments:
            entry_id: Of the entry by which the burst was over.
            batches: The outliers, in stream order.
        """
        now, index = time.time(), 0
        for batch in batches:
            codes = [UNLABELLED] * len(batch) if batch.codes is None else batch.codes.tolist()
            for row, code in zip(batch.features.tolist(), codes, strict=True):
                if index > LAST_REPORT:
                    return
                label = None if code == UNLABELLED else batch.vocabulary[code]
                record = {"features": row, "label": label, "entry_id": entry_id, "time": now}
                self._feed.reports.quarantine(entry_id, index, orjson.dumps(record))
                index += 1

    def reject(self, entry: Entry, reason: str, detail: str) -> int:
        """Report an entry that could not be used, and keep it among the dead letters.

        Returns:
            Samples that it brought, as far as it can be read.
        """
        kind, samples = _outline(entry)
        batch_id = entry.text("id")
        self.write(entry.id, [EntryRejected(entry.id, reason, detail, batch_id)])
        facts = {
            "entry_id": entry.id,
            "time": time.time(),
            "reason": reason,
            "detail": detail,
            "kind": kind,
            "batch_id": batch_id,
            "samples": samples,
            "requeued_from": entry.text(REQUEUED_FROM),
        }
        self._feed.reports.flush()  # whoever finds the letter has been told of it
        letters, nbytes = self._feed.dead_letters.bury(entry, reason, facts)
        if letters:
            self.write(entry.id, [DeadLettersDropped(letters, nbytes)], first=1)
        return samples or 0 if kind == "batch" else 0

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
            "class_accuracies": class_accuracies.told(totals.class_accuracies),
            "detectors": detector_table.told(totals.detectors, totals.latest),
            "boundaries": totals.boundaries,
            "bursts": totals.bursts,
            "quarantined": totals.quarantined,
            "probe_samples": totals.probe_samples,
            "probe_alarms": totals.probe_alarms,
            "batches_since_boundary": totals.batches_since_boundary,
            "samples_since_boundary": totals.samples_since_boundary,
            "rejected": totals.rejected,
            "dead_letters_dropped": totals.letters_dropped,
            "entries_lost": totals.entries_lost,
            **facts,
        }


def encode_status(status: Mapping[str, object]) -> bytes:
    """The status as JSON, stamped with the time, which makes it the heartbeat."""
    return orjson.dumps({**status, "time": time.time()})


def _outline(entry: Entry) -> tuple[str | None, int | None]:
    """The kind of an entry, and its number of samples or labels; None where that is not known."""
    kind = entry.text("kind")
    try:
        asked = read_entry(entry.fields)
    except GMRError:
        return kind, None
    return kind, None if isinstance(asked, Control) else len(asked)


def _light(explanation: Mapping[str, object]) -> dict[str, object]:
    return {name: part for name, part in explanation.items() if name not in HEAVY}


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
        case ModeChanged():
            logger.info(
                "mode %s after %s, by %s (entry %s): %s",
                event.mode,
                event.mode_before,
                event.by or "somebody",
                entry_id,
                event.reason or "no reason given",
            )
        case ChangeDetected():
            logger.info(
                "a change at batch %d is told and not crossed, in mode detect_only (entry %s)",
                event.batch_index,
                entry_id,
            )
        case RunTimeChanged():
            logger.info(
                "run time between false alarms: %g samples after %g, by %s (entry %s)",
                event.ert,
                event.ert_before,
                event.by or "the settings",
                entry_id,
            )
        case OutlierBurst():
            logger.info(
                "outlier burst: %d samples from sample %d on are quarantined (entry %s)",
                event.samples,
                event.estimated_start_sample,
                entry_id,
            )
        case VersionHeld():
            logger.warning(
                "version %d is held back: of sub-task %d it retains %.3f of %.3f, and %g may be "
                "lost; version %d goes on answering (entry %s)",
                event.model_version,
                event.past_sub_task,
                event.accuracy_now,
                event.accuracy_before,
                event.max_forgetting,
                event.served_version,
                entry_id,
            )
        case HoldEnded():
            logger.info(
                "version %d is served after %d (%s, by %s, entry %s): %s",
                event.model_version,
                event.served_version,
                event.reason,
                event.by or "itself",
                entry_id,
                event.note or "no reason given",
            )
        case EntryRejected():
            logger.warning(
                "entry %s is a dead letter (%s): %s", entry_id, event.reason, event.detail
            )
        case DeadLettersDropped():
            logger.warning(
                "%d dead letters (%d bytes) made room for that of entry %s; for more, raise "
                "GMR_DEAD_LETTERS_LENGTH or GMR_DEAD_LETTERS_MIB",
                event.letters,
                event.bytes,
                entry_id,
            )
        case EntriesLost():
            logger.error(
                "%d entries (%s to %s) are given up; their batches can be sent again",
                event.entries,
                event.first_entry_id,
                event.last_entry_id,
            )
        case ModelRestored():
            logger.info(
                "version %d takes the place of %d (%s)",
                event.model_version,
                event.replaced_version,
                event.source,
            )
