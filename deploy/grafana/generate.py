"""The dashboards of Grafana, made from this description: python deploy/grafana/generate.py

`dashboards/*.json` are what this writes; change them here, never there. A test compares.

Every API process repeats what the trainer says, so a panel about the trainer takes the
maximum over the processes, and a panel about requests the sum. All are about the job that is
chosen above them, and about the model, but for what a process tells of all models together.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH = 24


OWN = "()"
"""The choice of the service's own model: it is a pattern of no text, and no name of a model."""

CHOSEN = r'job="$job", model=~"$model", model=~"(\\Q$model\\E)?"'
"""What is of the chosen job and model.

The service's own has no label `model`, so a choice is a pattern. The second one takes a name as it
is written: pump.7 is not pump-7.
"""

OF_ALL = 'job="$job", model=""'
"""What an API process tells once, of all of its models together."""


def once(expression: str) -> str:
    """What every process says alike, once."""
    return f"max without (instance, job) ({expression})"


def gauge(name: str) -> str:
    """A number of the trainer's."""
    return once(f"{name}{{{CHOSEN}}}")


def rate(name: str, window: str = "1m") -> str:
    """A counter of the trainer's, per second."""
    return once(f"rate({name}{{{CHOSEN}}}[{window}])")


def quantile(share: float, name: str, by: str = "le", window: str = "5m", of: str = CHOSEN) -> str:
    """A quantile of a histogram, of all processes together."""
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{{{of}}}[{window}])))"


def by_route(share: float) -> str:
    """A quantile of the time to answer."""
    return quantile(share, "gmr_http_request_duration_seconds", "le, route", of=OF_ALL)


@dataclass(frozen=True)
class Variable:
    """A choice above the panels.

    Arguments:
        name: In queries, after a dollar sign.
        label: Beside the choice.
        query: What there is to choose from.
        text: Of the choice that a page begins with.
        value: What that choice stands for.
        regex: Of a line that the query answers: groups `value` and `text`.
    """

    name: str
    label: str
    query: str
    text: str
    value: str
    regex: str = ""

    def to_json(self) -> dict[str, Any]:
        """The variable as Grafana reads it."""
        return {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": SOURCE,
            "definition": self.query,
            "query": {"query": self.query, "refId": "StandardVariableQuery"},
            "regex": self.regex,
            "current": {"selected": True, "text": self.text, "value": self.value},
            "options": [],
            # Curves are named by what they show: those of several models would be called alike.
            "multi": False,
            "includeAll": False,
            "refresh": 1,
            "sort": 1,
            "hide": 0,
            "skipUrlSync": False,
        }


OWN_TEXT = "(the service's own)"
"""The first of all choices by the alphabet, so that Grafana falls back to it."""


def of_own(expression: str, label: str, value: str) -> str:
    """The same with a label more where there is no label `model`."""
    return f'label_replace({expression}, "{label}", "{value}", "model", "")'


# label_values would leave out the service's own, which has no label.
MODELS = 'label_join(count by (model) (up{job="$job"}), "value", "", "model")'
VARIABLES = (
    Variable("job", "job", "label_values(gmr_redis_up, job)", "gmr", "gmr"),
    Variable(
        "model",
        "model",
        f"query_result({of_own(of_own(MODELS, 'value', OWN), 'text', OWN_TEXT)})",
        OWN_TEXT,
        OWN,
        r'/\bvalue="(?<value>[^"]+)|\btext="(?<text>[^"]+)/g',
    ),
)


@dataclass(frozen=True)
class Query:
    """A query, and what its curve is called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A number or a chart.

    Arguments:
        title: Above it.
        says: What a reader who has not met it must know.
        queries: One curve or more.
        unit: Of Grafana.
        number: Whether the newest value is shown instead of a chart.
        width: Of 24.
        alarm: Where a red line is drawn.
        more: Further defaults, such as `min`.
    """

    title: str
    says: str
    queries: tuple[Query, ...]
    unit: str = "none"
    number: bool = False
    width: int = 12
    alarm: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """In rows of Grafana's grid."""
        return 4 if self.number else 8

    def to_json(self, identity: int, x: int, y: int) -> dict[str, Any]:
        """The panel as Grafana reads it."""
        defaults: dict[str, Any] = {"unit": self.unit, **self.more}
        if self.number:
            options: dict[str, Any] = {
                "colorMode": "value",
                "graphMode": "none",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "textMode": "auto",
            }
        else:
            options = {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "none"},
            }
            defaults["custom"] = {"lineWidth": 2, "fillOpacity": 0, "showPoints": "never"}
        if self.alarm is not None:
            calm = "green" if self.number else "transparent"
            steps = [{"color": calm, "value": None}, {"color": "red", "value": self.alarm}]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
            if not self.number:
                defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
        return {
            "id": identity,
            "type": "stat" if self.number else "timeseries",
            "title": self.title,
            "description": self.says,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": SOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                    **({"instant": True} if self.number else {}),
                }
                for place, query in enumerate(self.queries)
            ],
            "options": options,
        }


@dataclass(frozen=True)
class Dashboard:
    """A page: rows of panels by their titles."""

    name: str
    title: str
    says: str
    rows: dict[str, tuple[Panel, ...]]

    def to_json(self) -> dict[str, Any]:
        """The page as Grafana reads it; panels fill the grid from left to right."""
        panels: list[dict[str, Any]] = []
        y = 0
        for title, row in self.rows.items():
            place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
            head = {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False}
            panels.append({**head, "gridPos": place, "panels": []})
            y += 1
            x = tallest = 0
            for panel in row:
                if x + panel.width > WIDTH:
                    x, y, tallest = 0, y + tallest, 0
                panels.append(panel.to_json(len(panels) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        boundaries = {
            "name": "Boundaries",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": "orange",
            "expr": f"changes({gauge('gmr_boundaries_total')}[15s:5s]) > 0",
            "titleFormat": "boundary",
            "step": "5s",
            "useValueForTime": False,
        }
        links = {
            "title": "GMR",
            "type": "dashboards",
            "tags": ["gmr"],
            "asDropdown": False,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
        }
        return {
            "uid": f"gmr-{self.name}",
            "title": self.title,
            "description": self.says,
            "tags": ["gmr"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "5s",
            "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser",
            "links": [links],
            "templating": {"list": [one.to_json() for one in VARIABLES]},
            "annotations": {"list": [boundaries]},
            "panels": panels,
        }


def number(title: str, says: str, expr: str, unit: str = "none", **more: Any) -> Panel:
    """A number, four to a row and a half."""
    return Panel(title, says, (Query(expr),), unit, number=True, width=4, **more)


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

ASKED = f'{OF_ALL}, route!~"/metrics|/health/.*"'
ANSWERED = f"sum(rate(gmr_http_requests_total{{{ASKED}}}[5m]))"
FAILED = f'sum(rate(gmr_http_requests_total{{{ASKED}, status=~"5.."}}[5m]))'

DASHBOARDS = (
    Dashboard(
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
    ),
    Dashboard(
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
    ),
    Dashboard(
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
    ),
    Dashboard(
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
    ),
    Dashboard(
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
    ),
)


def texts() -> dict[str, str]:
    """Name of a file -> its text."""
    return {
        f"{dashboard.name}.json": json.dumps(dashboard.to_json(), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }


def main() -> int:
    """Write the dashboards."""
    for name, text in texts().items():
        (HERE / "dashboards" / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
