"""Every metric of the service, and the one table from events to metrics.

Rules of this module:

1. Each process has a registry of its own, and nothing is global.
2. What the trainer counts is made from events (`TrainerMetrics.observe`), and its
   counters go on after a restart from what the checkpoint says; those of attempts that may
   fail, at Redis and at the webhook, begin anew. How well the past is held
   (`show_held`) is what the published model says of itself.
3. Prometheus asks the API only. The trainer leaves its text in Redis, and
   `ApiMetrics.text` merges it: a metric that both processes have is added up, and an
   age is counted up to the moment of asking.
4. Labels have few values: never a batch id, a path or a client. Keys are the exception, those of
   a window, which are bounded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from core.engine.state import Mode
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
    SetAsideReleased,
    UnknownsLearned,
    WindowsSettled,
)
from service.trainer.run_time import Interval

# A second series per counter, with the time it was made, helps nobody here.
disable_created_metrics()  # type: ignore[no-untyped-call]

REQUEST_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
STEP_BUCKETS: Final = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip

OTHER: Final = "other"
"""What classes are called that are told together."""

CHECKPOINT_TIME: Final = "gmr_checkpoint_timestamp_seconds"
CHECKPOINT_AGE: Final = "gmr_checkpoint_age_seconds"


class TrainerMetrics:
    """What the trainer has to say, made from events."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram

        self.samples_learned = counter("samples_learned", "Samples learned.")
        self.batches_learned = counter("batches_learned", "Batches learned.")
        self.batches_rejected = counter(
            "batches_rejected", "Batches refused, by the API or by the trainer.", ["reason"]
        )
        self.letters_dropped = counter(
            "dead_letters_dropped", "Dead letters that made room for newer ones."
        )
        self.entries_lost = counter(
            "entries_lost", "Entries given up because no checkpoint held them."
        )
        self.recurrences = counter("recurrences", "Earlier sub-tasks that came back.")
        self.prior_shifts = counter("prior_shifts", "Changes of the shares of classes alone.")
        self.changes_continued = counter(
            "changes_continued", "Changes found again that had gone on since their boundary."
        )
        self.outlier_bursts = counter(
            "outlier_bursts", "Bursts of outliers: alarms that went away again."
        )
        self.outliers_quarantined = counter(
            "outliers_quarantined", "Outliers of bursts, neither learned nor lost."
        )
        self.batches_passed = counter(
            "batches_passed", "Batches scored and not learned, because the model was at rest."
        )
        self.samples_passed = counter(
            "samples_passed", "Samples scored and not learned, because the model was at rest."
        )
        self.changes_detected = counter(
            "changes_detected", "Changes found and not crossed, in mode detect_only."
        )
        self.key_samples = gauge(
            "key_samples", "Samples of each key among the newest that were learned.", ["key"]
        )
        self.key_outliers = gauge("key_outliers", "Outliers among these, as they came.", ["key"])
        self.class_shares = {
            name: gauge(f"class_{name}", help, ["class"])
            for name, help in (
                ("share", "Share of the newest samples that are named so, 0 to 1."),
                ("share_change", "Its change since the reference, in standard errors."),
                ("likelihood_change", "How much likelier they are beside others, likewise."),
            )
        }
        self.mode = gauge("mode", "1 for the mode in force.", ["mode"])
        self.version_held = gauge(
            "version_held", "1 where the gate holds back what is learned; NaN without a gate."
        )
        self.gate_forgetting = gauge(
            "gate_forgetting",
            "Largest fall of the accuracy on a past sub-task that the gate found; NaN if unknown.",
        )
        self.ert = gauge(
            "drift_ert_samples", "Run time between false alarms that is asked for, in samples."
        )
        self.ert_achieved = gauge(
            "drift_ert_achieved_samples", "The same as it is kept, estimated; NaN while unknown."
        )
        self.ert_achieved_low = gauge(
            "drift_ert_achieved_low_samples",
            "Lower end of its 95 % interval; NaN while unknown.",
        )
        self.ert_achieved_high = gauge(
            "drift_ert_achieved_high_samples",
            "Upper end of its 95 % interval; NaN while unknown.",
        )
        self.probe_alarms = gauge(
            "drift_probe_alarms", "Alarms of the probe that the estimate rests on."
        )
        self.boundaries = counter("boundaries", "Boundaries between sub-tasks found or declared.")
        self.replay_samples = counter(
            "replay_samples", "Samples of earlier sub-tasks learned again by replay."
        )
        self.webhook_deliveries = counter(
            "webhook_deliveries", "Attempts to tell the webhook of an event.", ["outcome"]
        )
        self.labels_matched = counter("labels_matched", "Samples whose label came after them.")
        self.labels_unmatched = counter(
            "labels_unmatched", "Labels by id that met no sample.", ["reason"]
        )
        self.proposals = counter("class_proposals", "New classes proposed.")
        self.awaiting = gauge("awaiting_samples", "Samples that await their label.")
        self.ledger = gauge(
            "ledger_samples", "Samples accepted and applied, by what became of them.", ["fate"]
        )
        self.unaccounted = gauge(
            "ledger_unaccounted_samples",
            "Samples of which the ledger cannot say what became; 0, and NaN while unknown.",
        )
        self.redis_errors = counter("redis_errors", "Calls of Redis that failed, repeats included.")

        self.inlier_rate = gauge(
            "inlier_rate",
            "Share of inliers in the last batch, 0 to 1; NaN before there is a reference.",
        )
        self.inlier_rate_mean = gauge(
            "inlier_rate_mean", "Inlier rate of the reference; NaN before there is one."
        )
        self.log_likelihood_mean = gauge(
            "log_likelihood_mean", "Mean log-likelihood of the last batch, nats per sample."
        )
        self.drift_statistic = gauge(
            "drift_statistic", "Statistic of the boundary detector.", ["detector"]
        )
        self.drift_threshold = gauge(
            "drift_threshold", "Value at which the detector reports a boundary.", ["detector"]
        )
        self.drift_armed = gauge("drift_armed", "1 where the detector may report a boundary.")
        self.prequential_accuracy = gauge(
            "prequential_accuracy",
            "Running accuracy on labelled samples before they were learned, 0 to 1.",
        )
        self.estimated_accuracy = {
            end: gauge(f"estimated_accuracy{end}", f"{what} of the newest samples; NaN if unknown.")
            for end, what in (
                ("", "Accuracy expected, without their labels,"),
                ("_low", "Lower end of the 95 % interval of the accuracy expected"),
                ("_high", "Upper end of the 95 % interval of the accuracy expected"),
            )
        }
        self.sub_task = gauge("sub_task", "Sub-task being learned; 0 for the first.")
        self.model_version = gauge("model_version", "Version of the model being trained.")
        self.published_version = gauge("published_model_version", "Version last published.")
        self.classes = gauge("classes", "Classes known.")
        self.components = gauge("components", "Components of the mixture.")
        self.set_aside_batches = gauge(
            "set_aside_batches", "Batches kept apart while a change is suspected."
        )
        # By the model's own samples, one number for all sub-tasks: a label for each would
        # grow with the stream.
        self.held = {
            name: gauge(f"held_{name}", help)
            for name, help in (
                ("sub_tasks", "Past sub-tasks that the model is asked about."),
                ("accuracy_mean", "Accuracy on its samples of past sub-tasks, mean, 0 to 1."),
                ("accuracy_min", "The same of the worst held past sub-task."),
                ("probability_mean", "Mean probability of the right class, 0 to 1."),
                ("probability_loss_max", "Its largest loss since a sub-task's end."),
                (
                    "log_likelihood_change_mean",
                    "Change of their log-likelihood since then, mean, nats per sample.",
                ),
            )
        }
        self.checkpoint_timestamp = gauge(
            "checkpoint_timestamp_seconds", "When the newest checkpoint was written, Unix time."
        )

        self.step_duration = histogram(
            "train_step_duration_seconds", "Time to learn one entry.", STEP_BUCKETS
        )
        self.publish_duration = histogram(
            "publish_duration_seconds", "Time to publish a snapshot.", STEP_BUCKETS
        )
        self.checkpoint_duration = histogram(
            "checkpoint_duration_seconds", "Time to write a checkpoint.", STEP_BUCKETS
        )

        for unknown in (
            self.inlier_rate,
            self.inlier_rate_mean,
            self.log_likelihood_mean,
            self.prequential_accuracy,
            *self.estimated_accuracy.values(),
            self.ert_achieved,
            self.ert_achieved_low,
            self.ert_achieved_high,
            self.version_held,
            self.gate_forgetting,
            *self.held.values(),
        ):
            unknown.set(math.nan)  # zero would be an alarm

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
        self.outlier_bursts.inc(bursts)
        self.outliers_quarantined.inc(quarantined)
        self.batches_passed.inc(passed_batches)
        self.samples_passed.inc(passed_samples)
        self.changes_detected.inc(changes_detected)
        self.letters_dropped.inc(letters_dropped)
        self.entries_lost.inc(entries_lost)
        self.labels_matched.inc(labels_matched)
        for reason, count in labels_unmatched.items():
            self.labels_unmatched.labels(reason).inc(count)
        for reason, count in rejected.items():
            self.batches_rejected.labels(reason).inc(count)

    def observe(self, event: Event) -> None:
        """The table: which event changes which metric."""
        match event:
            case BatchScored():
                # What was known of an earlier sub-task says nothing of this one.
                self.inlier_rate.set(_number(event.inlier_rate))
                self.inlier_rate_mean.set(_number(event.inlier_rate_mean))
                _set(self.log_likelihood_mean, event.log_likelihood_mean)
                _set(self.prequential_accuracy, event.prequential_accuracy_mean)
                for end, estimate in self.estimated_accuracy.items():
                    estimate.set(_number(getattr(event, f"estimated_accuracy{end}")))
                for name, value in event.statistics.items():
                    self.drift_statistic.labels(name).set(value)
                for name, value in event.thresholds.items():
                    self.drift_threshold.labels(name).set(value)
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
            case SetAsideReleased():
                self.samples_learned.inc(event.samples)
                self.batches_learned.inc(event.batches)
                self.set_aside_batches.set(0)
                self.model_version.set(event.model_version)
            case WindowsSettled():
                self.model_version.set(event.model_version)
            case ChangeContinued():
                self.changes_continued.inc()
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

    def show_mode(self, mode: Mode) -> None:
        """Show what becomes of batches that come."""
        for one in Mode:
            self.mode.labels(one.value).set(one is mode)

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
            not
                any more, after a rollback.
        """
        for name, gauge in self.held.items():
            gauge.set(numbers.get(name, math.nan))

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"gmr_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(f"gmr_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"gmr_{name}", help, buckets=buckets, registry=self.registry)


class ApiMetrics:
    """What one API process has to say, joined with what the trainer left in Redis.

    Arguments:
        redis_errors: Gives the number of failed calls so far; asked at each scrape.
    """

    def __init__(self, redis_errors: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gmr_http_requests",
            "HTTP requests answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._request_duration = Histogram(
            "gmr_http_request_duration_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._listeners = Gauge(
            "gmr_event_listeners", "Open connections of GET /events.", registry=self.registry
        )
        self.models_held = Gauge(
            "gmr_api_models", "Named models whose snapshots are held.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        self._redis_errors = redis_errors
        self._redis_up = False
        self._backlog: int | None = None
        self._dead_letters: tuple[int, int] | None = None
        self._models: Mapping[str, int] = {}
        self._heartbeat_age: float | None = None
        # What all processes count together, as far as it is known here; and what is not in it yet.
        self._samples_ingested: int | None = None
        self._batches_ingested = 0
        self._rejected: Mapping[str, int] = {}
        self._sent: dict[str, int] = {}
        self._unsent: dict[str, int] = {}

    def rejected(self, reason: str) -> None:
        """A batch was refused."""
        self._unsent[reason] = self._unsent.get(reason, 0) + 1

    @property
    def has_news(self) -> bool:
        """Whether something was counted here that is counted nowhere else."""
        return bool(self._unsent)

    def send_rejected(self) -> Mapping[str, int]:
        """What is to be added to the counts of all processes; `counted` or `not_counted` follows.

        No number ever falls meanwhile, which would look like a restart.
        """
        self._sent, self._unsent = self._unsent, {}
        return self._sent

    def counted(
        self, samples_ingested: int, batches_ingested: int, rejected: Mapping[str, int]
    ) -> None:
        """The counts of all processes, what was sent included."""
        self._samples_ingested, self._batches_ingested = samples_ingested, batches_ingested
        self._rejected, self._sent = rejected, {}

    def not_counted(self) -> None:
        """What was sent did not arrive."""
        self._unsent, self._sent = _added(self._sent, self._unsent), {}

    def answered(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """A request was answered.

        Arguments:
            route: Template, such as `/model`; not the path.
            seconds: None where the length of the answer says nothing.
        """
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._request_duration.labels(route).observe(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A client follows the events meanwhile."""
        self._listeners.inc()
        try:
            yield
        finally:
            self._listeners.dec()

    def redis_away(self) -> None:
        """Redis did not answer: what it would have said is left out, not repeated."""
        self._redis_up = False
        self._backlog = self._heartbeat_age = self._dead_letters = None
        self._models = {}

    def redis_answered(
        self,
        *,
        backlog: int,
        heartbeat_age: float | None,
        dead_letters: tuple[int, int] | None = None,
        models: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """What Redis says at this moment.

        Arguments:
            backlog: Entries accepted that the served snapshot does not hold.
            heartbeat_age: Seconds since the trainer reported; None when it never has.
            dead_letters: How many were not sent again, and the bytes of what they hold.
            models: Named models by their state.
        """
        self._redis_up = True
        self._models = models
        self._dead_letters = dead_letters
        self._backlog, self._heartbeat_age = backlog, heartbeat_age

    def text(self, trainer: bytes | None = None) -> bytes:
        """All of it in Prometheus' text format.

        Arguments:
            trainer: The trainer's text, from `Stream.trainer_metrics`.
        """
        families = {family.name: family for family in self.registry.collect()}
        for family in self._facts():
            families[family.name] = family
        theirs = trainer.decode("utf-8", "replace") if trainer else ""
        for family in text_string_to_metric_families(theirs):
            ours = families.get(family.name)
            families[family.name] = family if ours is None else _sum(ours, family)
            if family.name == CHECKPOINT_TIME and family.samples[0].value:
                families[CHECKPOINT_AGE] = GaugeMetricFamily(
                    CHECKPOINT_AGE,
                    "Time since the newest checkpoint was written.",
                    max(0.0, time.time() - family.samples[0].value),
                )
        registry = CollectorRegistry()
        registry.register(_Fixed(families.values()))
        return generate_latest(registry)

    def _facts(self) -> Iterator[Metric]:
        if self._samples_ingested is not None:
            yield CounterMetricFamily(
                "gmr_samples_ingested", "Samples accepted into the stream.", self._samples_ingested
            )
            yield CounterMetricFamily(
                "gmr_batches_ingested", "Batches accepted into the stream.", self._batches_ingested
            )
            rejected = CounterMetricFamily(
                "gmr_batches_rejected",
                "Batches refused, by the API or by the trainer.",
                labels=["reason"],
            )
            everything = _added(_added(self._rejected, self._sent), self._unsent)
            for reason, count in everything.items():
                rejected.add_metric([reason], count)
            yield rejected
        yield CounterMetricFamily(
            "gmr_redis_errors",
            "Calls of Redis that failed, repeats included.",
            self._redis_errors(),
        )
        yield GaugeMetricFamily("gmr_redis_up", "1 where Redis answers.", float(self._redis_up))
        if self._backlog is not None:
            yield GaugeMetricFamily(
                "gmr_backlog_entries", "Entries accepted and not yet learned.", self._backlog
            )
        if self._dead_letters is not None:
            letters, nbytes = self._dead_letters
            yield GaugeMetricFamily(
                "gmr_dead_letters", "Entries that could not be used, not sent again.", letters
            )
            yield GaugeMetricFamily(
                "gmr_dead_letters_bytes", "Bytes of those of them that are kept whole.", nbytes
            )
        if self._models:
            models = GaugeMetricFamily(
                "gmr_models", "Named models, by how the trainer has them.", labels=["state"]
            )
            for state, count in self._models.items():
                models.add_metric([state], count)
            yield models
        if self._heartbeat_age is not None:
            yield GaugeMetricFamily(
                "gmr_trainer_heartbeat_age_seconds",
                "Time since the trainer last reported.",
                self._heartbeat_age,
            )


class _Fixed(Collector):
    """Hands out families that were made before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = sorted(families, key=lambda family: family.name)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Both counts together, by name."""
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def _sum(ours: Metric, theirs: Metric) -> Metric:
    """One family with the samples of both, added up where the labels are the same."""
    total = Metric(ours.name, ours.documentation, ours.type)
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in (*ours.samples, *theirs.samples):
        series = (sample.name, tuple(sorted(sample.labels.items())))
        values[series] = values.get(series, 0.0) + sample.value
    for (name, labels), value in values.items():
        total.add_sample(name, dict(labels), value)
    return total


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
