"""The one table from events to the trainer's metrics.

Rules of this module:

1. What the trainer counts is made from events (`TrainerMetrics.observe`), and its
   counters go on after a restart from what the checkpoint says; those of attempts that may
   fail, at Redis and at the webhook, begin anew. How well the past is held
   (`show_held`) is what the published model says of itself.
2. The trainer leaves its text in Redis; the API joins it with its own: `service.api.metrics`.
3. Labels have few values: never a batch id, a path or a client. Keys are the exception, those of
   a window, which are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from prometheus_client import Gauge

from core.drift.detector import Arming, UnarmedReason
from core.engine.state import EngineState, Mode
from core.events import (
    BatchLearned,
    BatchPassed,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ChangeContinued,
    ChangeDetected,
    ClassDiscovered,
    ClassProposed,
    DeadLettersDropped,
    EntriesLost,
    EntryRejected,
    Event,
    LabelsMatched,
    LabelsMissed,
    ModelPublished,
    ModelRestored,
    OutlierBurst,
    OutlierBurstContinued,
    PriorShift,
    ProposalClosed,
    Replayed,
    SamplesRepeated,
    SetAsideReleased,
    UnknownsLearned,
    WindowsSettled,
)
from core.memory.awaiting_samples import REASONS
from service.trainer.metric_definitions import MetricDefinitions
from service.trainer.run_time import Interval

OTHER: Final = "other"
"""What classes are called that are told together."""


class TrainerMetrics(MetricDefinitions):
    """What the trainer has to say, made from events."""

    def resume(
        self,
        *,
        samples: int,
        batches: int,
        boundaries: int,
        replayed: int,
        rejected: Mapping[str, int],
        labels_matched: int = 0,
        labels_unmatched: Mapping[str, int] = MappingProxyType({}),
        proposals: int = 0,
        recurrences: int = 0,
        prior_shifts: int = 0,
        continued: int = 0,
        repetitions: int = 0,
        bursts: int = 0,
        quarantined: int = 0,
        passed_batches: int = 0,
        passed_samples: int = 0,
        changes_detected: int = 0,
        letters_dropped: int = 0,
        entries_lost: int = 0,
    ) -> None:
        """Let the counters go on from what was counted before this process began."""
        self.samples_learned.inc(samples)
        self.batches_learned.inc(batches)
        self.boundaries.inc(boundaries)
        self.replay_samples.inc(replayed)
        self.proposals.inc(proposals)
        self.recurrences.inc(recurrences)
        self.prior_shifts.inc(prior_shifts)
        self.changes_continued.inc(continued)
        self.repetitions.inc(repetitions)
        self.outlier_bursts.inc(bursts)
        self.outliers_quarantined.inc(quarantined)
        self.batches_passed.inc(passed_batches)
        self.samples_passed.inc(passed_samples)
        self.changes_detected.inc(changes_detected)
        self.letters_dropped.inc(letters_dropped)
        self.entries_lost.inc(entries_lost)
        self.labels_matched.inc(labels_matched)
        # From the first, so that their increase is known when the first are dropped.
        for reason, count in (dict.fromkeys(REASONS, 0) | dict(labels_unmatched)).items():
            self.labels_unmatched.labels(reason).inc(count)
        for reason, count in rejected.items():
            self.batches_rejected.labels(reason).inc(count)

    def show_latest(self, latest: Mapping[str, Any]) -> None:
        """Show what the last batch told.

        Arguments:
            latest: Fields of `BatchScored`, as the status repeats them; those that are not there
                are unknown.
        """
        self.inlier_rate.set(_number(latest.get("inlier_rate")))
        self.inlier_rate_mean.set(_number(latest.get("inlier_rate_mean")))
        self.log_likelihood_mean.set(_number(latest.get("log_likelihood_mean")))
        self.prequential_accuracy.set(_number(latest.get("prequential_accuracy_mean")))
        for end, estimate in self.estimated_accuracy.items():
            estimate.set(_number(latest.get(f"estimated_accuracy{end}")))
        for gauge, name in (
            (self.drift_statistic, "statistics"),
            (self.drift_threshold, "thresholds"),
        ):
            values = latest.get(name, {})
            if not values:
                gauge.clear()
            for detector, value in values.items():
                gauge.labels(detector).set(value)

    def show_state(self, state: EngineState, components: int) -> None:
        """Show where the model stands.

        Arguments:
            state: The engine's.
            components: Of the mixture.
        """
        self.drift_armed.set(state.seen.watch.armed)
        self.sub_task.set(state.sub_task.number)
        self.model_version.set(state.model.version)
        self.awaiting.set(state.pending.awaiting.samples)
        self.set_aside_batches.set(len(state.pending.set_aside))
        self.classes.set(len(state.model.classes))
        self.components.set(components)

    def observe(self, event: Event) -> None:
        """The table: which event changes which metric."""
        match event:
            case BatchScored():
                # What was known of an earlier sub-task says nothing of this one.
                self.show_latest(vars(event))
                self.drift_armed.set(event.armed)
                self.sub_task.set(event.sub_task)
                self.model_version.set(event.model_version)
                self.awaiting.set(event.awaiting_samples)
        match event:
            case BatchLearned():
                self.samples_learned.inc(
                    event.samples - event.quarantined - event.awaiting - event.unknown
                )
                self.batches_learned.inc()
                self.classes.set(event.classes)
                self.components.set(event.components)
                self.set_aside_batches.set(0)
            case BatchPassed():
                self.batches_passed.inc()
                self.samples_passed.inc(event.samples)
            case ChangeDetected():
                self.changes_detected.inc()
            case BatchSetAside():
                self.set_aside_batches.set(event.set_aside_batches)
                # It is not among those set aside where all of it awaits labels.
                self.batches_learned.inc(event.awaiting == event.samples)
            case SetAsideReleased():
                self.samples_learned.inc(event.samples)
                self.batches_learned.inc(event.batches)
                self.set_aside_batches.set(0)
                self.model_version.set(event.model_version)
            case WindowsSettled():
                self.model_version.set(event.model_version)
            case ChangeContinued():
                self.changes_continued.inc()
            case SamplesRepeated():
                self.repetitions.inc()
            case PriorShift():
                self.prior_shifts.inc()
            case OutlierBurst():
                self.outlier_bursts.inc(not isinstance(event, OutlierBurstContinued))
                self.outliers_quarantined.inc(event.samples)
                self.samples_learned.inc(event.released)
                self.batches_learned.inc(event.set_aside_batches)
                self.set_aside_batches.set(0)
                self.model_version.set(event.model_version)
            case BoundaryDetected():
                self.boundaries.inc()
                self.recurrences.inc(event.recurrence_of is not None)
                # What was set aside is learned as the first of the new sub-task.
                self.samples_learned.inc(event.set_aside_samples)
                self.batches_learned.inc(event.set_aside_batches)
                self.set_aside_batches.set(0)
                self.sub_task.set(event.sub_task)
                self.model_version.set(event.version_after)
            case LabelsMatched():
                self.samples_learned.inc(event.samples_learned)
                self.labels_matched.inc(event.matched)
                for reason, count in event.unmatched.items():
                    self.labels_unmatched.labels(reason).inc(count)
                self.awaiting.set(event.awaiting)
                self.model_version.set(event.model_version)
                _set(self.prequential_accuracy, event.prequential_accuracy_mean)
            case LabelsMissed():
                self.samples_learned.inc(event.samples_learned)
                self.awaiting.set(event.awaiting)
                self.model_version.set(event.model_version)
            case ClassProposed():
                self.proposals.inc()
            case ProposalClosed() | UnknownsLearned():
                self.samples_learned.inc(event.samples_learned)
                self.model_version.set(event.model_version)
            case Replayed():
                self.replay_samples.inc(event.samples)
                self.components.set(event.components_after)
            case ClassDiscovered():
                self.classes.inc()
            case ModelPublished():
                self.publish_duration.observe(event.duration_seconds)
                self.published_version.set(event.model_version)
                self.model_version.set(event.model_version)
                self.sub_task.set(event.sub_task)
                self.classes.set(event.classes)
                self.components.set(event.components)
            case ModelRestored():
                self.model_version.set(event.model_version)
                self.set_aside_batches.set(0)
                self.awaiting.set(0)
                self.show_latest({})
            case EntryRejected():
                self.batches_rejected.labels(event.reason).inc()
            case DeadLettersDropped():
                self.letters_dropped.inc(event.letters)
            case EntriesLost():
                self.entries_lost.inc(event.entries)

    def show_ert(
        self, asked: float, achieved: float | None, between: Interval, probe_alarms: int
    ) -> None:
        """Show the run time between false alarms, asked and achieved, in samples.

        Arguments:
            asked: Of the detector.
            achieved: As the probe has it; None while unknown.
            between: Confidence interval of that.
            probe_alarms: That both rest on.
        """
        self.ert.set(asked)
        for gauge, number in (
            (self.ert_achieved, achieved),
            (self.ert_achieved_low, between.low),
            (self.ert_achieved_high, between.high),
        ):
            gauge.set(math.nan if number is None else number)
        self.probe_alarms.set(probe_alarms)

    def show_ledger(self, counts: Mapping[str, int | None]) -> None:
        """Show what became of samples.

        Arguments:
            counts: From `service.trainer.ledger.Ledger.counts`.
        """
        for fate, n in counts.items():
            if fate not in ("accepted", "unaccounted"):
                self.ledger.labels(fate).set(_number(n))
        self.unaccounted.set(_number(counts["unaccounted"]))

    def show_key_shares(self, shares: Mapping[str, Any]) -> None:
        """Show what each key sent, as long as some key did.

        Arguments:
            shares: From `service.trainer.key_shares.told`.
        """
        self.key_samples.clear()
        self.key_outliers.clear()
        rows = [(row["name"] or "anybody", row) for row in shares["keys"]]
        if shares["other"] is not None:
            rows.append(("other", shares["other"]))
        if all(row["name"] is None for row in shares["keys"]):
            return
        for name, row in rows:
            self.key_samples.labels(name).inc(row["samples"])
            self.key_outliers.labels(name).inc(row["outliers"])

    def show_classes(self, shares: Mapping[str, Any]) -> None:
        """Show the classes with most of the newest samples, and the others together.

        Arguments:
            shares: From `core.memory.class_shares.ClassShares.told`.
        """
        for gauge in self.class_shares.values():
            gauge.clear()  # a class that is told with the others has no series
        for row in shares["classes"]:
            label = _class_name(row["label"])
            for name, gauge in self.class_shares.items():
                gauge.labels(label).set(_number(row[name]))
        if shares["other"] is not None:
            self.class_shares["share"].labels(OTHER).set(_number(shares["other"]["share"]))

    def show_features(self, drift: Mapping[str, Any] | None) -> None:
        """Show how many features drift.

        Arguments:
            drift: From `core.memory.feature_drift.feature_drift`.
        """
        self.features_drifting.set(_number(None if drift is None else drift["drifting"]))

    def show_mode(self, mode: Mode) -> None:
        """Show what becomes of batches that come."""
        for one in Mode:
            self.mode.labels(one.value).set(one is mode)

    def show_arming(self, arming: Arming) -> None:
        """Show whether the detector waits, for how long nobody knows, for what is worth more."""
        waits = arming == Arming.unknown(UnarmedReason.DEPENDENCE)
        self.drift_dependence.set(waits)

    def show_newest_sample(self, moment: float | None) -> None:
        """Show when the newest samples came, Unix seconds; None where that is not known."""
        self.newest_sample.set(_number(moment))

    def show_archive(self, error: str | None) -> None:
        """Show whether the archive has a gap: None where it goes on, or there is none."""
        self.archive_failing.set(error is not None)

    def show_gate(self, gate: Mapping[str, object] | None) -> None:
        """Show whether the gate holds a version back, and why.

        Arguments:
            gate: From `service.trainer.gate.Gate.told`.
        """
        held = None if gate is None else gate["held"]
        forgetting = None if gate is None else gate["forgetting"]
        for gauge, number in ((self.version_held, held), (self.gate_forgetting, forgetting)):
            gauge.set(float(number) if isinstance(number, float | int) else math.nan)

    def show_held(self, numbers: Mapping[str, float]) -> None:
        """Show how well the model that is published holds the past.

        Arguments:
            numbers: From `core.memory.retention.summary`; what is not among them is not known, or
                not any more, after a rollback.
        """
        for name, gauge in self.held.items():
            gauge.set(numbers.get(name, math.nan))


def _class_name(label: int | str) -> str:
    """A class as the value of a label: a string that looks like another value is quoted.

    Example:
        >>> _class_name(3), _class_name("3"), _class_name("cat"), _class_name("other")
        ('3', '"3"', 'cat', '"other"')
    """
    text = str(label)
    mistaken = isinstance(label, str) and (label == OTHER or text.lstrip("-").isdigit())
    return f'"{text}"' if mistaken else text


def _number(value: float | None) -> float:
    """None means that there is none, which is no zero."""
    return math.nan if value is None else value


def _set(gauge: Gauge, value: float | None) -> None:
    """None means unknown, which leaves what was known before."""
    if value is not None:
        gauge.set(value)
