"""The dashboard `overview`: one model at a glance."""

from __future__ import annotations

from deploy.grafana.description.dashboard import Dashboard, number
from deploy.grafana.description.panels import (
    ACCURACY,
    BOUNDARIES,
    HEARTBEAT,
    HTTP_ERRORS,
    INLIER_RATE,
    REDIS_UP,
    REQUESTS,
    STATISTIC,
    THROUGHPUT,
)
from deploy.grafana.description.queries import OF_ALL, gauge

DASHBOARD = Dashboard(
    "overview",
    "GMR: overview",
    "One model at a glance: is it there, does it keep up, has the stream changed?",
    {
        "Now": (
            REDIS_UP,
            HEARTBEAT,
            number("Processes up", "API processes that answer.", f"sum(up{{{OF_ALL}}})"),
            number("Backlog", "Entries not learned yet.", gauge("gmr_backlog_entries")),
            BOUNDARIES,
            number("Classes", "Classes known.", gauge("gmr_classes")),
        ),
        "The stream": (INLIER_RATE, STATISTIC, ACCURACY, THROUGHPUT),
        "The service": (REQUESTS, HTTP_ERRORS),
    },
)
