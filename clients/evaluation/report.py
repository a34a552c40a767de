"""The report of an evaluation: report.json, report.html and the figures.

Rules: everything is made from an `Evaluation` (and the samples drawn for the
montage, which are too many for JSON); nothing is measured here. report.html is
one file that needs no other and no network; the figures lie beside it too, as
PNG, for papers and talks.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike

from clients.data.tasks import PAPER_SLTS
from clients.evaluation import figures
from clients.evaluation.results import SCHEMA, Evaluation, Protocol, Run
from clients.evaluation.scores import Latency, Spread

Drawn = Mapping[object, ArrayLike]
"""Class -> samples drawn from it, with shape (n, D)."""


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    json: Path
    html: Path
    figures: Mapping[str, Path]  # name -> PNG


def write_report(evaluation: Evaluation, drawn: Drawn, directory: Path) -> Report:
    """Write report.json, report.html and the figures.

    Arguments:
        evaluation: What was measured; figures of single batches show its first run.
        drawn: Samples per class, for the montage; empty leaves it out.
        directory: Where to; created if need be, files of the same names are replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = _draw(evaluation, drawn, directory)
    json_path, html_path = directory / "report.json", directory / "report.html"
    json_path.write_bytes(orjson.dumps(evaluation.to_dict(), option=orjson.OPT_INDENT_2))
    html_path.write_text(_html(evaluation, paths), encoding="utf-8")
    return Report(json_path, html_path, paths)


def _draw(evaluation: Evaluation, drawn: Drawn, directory: Path) -> dict[str, Path]:
    run, tasks = evaluation.runs[0], evaluation.protocol.sub_tasks
    history, speed = run.history, run.speed
    seen = [[m.accuracy_seen for m in each.milestones] for each in evaluation.runs]
    joint = [[m.accuracy_joint for m in each.milestones] for each in evaluation.runs]
    drawings: dict[str, Callable[[], Any]] = {
        "accuracy": lambda: figures.accuracy(seen, joint, tasks),
        "accuracy_matrix": lambda: figures.accuracy_matrix(run.matrix, tasks),
        "confusion": lambda: figures.confusion(run.confusion, evaluation.data.classes),
        "inlier_rate": lambda: figures.inlier_rate(
            history.inlier_rate, history.set_aside, history.sub_task, run.boundaries, tasks
        ),
        "prequential": lambda: figures.prequential(
            history.prequential_accuracy, history.labelled, history.sub_task, tasks
        ),
        "speed": lambda: figures.speed(
            speed.ingest_seconds,
            speed.classify_seconds,
            evaluation.protocol.batch_size,
            speed.classify_batch,
        ),
    }
    shape = evaluation.data.image_shape
    if drawn and shape is not None and len(shape) == 2:
        height, width = shape
        drawings["samples"] = lambda: figures.samples(drawn, (height, width))
    return {
        name: figures.save(draw(), directory / f"{name}.png") for name, draw in drawings.items()
    }


_CAPTIONS = {
    "accuracy": "Accuracy over the classes seen so far, and over all classes of the joint test "
    "set, which no model can know before it has met them.",
    "accuracy_matrix": "Each row is one model: after which sub-task, tested on the classes of "
    "each. Down a column, what was learned is kept or forgotten.",
    "confusion": "Answers on the joint test set after the last sub-task.",
    "inlier_rate": "Share of inliers in each batch, before the batch was learned. Dashed: true "
    "changes. Triangles: boundaries that the service reported, at the batch that told it.",
    "prequential": "Each batch is classified before it is learned, so the first samples of a new "
    "class are always wrong.",
    "samples": "Drawn through /sample, with the class as the only input, from the final model.",
    "speed": "Cumulative distribution of the time per request.",
}

_SCORES: tuple[tuple[str, str, str, str], ...] = (
    ("accuracy", "accuracy", "%", "all classes of the joint test set, after the last sub-task"),
    ("average_accuracy", "ACC", "%", "mean over sub-tasks of the final accuracy"),
    (
        "backward_transfer",
        "BWT",
        "points",
        "change of accuracy on earlier sub-tasks since each was learned; below 0 is forgetting",
    ),
    ("forgetting", "forgetting", "points", "best earlier accuracy minus the final one, mean"),
    (
        "average_anytime_accuracy",
        "average anytime accuracy",
        "%",
        "mean over time of the accuracy on sub-tasks seen by then",
    ),
    (
        "prequential_accuracy",
        "prequential accuracy",
        "%",
        "every labelled sample classified before it was learned",
    ),
    ("boundaries_found", "boundaries found", "count", "true changes reported in time"),
    ("boundaries_missed", "missed", "count", "true changes not reported in time"),
    ("boundaries_false", "false", "count", "reports without a true change"),
    ("boundary_delay_batches", "delay, batches", "number", "mean over found boundaries"),
    ("boundary_delay_samples", "delay, samples", "number", "mean over found boundaries"),
    (
        "samples_per_second",
        "samples per second",
        "count",
        "from the first request until the last sample is learned",
    ),
)


def score_rows(summary: Mapping[str, Spread]) -> list[tuple[str, str, str, str, str, str]]:
    """The headline scores as text: name, value, std, min, max, what it says.

    For a single seed, the spread columns are dashes.
    """
    rows = []
    for key, name, unit, meaning in _SCORES:
        spread = summary[key]
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        value, std, low, high = (_number(number, unit) for number in numbers)
        suffix = {"%": " %", "points": " points"}.get(unit, "") if value != _NONE else ""
        rows.append((name, value + suffix, std, low, high, meaning))
    return rows


def unwatched_lines(evaluation: Evaluation) -> list[str]:
    """Lines on the first run's sub-tasks that were too short for the detector, and what to do."""
    epochs = evaluation.protocol.epochs
    return [one.told(epochs) for one in evaluation.runs[0].unwatched]


def _html(evaluation: Evaluation, paths: Mapping[str, Path]) -> str:
    def figure(name: str) -> Markup:
        if name not in paths:
            return Markup("")
        content = paths[name].read_bytes()
        # All to one scale, so that letters have one size on the page.
        width = min(100, round(100 * figures.width_inches(content) / figures.PAGE_INCHES))
        data = base64.b64encode(content).decode("ascii")
        return Markup(
            '<figure><img alt="{}" style="width: {}%" src="data:image/png;base64,{}">'
            "<figcaption>{}</figcaption></figure>"
        ).format(name.replace("_", " "), width, data, _CAPTIONS[name])

    source = (
        resources.files("clients.evaluation").joinpath("templates/report.html").read_text("utf-8")
    )
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source).render(figure=figure, **_content(evaluation))


def _content(evaluation: Evaluation) -> dict[str, Any]:
    """Everything that the page says, as text."""
    data, protocol, run = evaluation.data, evaluation.protocol, evaluation.runs[0]
    several = len(evaluation.runs) > 1
    summary = evaluation.summary()
    return {
        "title": f"{data.name}, {_short(protocol)}: continual learning through a live service",
        "lead": _lead(evaluation),
        "cards": _cards(summary),
        "notes": _notes(evaluation),
        "several": several,
        "per_seed": f" (seed {run.seed})" if several else "",
        "scores": {
            "caption": f"Mean over {len(evaluation.runs)} seeds." if several else "One seed.",
            "rows": [
                dict(zip(("name", "value", "std", "min", "max", "meaning"), row, strict=True))
                for row in score_rows(summary)
            ],
        },
        "milestones": [
            {
                "sub_task": milestone.sub_task,
                "classes": ", ".join(map(str, milestone.classes)),
                "samples": f"{milestone.samples_sent:,}",
                "seen": _number(milestone.accuracy_seen, "%"),
                "joint": _number(milestone.accuracy_joint, "%"),
                "version": milestone.model_version,
            }
            for milestone in run.milestones
        ],
        "held": held_rows(run),
        "prediction": _prediction(run),
        "tolerance": f"{protocol.tolerance_samples:,}",
        "boundaries": _boundary_rows(run, protocol.sub_tasks),
        "unwatched": unwatched_lines(evaluation),
        "outliers": [
            {
                "name": test.name,
                "samples": f"{test.samples:,}",
                "auroc": _number(test.auroc, "share"),
                "inlier_rate": _number(test.inlier_rate, "%"),
            }
            for test in run.outliers
        ],
        "latencies": [
            _latency_row("POST /ingest", run.speed.ingest, protocol.batch_size),
            _latency_row("POST /classify", run.speed.classify, run.speed.classify_batch),
        ],
        "throughput": (
            f"{sum(run.history.samples):,} samples were sent and learned in "
            f"{run.speed.stream_seconds:.1f} s: {run.speed.samples_per_second:,.0f} samples per "
            f"second end to end, not counting the evaluations in between."
        ),
        "command": evaluation.command,
        "facts": _facts(evaluation),
        "schema": SCHEMA,
    }


def _short(protocol: Protocol) -> str:
    """The SLT's name where it has one; those written out can be long."""
    named = protocol.slt in PAPER_SLTS
    return protocol.slt if named else f"{len(protocol.sub_tasks)} sub-tasks"


def _lead(evaluation: Evaluation) -> str:
    data, protocol = evaluation.data, evaluation.protocol
    n, once = len(protocol.sub_tasks), protocol.epochs == 1
    labels = (
        "all of them labelled"
        if protocol.labelled == 1
        else f"{100 * protocol.labelled:g} % of them labelled"
    )
    return (
        f"{data.train_samples:,} training samples of {len(data.classes)} classes, {labels}, were "
        f"streamed through POST /ingest as {n} sub-task{'s' if n > 1 else ''} in batches of "
        f"{protocol.batch_size}, {'once' if once else f'{protocol.epochs} times'}. "
        f"Answers come from POST /classify on {data.test_samples:,} test samples. "
        f"{evaluation.created[:16].replace('T', ' ')} UTC."
    )


def _cards(summary: Mapping[str, Spread]) -> list[dict[str, object]]:
    found, true = summary["boundaries_found"].mean, summary["boundaries_true"].mean
    false = summary["boundaries_false"].mean
    return [
        {
            "value": f"{_number(summary['accuracy'].mean, '%')} %",
            "label": "accuracy, all classes",
            "bad": False,
        },
        {
            "value": _number(summary["forgetting"].mean, "points"),
            "label": "points of forgetting",
            "bad": False,
        },
        {
            "value": f"{_number(found, 'count')} of {_number(true, 'count')}",
            "label": "boundaries found",
            "bad": found < true,
        },
        {"value": _number(false, "count"), "label": "false boundaries", "bad": false > 0},
        {
            "value": _number(summary["boundary_delay_batches"].mean, "number"),
            "label": "batches of delay",
            "bad": False,
        },
        {
            "value": _number(summary["samples_per_second"].mean, "count"),
            "label": "samples per second",
            "bad": False,
        },
    ]


def _notes(evaluation: Evaluation) -> list[str]:
    """What a reader must know before believing the numbers."""
    notes = []
    if evaluation.protocol.service.get("warm"):
        notes.append(
            "The service had learned from other samples before this evaluation began, so these "
            "numbers do not describe a fresh model."
        )
    if evaluation.protocol.limit is not None:
        notes.append(
            f"Training was cut to {evaluation.protocol.limit:,} samples per sub-task (--limit): "
            f"do not compare with runs on all of them."
        )
    return notes


def _boundary_rows(run: Run, sub_tasks: Sequence[Sequence[object]]) -> list[dict[str, str]]:
    score = run.boundaries
    starts = sorted([match.true for match in score.matches] + [*score.missed])
    detector = {found.batch: found.detector for found in run.found}
    matches = {match.change: match for match in score.matches}
    rows = []
    for change, start in enumerate(starts, 1):
        match = matches.get(change)
        rows.append(
            {
                "change": str(change),
                "classes": ", ".join(map(str, sub_tasks[change])),
                "true": str(start.batch),
                "found": str(match.found.batch - 1) if match else "missed",
                "batches": str(match.delay_batches) if match else _NONE,
                "samples": f"{match.delay_samples:,}" if match else _NONE,
                "detector": detector.get(match.found.batch, _NONE) if match else _NONE,
            }
        )
    rows += [
        {
            "change": "false",
            "classes": _NONE,
            "true": _NONE,
            "found": str(report.batch - 1),
            "batches": _NONE,
            "samples": _NONE,
            "detector": detector.get(report.batch, _NONE),
        }
        for report in score.false
    ]
    return rows


def held_rows(run: Run) -> list[dict[str, str]]:
    """How well each past sub-task is still held, then and now, as text.

    Keys are `sub_task` and `classes`, and for the model's own samples (`own_`) and test data
    (`test_`) `accuracy`, `probability` and `log_likelihood`.
    """
    rows = []
    for held in run.held:
        row = {
            "sub_task": str(held.sub_task),
            "classes": ", ".join(map(str, held.classes)) or _NONE,
        }
        for whose, then, now in (
            ("own", held.own_then, held.own_now),
            ("test", held.test_then, held.test_now),
        ):
            row[f"{whose}_accuracy"] = _then_now(then.accuracy, now.accuracy, "%")
            row[f"{whose}_probability"] = _then_now(then.probability, now.probability, "%")
            row[f"{whose}_log_likelihood"] = _then_now(
                then.log_likelihood, now.log_likelihood, "nats"
            )
        rows.append(row)
    return rows


def _then_now(then: float, now: float, unit: str) -> str:
    if not (math.isfinite(then) and math.isfinite(now)):
        return _NONE
    return f"{_number(then, unit)} \N{RIGHTWARDS ARROW} {_number(now, unit)}"


def _prediction(run: Run) -> str:
    """How well the model's own samples tell what test data tell, in a sentence."""
    rows = [row for row in run.held if math.isfinite(row.own_now.accuracy + row.test_now.accuracy)]
    if not rows:
        return ""

    def change(whose: str, name: str) -> str:
        pairs = ((getattr(row, f"{whose}_{when}") for when in ("then", "now")) for row in rows)
        changes = [getattr(now, name) - getattr(then, name) for then, now in pairs]
        return _number(sum(changes) / len(changes), "points")

    return (
        f"Mean change over past sub-tasks, in points: accuracy {change('own', 'accuracy')} by the "
        f"model's own samples, {change('test', 'accuracy')} by test data; certainty "
        f"{change('own', 'probability')} by its own samples, {change('test', 'probability')} by "
        f"test data."
    )


def _latency_row(name: str, latency: Latency, samples: int) -> dict[str, str]:
    milliseconds = {
        key: _number(1000 * getattr(latency, key), "number")
        for key in ("mean", "p50", "p90", "p99", "max")
    }
    return {
        "name": name,
        "requests": f"{latency.requests:,}",
        "samples": f"{samples:,}",
        **milliseconds,
    }


def _facts(evaluation: Evaluation) -> list[dict[str, Any]]:
    data, protocol, model = evaluation.data, evaluation.protocol, evaluation.runs[0].model
    sub_tasks = " / ".join(",".join(map(str, classes)) for classes in protocol.sub_tasks)
    setting = [
        ("data", f"{data.name} ({data.source}), {data.features} features"),
        ("sub-tasks", f"{protocol.slt}: {sub_tasks}"),
        ("batch size", str(protocol.batch_size)),
        ("epochs", str(protocol.epochs)),
        ("seeds", ", ".join(map(str, protocol.seeds))),
        ("labelled", f"{100 * protocol.labelled:g} %"),
        *((f"service: {name}", str(value)) for name, value in protocol.service.items()),
        ("duration", f"{evaluation.duration_seconds:.0f} s"),
    ]
    described = [
        (name, f"{value:,}" if isinstance(value, int) and value > 9999 else str(value))
        for name, value in model.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    machine = [
        *((name.replace("_", " "), str(value)) for name, value in evaluation.hardware.items()),
        *((f"version of {name}", value) for name, value in evaluation.versions.items()),
    ]
    return [
        {"caption": "Protocol.", "rows": setting},
        {"caption": "The model at the end, as GET /model describes it.", "rows": described},
        {"caption": "Machine and versions, of the client.", "rows": machine},
    ]


_NONE = "\N{EN DASH}"


def _number(value: float, unit: str) -> str:
    """A number as a table shows it; a dash where there is none.

    Example:
        >>> _number(0.92345, "%"), _number(-0.0312, "points"), _number(1234.5, "count")
        ('92.3', '-3.1', '1,234')
        >>> _number(0.98765, "share"), _number(1.0, "number"), _number(math.nan, "%") == _NONE
        ('0.988', '1', True)
    """
    if not math.isfinite(value):
        return _NONE
    if unit in ("%", "points"):
        return f"{100 * value:.1f}"
    if unit == "nats":
        return f"{value:,.1f}"
    if unit == "share":
        return f"{value:.3f}"
    if unit == "count":
        return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
    return f"{value:,.1f}".removesuffix(".0")
