"""The trainer's metrics: name, help, labels and buckets of each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

# A second series per counter, with the time it was made, helps nobody here.
disable_created_metrics()  # type: ignore[no-untyped-call]

STEP_BUCKETS: Final = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip


class MetricDefinitions:
    """Counters, gauges and histograms of one trainer, in a registry of its own.

    A gauge of what is not known yet says NaN: zero would be an alarm.
    """

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
        self.repetitions = counter(
            "repetitions", "Times that samples came again which the sub-task had learned."
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
        self.features_drifting = gauge(
            "features_drifting",
            "Features whose mean is not as it was earlier in the sub-task; NaN while unknown.",
        )
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
            "log_likelihood_mean",
            "Mean log-likelihood of the last batch, nats per sample; NaN if unknown.",
        )
        self.drift_statistic = gauge(
            "drift_statistic", "Statistic of the boundary detector.", ["detector"]
        )
        self.drift_threshold = gauge(
            "drift_threshold", "Value at which the detector reports a boundary.", ["detector"]
        )
        self.drift_armed = gauge("drift_armed", "1 where the detector may report a boundary.")
        self.drift_dependence = gauge(
            "drift_dependence",
            "1 where the detector waits behind its warm-up, since samples depend on each other.",
        )
        self.prequential_accuracy = gauge(
            "prequential_accuracy",
            "Running accuracy on labelled samples before they are learned, 0 to 1; NaN if unknown.",
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

        self.newest_sample = gauge(
            "newest_sample_timestamp_seconds",
            "When the newest samples that were read came, Unix time; NaN before the first.",
        )

        self.archive_failing = gauge(
            "archive_failing", "1 where the archive cannot be written, 0 where it is, or none is."
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
            self.newest_sample,
            *self.held.values(),
        ):
            unknown.set(math.nan)  # zero would be an alarm

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"gmr_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(f"gmr_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"gmr_{name}", help, buckets=buckets, registry=self.registry)
