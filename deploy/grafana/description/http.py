"""The dashboard `http`: what is asked of the API, how long it takes, and what is refused."""

from __future__ import annotations

from deploy.grafana.description.dashboard import Dashboard, Panel, Query, number
from deploy.grafana.description.panels import FROM_ZERO, HTTP_ERRORS, REQUESTS
from deploy.grafana.description.queries import CHOSEN, OF_ALL, by_route

ASKED = f'{OF_ALL}, route!~"/metrics|/health/.*"'
ANSWERED = f"sum(rate(gmr_http_requests_total{{{ASKED}}}[5m]))"
FAILED = f'sum(rate(gmr_http_requests_total{{{ASKED}, status=~"5.."}}[5m]))'

DASHBOARD = Dashboard(
    "http",
    "GMR: HTTP",
    "What is asked, how long it takes, and what is refused.",
    {
        "Now": (
            number("Processes up", "API processes that answer.", f"sum(up{{{OF_ALL}}})"),
            number(
                "Listeners",
                "Open connections of GET /events.",
                f"sum(gmr_event_listeners{{{CHOSEN}}})",
            ),
            number(
                "Failing",
                "Share of answers with status 5xx, of all models, over five minutes. Those to "
                "Prometheus and to probes are left out.",
                # No answer with 5xx is a share of zero, not an unknown one.
                f"({FAILED} or 0 * {ANSWERED}) / {ANSWERED}",
                "percentunit",
                alarm=0.05,
            ),
        ),
        "Requests": (
            REQUESTS,
            HTTP_ERRORS,
            Panel(
                "Median latency",
                "By route, of all models.",
                (
                    Query(
                        by_route(0.5),
                        "{{route}}",
                    ),
                ),
                "s",
                more=FROM_ZERO,
            ),
            Panel(
                "Latency, 99th percentile",
                "By route, of all models.",
                (
                    Query(
                        by_route(0.99),
                        "{{route}}",
                    ),
                ),
                "s",
                more=FROM_ZERO,
            ),
        ),
    },
)
