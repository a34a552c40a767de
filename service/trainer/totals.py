"""What was counted since the very first entry, and must outlive the process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from core.engine.state import REMEMBERED_STARTS
from core.events import (
    BatchLearned,
    BatchPassed,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ChangeContinued,
    ChangeDetected,
    ClassesMerged,
    ClassProposed,
    ClassRenamed,
    DeadLettersDropped,
    EntriesLost,
    EntryRejected,
    Event,
    LabelsMatched,
    LabelsMissed,
    ModelRestored,
    OutlierBurst,
    OutlierBurstContinued,
    PriorShift,
    ProposalClosed,
    Replayed,
    SamplesRepeated,
    SetAsideReleased,
    UnknownsLearned,
)
from service.broker.entries import came_at_ms
from service.trainer import class_accuracies, detector_table, key_shares
from service.trainer.class_accuracies import Means
from service.trainer.run_time import Interval, interval

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


@dataclass
class Totals:
    """What was counted since the very first entry. A checkpoint carries it.

    Arguments:
        samples_learned: Learned in all, those that a rollback dropped included.
        batches_set_aside: Of those since the boundary, the newest, about which is not decided.
        samples_set_aside: Likewise.
        recurrences: Boundaries at which an earlier sub-task came back.
        prior_shifts: Changes of the shares of classes alone.
        continued: Changes found again that had gone on since their boundary.
        repetitions: Times that the stream sent samples again which its sub-task had learned.
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
        newest_sample: When the newest batch of samples came into the stream, Unix seconds; None
            where that is not known.
    """

    samples_learned: int = 0
    batches_learned: int = 0
    boundaries: int = 0
    replayed: int = 0
    batches_since_boundary: int = 0
    samples_since_boundary: int = 0
    batches_set_aside: int = 0
    samples_set_aside: int = 0
    recurrences: int = 0
    prior_shifts: int = 0
    continued: int = 0
    repetitions: int = 0
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
    newest_sample: float | None = None

    def remember(self, batch_index: int, entry_id: str) -> None:
        """Note which entry a batch came with."""
        if batch_index != self.entries_end:
            self.entries = []  # of another past
        self.entries = [*self.entries[1 - REMEMBERED_STARTS :], entry_id]
        self.entries_end = batch_index + 1

    def came(self, entry_id: str) -> None:
        """Note when the entry of a batch came, which its id says."""
        self.newest_sample = came_at_ms(entry_id) / 1000

    def entry_of(self, batch_index: int) -> str | None:
        """The entry that a batch came with; None where that is not known (any more)."""
        index = batch_index - self.entries_end
        return self.entries[index] if -len(self.entries) <= index < 0 else None

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
        if isinstance(event, BatchLearned | SetAsideReleased | OutlierBurst | BoundaryDetected):
            self.batches_set_aside = self.samples_set_aside = 0
        match event:
            case BatchLearned():
                self.samples_learned += (
                    event.samples - event.quarantined - event.awaiting - event.unknown
                )
                self.batches_learned += 1
                self.probe_samples += event.probe_samples
                self.probe_alarms += event.probe_alarms
                self.probe_ert = event.probe_ert or self.probe_ert
            case BatchSetAside():
                # It is not among those set aside where all of it awaits labels.
                self.batches_learned += event.awaiting == event.samples
                self.batches_set_aside = event.set_aside_batches
                self.samples_set_aside = event.set_aside_samples
            case BatchPassed():
                self.passed_batches += 1
                self.passed_samples += event.samples
            case ChangeDetected():
                self.changes_detected += 1
            case ChangeContinued():
                self.continued += 1
            case SamplesRepeated():
                self.repetitions += 1
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
            case ClassRenamed():
                self.class_accuracies = class_accuracies.renamed(
                    self.class_accuracies, event.label_before, event.label
                )
            case ClassesMerged():
                self.class_accuracies = class_accuracies.merged(
                    self.class_accuracies, event.label_before, event.label
                )
            case ModelRestored():
                self.latest, self.class_accuracies = {}, {}
                self.batches_since_boundary = self.samples_since_boundary = 0
                self.batches_set_aside = self.samples_set_aside = 0
            case EntryRejected():
                self.rejected[event.reason] = self.rejected.get(event.reason, 0) + 1
            case DeadLettersDropped():
                self.letters_dropped += event.letters
            case EntriesLost():
                self.entries_lost += event.entries

    def went_back(self, kept: Totals) -> None:
        """Go on in the sub-task of a kept version, after `ModelRestored` was counted.

        Arguments:
            kept: As they were when the version was kept. What was set aside then is dropped.
        """
        self.batches_since_boundary = kept.batches_since_boundary - kept.batches_set_aside
        self.samples_since_boundary = kept.samples_since_boundary - kept.samples_set_aside

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
