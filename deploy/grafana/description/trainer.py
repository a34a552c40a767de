"""The dashboard `trainer`: whether the one process that learns keeps up, and its work is safe."""

from __future__ import annotations

from deploy.grafana.description.dashboard import Dashboard, Panel, Query, number
from deploy.grafana.description.panels import (
    BACKLOG,
    CHECKPOINT_AGE,
    FROM_ZERO,
    HEARTBEAT,
    SHARE,
    THROUGHPUT,
    WORKS,
)
from deploy.grafana.description.queries import OF_ALL, gauge, once, quantile, rate

DASHBOARD = Dashboard(
    "trainer",
    "GMR: trainer",
    "The one process that learns: does it keep up, and is its work safe?",
    {
        "Now": (
            HEARTBEAT,
            WORKS,
            CHECKPOINT_AGE,
            number("Version trained", "Version being trained.", gauge("gmr_model_version")),
            number(
                "Version published",
                "Version published last.",
                gauge("gmr_published_model_version"),
            ),
            number("Components", "Gaussians in use.", gauge("gmr_components")),
            number(
                "Unaccounted",
                "Samples of which the ledger cannot say what became: 0, or an error.",
                gauge("gmr_ledger_unaccounted_samples"),
                alarm=1,
            ),
        ),
        "Learning": (
            THROUGHPUT,
            BACKLOG,
            Panel(
                "Batches per second",
                "Accepted, and learned.",
                (
                    Query(rate("gmr_batches_ingested_total"), "ingested"),
                    Query(rate("gmr_batches_learned_total"), "learned"),
                ),
                "cps",
                more=FROM_ZERO,
            ),
            Panel(
                "Newest samples",
                "Time since the newest samples that were read came.",
                (Query(f"time() - {gauge('gmr_newest_sample_timestamp_seconds')}", "age"),),
                "s",
                more=FROM_ZERO,
            ),
            Panel(
                "Time per entry",
                "To learn one, and to publish a model.",
                (
                    Query(quantile(0.5, "gmr_train_step_duration_seconds"), "learn, median"),
                    Query(quantile(0.99, "gmr_train_step_duration_seconds"), "learn, 99 %"),
                    Query(quantile(0.99, "gmr_publish_duration_seconds"), "publish, 99 %"),
                ),
                "s",
                more=FROM_ZERO,
            ),
        ),
        "Safety": (
            Panel(
                "Checkpoints",
                "Time to write one, and age of the newest.",
                (
                    Query(
                        quantile(0.99, "gmr_checkpoint_duration_seconds", window="15m"),
                        "write, 99 %",
                    ),
                    Query(gauge("gmr_checkpoint_age_seconds"), "age"),
                    Query(
                        f"time() - {gauge('gmr_checkpoint_timestamp_seconds')}",
                        "age by its own time",
                    ),
                ),
                "s",
                more=FROM_ZERO,
            ),
            Panel(
                "Archive",
                "1 where it cannot be written, 0 where it is, or none is kept.",
                (Query(gauge("gmr_archive_failing"), "not written"),),
                alarm=1,
                more=SHARE,
            ),
            Panel(
                "What became of samples",
                "Samples accepted and applied, by their fate.",
                (Query(gauge("gmr_ledger_samples"), "{{fate}}"),),
                more=FROM_ZERO,
            ),
            Panel(
                "Samples by key",
                "Newest samples that were learned, by the key that sent them.",
                (
                    Query(gauge("gmr_key_samples"), "{{key}}"),
                    Query(gauge("gmr_key_outliers"), "{{key}}, outliers"),
                ),
                more=FROM_ZERO,
            ),
            Panel(
                "Webhook",
                "Attempts to tell it, per second.",
                (Query(rate("gmr_webhook_deliveries_total", "5m"), "{{outcome}}"),),
                "ops",
                more=FROM_ZERO,
            ),
            Panel(
                "Named models",
                "By what the trainer has of them, and held by API processes; nothing where "
                "there is none.",
                (
                    Query(once(f"gmr_models{{{OF_ALL}}}"), "{{state}}"),
                    Query(f"gmr_api_models{{{OF_ALL}}}", "held by {{instance}}"),
                ),
                more=FROM_ZERO,
            ),
            Panel(
                "Buckets",
                "Of a cluster: 1 where the trainer of a bucket reports, has begun and does not "
                "hang; nothing where there is no cluster.",
                (Query(f"min by (bucket) (gmr_bucket_works{{{OF_ALL}}})", "{{bucket}}"),),
                more=FROM_ZERO,
            ),
        ),
    },
)
