"""The dashboard `redis`: the log between API and trainer."""

from __future__ import annotations

from deploy.grafana.description.dashboard import Dashboard, Panel, Query, number
from deploy.grafana.description.panels import BACKLOG, FROM_ZERO, REDIS_UP, SHARE
from deploy.grafana.description.queries import CHOSEN, gauge, rate

DASHBOARD = Dashboard(
    "redis",
    "GMR: Redis",
    "The log between API and trainer: does it answer, what waits, what could not be used?",
    {
        "Now": (
            REDIS_UP,
            number("Backlog", "Entries not learned yet.", gauge("gmr_backlog_entries")),
            number(
                "Dead letters",
                "Entries that were accepted and could not be used.",
                gauge("gmr_dead_letters"),
                alarm=1,
            ),
            number(
                "Dead letters",
                "What these hold.",
                gauge("gmr_dead_letters_bytes"),
                "bytes",
            ),
            number(
                "Batch ids known since",
                "How long ago the oldest batch_id that is remembered was given; a repeat of "
                "an older one is a new batch (GMR_DEDUPE_TTL_S, GMR_DEDUPE_MIB).",
                gauge("gmr_batch_ids_seconds"),
                "s",
            ),
            number(
                "Letters dropped",
                "Dead letters that made room for newer ones.",
                gauge("gmr_dead_letters_dropped_total"),
                alarm=1,
            ),
            number(
                "Entries lost",
                "Given up because no checkpoint held them (GMR_ACCEPT_LOSS).",
                gauge("gmr_entries_lost_total"),
                alarm=1,
            ),
        ),
        "Calls": (
            Panel(
                "Errors per second",
                "Calls that failed, repeats included, by process.",
                (
                    Query(
                        f"sum by (instance) (rate(gmr_redis_errors_total{{{CHOSEN}}}[1m]))",
                        "{{instance}}",
                    ),
                ),
                "ops",
                more=FROM_ZERO,
            ),
            Panel(
                "Answers",
                "1 where Redis answers a process.",
                (Query(f"gmr_redis_up{{{CHOSEN}}}", "{{instance}}"),),
                more=SHARE,
            ),
            BACKLOG,
            Panel(
                "Entries per second",
                "Batches accepted into the stream, and batches learned from it.",
                (
                    Query(rate("gmr_batches_ingested_total"), "in"),
                    Query(rate("gmr_batches_learned_total"), "out"),
                ),
                "cps",
                more=FROM_ZERO,
            ),
        ),
    },
)
