"""The dashboard `drift`: what the model sees of the stream, and what it takes for a change."""

from __future__ import annotations

from deploy.grafana.description.dashboard import Dashboard, Panel, Query, number
from deploy.grafana.description.panels import (
    ACCURACY,
    BOUNDARIES,
    CLASS_DRIFT,
    CLASS_SHARES,
    FEATURE_DRIFT,
    FROM_ZERO,
    INLIER_RATE,
    SHARE,
    STATISTIC,
)
from deploy.grafana.description.queries import gauge, rate

DASHBOARD = Dashboard(
    "drift",
    "GMR: drift",
    "What the model sees of the stream, what it takes for a change, and what it forgets.",
    {
        "Now": (
            number(
                "Sub-task",
                "The sub-task being learned; 0 before the first boundary.",
                gauge("gmr_sub_task"),
            ),
            BOUNDARIES,
            number(
                "Armed",
                "1 where the detector may alarm; 0 while it warms up.",
                gauge("gmr_drift_armed"),
            ),
            number(
                "Batches set aside",
                "Kept apart while a change is suspected.",
                gauge("gmr_set_aside_batches"),
            ),
            number("Classes", "Classes known.", gauge("gmr_classes")),
            number(
                "Past sub-tasks held",
                "Whose generated samples are put to the model again.",
                gauge("gmr_held_sub_tasks"),
            ),
        ),
        "Drift": (
            INLIER_RATE,
            STATISTIC,
            Panel(
                "Log-likelihood",
                "Of the last batch, nats per sample.",
                (Query(gauge("gmr_log_likelihood_mean"), "batch"),),
            ),
            ACCURACY,
            CLASS_SHARES,
            CLASS_DRIFT,
            FEATURE_DRIFT,
            Panel(
                "Alarms that were no new sub-task",
                "Bursts of outliers, sub-tasks that came back, shares of classes alone, and "
                "changes that went on.",
                (
                    Query(gauge("gmr_outlier_bursts_total"), "bursts"),
                    Query(gauge("gmr_outliers_quarantined_total"), "outliers kept out"),
                    Query(gauge("gmr_recurrences_total"), "sub-tasks that came back"),
                    Query(gauge("gmr_prior_shifts_total"), "shares of classes"),
                    Query(gauge("gmr_changes_continued_total"), "changes that went on"),
                    Query(gauge("gmr_repetitions_total"), "samples sent again"),
                    Query(gauge("gmr_changes_detected_total"), "changes told in detect-only"),
                ),
                more=FROM_ZERO,
            ),
            Panel(
                "Mode",
                "1 for the mode in force, and what passed by while it was not learning.",
                (
                    Query(gauge("gmr_mode"), "{{mode}}"),
                    Query(rate("gmr_batches_passed_total"), "batches passed, per second"),
                    Query(rate("gmr_samples_passed_total"), "samples passed, per second"),
                ),
                more=FROM_ZERO,
            ),
            Panel(
                "Samples between false alarms",
                "Asked for, and estimated with its 95 % interval. Far below what was asked "
                "means that samples depend on each other.",
                (
                    Query(gauge("gmr_drift_ert_samples"), "asked"),
                    Query(gauge("gmr_drift_ert_achieved_samples"), "estimate"),
                    Query(gauge("gmr_drift_ert_achieved_low_samples"), "low"),
                    Query(gauge("gmr_drift_ert_achieved_high_samples"), "high"),
                ),
                more={"custom": {"scaleDistribution": {"type": "log", "log": 10}}},
            ),
            Panel(
                "Alarms of the probe",
                "What that estimate rests on: after ten it is known to a factor of two.",
                (Query(gauge("gmr_drift_probe_alarms"), "alarms"),),
                more=FROM_ZERO,
            ),
            Panel(
                "Classes proposed and labels that came later",
                "New classes seen without labels, and labels by id.",
                (
                    Query(gauge("gmr_class_proposals_total"), "classes proposed"),
                    Query(gauge("gmr_labels_matched_total"), "labels that met their sample"),
                    Query(gauge("gmr_labels_unmatched_total"), "labels without: {{reason}}"),
                    Query(gauge("gmr_awaiting_samples"), "samples that wait for one"),
                ),
                more=FROM_ZERO,
            ),
        ),
        "Forgetting": (
            Panel(
                "Past sub-tasks, by the model's own samples",
                "Samples drawn when a sub-task ended, put to the model of now.",
                (
                    Query(gauge("gmr_held_accuracy_mean"), "accuracy, mean"),
                    Query(gauge("gmr_held_accuracy_min"), "accuracy, worst"),
                    Query(gauge("gmr_held_probability_mean"), "probability of the class, mean"),
                ),
                "percentunit",
                more=SHARE,
            ),
            Panel(
                "Forgetting, by the model's own samples",
                "Largest loss of the probability of the right class since a sub-task ended: "
                "the first sign of forgetting.",
                (Query(gauge("gmr_held_probability_loss_max"), "largest loss"),),
                "percentunit",
                alarm=0.1,
            ),
            Panel(
                "The gate",
                "Largest fall of the accuracy on a past sub-task that the gate found, and 1 "
                "where it holds back what is learned; nothing without a gate.",
                (
                    Query(gauge("gmr_gate_forgetting"), "largest fall"),
                    Query(gauge("gmr_version_held"), "held back"),
                ),
                "percentunit",
                more=SHARE,
            ),
            Panel(
                "Log-likelihood of past sub-tasks",
                "Change since each ended, nats per sample; nothing where it is not known of "
                "every one.",
                (Query(gauge("gmr_held_log_likelihood_change_mean"), "mean"),),
            ),
        ),
    },
)
