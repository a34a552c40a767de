"""A report as one HTML page, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from clients.data.tasks import PAPER_SLTS
from clients.evaluation import figures
from clients.evaluation.comparison import Comparison
from clients.evaluation.inline_svg import inline, width_inches
from clients.evaluation.report_rows import (
    boundary_rows,
    detector_rows,
    fact_rows,
    held_rows,
    latency_row,
    score_rows,
    unwatched_lines,
)
from clients.evaluation.results import SCHEMA, Evaluation, Protocol, Run
from clients.evaluation.score_table import number_text
from clients.evaluation.scores import Spread

_CAPTIONS = {
    "compared_accuracy": "Accuracy over the classes seen so far, of each evaluation: the mean over "
    "its seeds, and their range. The scale begins near the lowest value.",
    "accuracy": "Accuracy over the classes seen so far, and over all classes of the joint test "
    "set, which no model can know before it has met them.",
    "accuracy_matrix": "Each row is one model: after which sub-task, tested on the classes of "
    "each. Down a column, what was learned is kept or forgotten.",
    "confusion": "Answers on the joint test set after the last sub-task.",
    "inlier_rate": "Share of inliers in each batch, before the batch was learned. Dashed: true "
    "changes. Triangles: boundaries that the service reported, at the batch that told it.",
    "prequential": "Each batch is classified before it is learned, so the first samples of a new "
    "class are always wrong. Dashed: the accuracy that the service expects of the newest samples, "
    "without looking at their labels.",
    "samples": "Drawn through /sample, with the class as the only input, from the final model.",
    "speed": "Cumulative distribution of the time per request.",
}


def page(
    evaluation: Evaluation,
    drawings: Mapping[str, str] | None = None,
    comparison: Comparison | None = None,
) -> str:
    """The report as one HTML page.

    Arguments:
        evaluation: What was measured.
        drawings: Name of a figure -> SVG; a figure that is not there is left out.
        comparison: Of the same evaluation with others.
    """
    drawings = drawings or {}

    def figure(name: str) -> Markup:
        if name not in drawings:
            return Markup("")
        svg, caption = drawings[name], _CAPTIONS[name]
        # All to one scale, so that letters have one size on the page.
        width = min(100, round(100 * width_inches(svg) / figures.PAGE_INCHES))
        label = f"{name.replace('_', ' ').capitalize()}. {caption}"
        return Markup(
            '<figure><div class="wide"><div class="drawing" style="--share: {}">{}</div></div>'
            "<figcaption>{}</figcaption></figure>"
        ).format(width / 100, Markup(inline(svg, name, label)), caption)

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_template("report.html")).render(
        figure=figure, **_content(evaluation, comparison)
    )


def markdown(evaluation: Evaluation, comparison: Comparison | None = None) -> str:
    """The report as Markdown, with links to two or three of the figures."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return (
        environment.from_string(_template("report.md"))
        .render(**_content(evaluation, comparison))
        .strip()
        + "\n"
    )


def _template(name: str) -> str:
    folder = resources.files("clients.evaluation").joinpath("templates")
    return folder.joinpath(name).read_text("utf-8")


def _content(evaluation: Evaluation, comparison: Comparison | None) -> dict[str, Any]:
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
                "seen": number_text(milestone.accuracy_seen, "%"),
                "joint": number_text(milestone.accuracy_joint, "%"),
                "version": milestone.model_version,
            }
            for milestone in run.milestones
        ],
        "held": held_rows(run),
        "prediction": _prediction(run),
        "tolerance": f"{protocol.tolerance_samples:,}",
        "boundaries": boundary_rows(run, protocol.sub_tasks),
        "detectors": detector_rows(run),
        "unwatched": unwatched_lines(evaluation),
        "outliers": [
            {
                "name": test.name,
                "samples": f"{test.samples:,}",
                "auroc": number_text(test.auroc, "share"),
                "inlier_rate": number_text(test.inlier_rate, "%"),
            }
            for test in run.outliers
        ],
        "latencies": [
            latency_row("POST /ingest", run.speed.ingest, protocol.batch_size),
            latency_row("POST /classify", run.speed.classify, run.speed.classify_batch),
        ],
        "throughput": (
            f"{sum(run.history.samples):,} samples were sent and learned in "
            f"{run.speed.stream_seconds:.1f} s: {run.speed.samples_per_second:,.0f} samples per "
            f"second end to end, not counting the evaluations in between."
        ),
        "comparison": None if comparison is None else comparison.content(),
        "command": evaluation.command,
        "facts": fact_rows(evaluation),
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
            "value": f"{number_text(summary['accuracy'].mean, '%')} %",
            "label": "accuracy, all classes",
            "bad": False,
        },
        {
            "value": number_text(summary["forgetting"].mean, "points"),
            "label": "points of forgetting",
            "bad": False,
        },
        {
            "value": f"{number_text(found, 'count')} of {number_text(true, 'count')}",
            "label": "boundaries found",
            "bad": found < true,
        },
        {"value": number_text(false, "count"), "label": "false boundaries", "bad": false > 0},
        {
            "value": number_text(summary["boundary_delay_batches"].mean, "number"),
            "label": "batches of delay",
            "bad": False,
        },
        {
            "value": number_text(summary["samples_per_second"].mean, "count"),
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


def _prediction(run: Run) -> str:
    """How well the model's own samples tell what test data tell, in a sentence."""
    rows = [row for row in run.held if math.isfinite(row.own_now.accuracy + row.test_now.accuracy)]
    if not rows:
        return ""

    def change(whose: str, name: str) -> str:
        pairs = ((getattr(row, f"{whose}_{when}") for when in ("then", "now")) for row in rows)
        changes = [getattr(now, name) - getattr(then, name) for then, now in pairs]
        return number_text(sum(changes) / len(changes), "points")

    return (
        f"Mean change over past sub-tasks, in points: accuracy {change('own', 'accuracy')} by the "
        f"model's own samples, {change('test', 'accuracy')} by test data; certainty "
        f"{change('own', 'probability')} by its own samples, {change('test', 'probability')} by "
        f"test data."
    )
