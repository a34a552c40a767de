"""Panels that several dashboards show."""

from __future__ import annotations

from typing import Any

from deploy.grafana.description.dashboard import Panel, Query, number
from deploy.grafana.description.queries import CHOSEN, OF_ALL, gauge, rate

SHARE: dict[str, Any] = {"min": 0, "max": 1}
FROM_ZERO: dict[str, Any] = {"min": 0}

INLIER_RATE = Panel(
    "Inlier rate",
    "Share of each batch that the model finds typical. A drop that lasts is a boundary.",
    (
        Query(gauge("gmr_inlier_rate"), "batch"),
        Query(gauge("gmr_inlier_rate_mean"), "running mean"),
    ),
    "percentunit",
    more=SHARE,
)
STATISTIC = Panel(
    "Drift statistic against its threshold",
    "1 is where a detector speaks.",
    (
        Query(
            f"{gauge('gmr_drift_statistic')} / {gauge('gmr_drift_threshold')}",
            "{{detector}}",
        ),
    ),
    "percentunit",
    alarm=1,
    more=FROM_ZERO,
)
ACCURACY = Panel(
    "Prequential accuracy",
    "Running accuracy on labelled samples before they were learned; and the accuracy expected of "
    "the newest samples, labels or not, with its 95 % interval.",
    (
        Query(gauge("gmr_prequential_accuracy"), "labelled samples"),
        Query(gauge("gmr_estimated_accuracy"), "expected"),
        Query(gauge("gmr_estimated_accuracy_low"), "expected, low"),
        Query(gauge("gmr_estimated_accuracy_high"), "expected, high"),
    ),
    "percentunit",
    more=SHARE,
)
CLASS_SHARES = Panel(
    "Share of each class",
    "Of the newest thousand samples, by the model's own answers; the largest, and all others.",
    (Query(gauge("gmr_class_share"), "{{class}}"),),
    "percentunit",
    more=SHARE,
)
CLASS_DRIFT = Panel(
    "Drift of each class",
    "Change since the reference in standard errors: of its share, and of its likelihood beside "
    "others'. A model learns one class after the other, so that the second moves in a calm stream, "
    "too: class_shares of GET /drift says which classes drift.",
    (
        Query(gauge("gmr_class_share_change"), "{{class}}, share"),
        Query(gauge("gmr_class_likelihood_change"), "{{class}}, likelihood"),
    ),
)
FEATURE_DRIFT = Panel(
    "Features that drift",
    "Features whose mean among the newest samples is not as it was earlier in the sub-task.",
    (Query(gauge("gmr_features_drifting"), "features"),),
    more=FROM_ZERO,
)
THROUGHPUT = Panel(
    "Samples per second",
    "Accepted, and learned; replay adds its own.",
    (
        Query(rate("gmr_samples_ingested_total"), "ingested"),
        Query(rate("gmr_samples_learned_total"), "learned"),
        Query(rate("gmr_replay_samples_total"), "replayed"),
    ),
    "cps",
    more=FROM_ZERO,
)
BACKLOG = Panel(
    "Backlog",
    "Entries accepted that the served model does not hold yet. Growing means that more is sent "
    "than learned.",
    (Query(gauge("gmr_backlog_entries"), "entries"),),
    more=FROM_ZERO,
)
REDIS_UP = number(
    "Redis",
    "1 where Redis answers every process.",
    f"min(gmr_redis_up{{{CHOSEN}}})",
)
HEARTBEAT = number(
    "Trainer heard",
    "Time since the trainer last reported.",
    gauge("gmr_trainer_heartbeat_age_seconds"),
    "s",
    alarm=30,
)
WORKS = number(
    "Trainer works",
    "1 where the trainer reports, has begun and does not hang; the row ready of gmr status says "
    "what is wrong.",
    gauge("gmr_trainer_works"),
)
CHECKPOINT_AGE = number(
    "Age of checkpoint",
    "Grows while nothing is learned, too.",
    gauge("gmr_checkpoint_age_seconds"),
    "s",
)
BOUNDARIES = number(
    "Boundaries",
    "Boundaries found or declared since the model began.",
    gauge("gmr_boundaries_total"),
)
HTTP_ERRORS = Panel(
    "Refused and failed",
    "Answers with status 4xx and 5xx, of all models, and batches refused, by reason.",
    (
        Query(
            f'sum by (status) (rate(gmr_http_requests_total{{{OF_ALL}, status=~"[45].."}}[1m]))',
            "{{status}}",
        ),
        Query(f"sum by (reason) ({rate('gmr_batches_rejected_total')})", "{{reason}}"),
    ),
    "reqps",
    more=FROM_ZERO,
)
REQUESTS = Panel(
    "Requests per second",
    "By route and status, of all models.",
    (
        Query(
            f"sum by (route, status) (rate(gmr_http_requests_total{{{OF_ALL}}}[1m]))",
            "{{route}} {{status}}",
        ),
    ),
    "reqps",
    more=FROM_ZERO,
)
