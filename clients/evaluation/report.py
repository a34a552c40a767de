"""The report of an evaluation: report.html, report.md, report.json, tables as CSV, the figures.

Rules: everything is made from an `Evaluation` (and the samples drawn for the
montage, which are too many for JSON) and from report.json of others to compare
with; nothing is measured here. report.html is one file that needs no other and
no network, and says everything; report.md says it without most figures. The
figures lie beside them too, as SVG for papers and PNG for talks.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike

from clients.data.tasks import PAPER_SLTS
from clients.evaluation import figures
from clients.evaluation.comparison import Comparison
from clients.evaluation.inline_svg import inline, width_inches
from clients.evaluation.recorded import Recorded
from clients.evaluation.results import SCHEMA, Evaluation, History, Protocol, Run
from clients.evaluation.score_table import NONE, SCORES, number_text
from clients.evaluation.scores import Latency, Spread

Drawn = Mapping[object, ArrayLike]
"""Class -> samples drawn from it, with shape (n, D)."""


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    json: Path
    html: Path
    markdown: Path
    scores: Path  # CSV: every score of every seed, of the evaluations compared with too
    history: Path  # CSV: every batch of every seed
    figures: Mapping[str, Path]  # name -> SVG; beside it lies a PNG of the same name

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file, PNGs too."""
        pictures = tuple(
            path for svg in self.figures.values() for path in (svg, svg.with_suffix(".png"))
        )
        return (self.html, self.markdown, self.json, self.scores, self.history, *pictures)


def write_report(
    evaluation: Evaluation, drawn: Drawn, directory: Path, compared: Sequence[Recorded] = ()
) -> Report:
    """Write a report.

    Arguments:
        evaluation: What was measured; figures of single batches show its first run.
        drawn: Samples per class, for the montage; empty leaves it out.
        directory: Where to; created if need be, files of the same names are replaced.
        compared: Evaluations to set beside it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    taken = {one.name for one in compared}
    recorded = Recorded.of(evaluation.to_dict(), "this" if "this" not in taken else "this one")
    comparison = Comparison(recorded, tuple(compared)) if compared else None
    drawings = _draw(evaluation, drawn, directory, comparison)
    report = Report(
        json=directory / "report.json",
        html=directory / "report.html",
        markdown=directory / "report.md",
        scores=directory / "scores.csv",
        history=directory / "history.csv",
        figures={name: directory / f"{name}.svg" for name in drawings},
    )
    report.json.write_bytes(orjson.dumps(evaluation.to_dict(), option=orjson.OPT_INDENT_2))
    report.html.write_text(page(evaluation, drawings, comparison), encoding="utf-8")
    report.markdown.write_text(markdown(evaluation, comparison), encoding="utf-8")
    _write_scores(report.scores, (recorded, *compared))
    _write_history(report.history, evaluation)
    return report


def _write_scores(path: Path, evaluations: Sequence[Recorded]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("evaluation", "seed", "score", "value"))
        for one in evaluations:
            for run in one.runs:
                for name, value in run.scores.items():
                    written = "" if math.isnan(value) else repr(value)
                    writer.writerow((one.name, run.seed, name, written))


def _write_history(path: Path, evaluation: Evaluation) -> None:
    names = [field.name for field in fields(History)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("seed", "batch", *names))
        for run in evaluation.runs:
            rows = zip(*(getattr(run.history, name) for name in names), strict=True)
            for batch, row in enumerate(rows):
                plain = ("" if isinstance(v, float) and math.isnan(v) else v for v in row)
                writer.writerow((run.seed, batch, *plain))


def _draw(
    evaluation: Evaluation, drawn: Drawn, directory: Path, comparison: Comparison | None
) -> dict[str, str]:
    """Draw every figure into the directory; name -> SVG."""
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
            history.prequential_accuracy,
            history.labelled,
            history.sub_task,
            tasks,
            estimates=history.estimated_accuracy,
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
    if comparison is not None:
        curves = {one.name: one.seen for one in comparison.all if one.seen}
        same = tasks if comparison.same_sub_tasks else None
        drawings["compared_accuracy"] = lambda: figures.compared_accuracy(curves, same)
    drawn_figures = {}
    for name, draw in drawings.items():
        figure = draw()
        drawn_figures[name] = figures.to_svg(figure)
        figures.save(figure, directory / f"{name}.png")
        (directory / f"{name}.svg").write_text(drawn_figures[name], encoding="utf-8")
    return drawn_figures


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


def score_rows(summary: Mapping[str, Spread]) -> list[tuple[str, str, str, str, str, str]]:
    """The headline scores as text: name, value, std, min, max, what it says.

    For a single seed, the spread columns are dashes.
    """
    rows = []
    for score in SCORES:
        spread, name, unit, meaning = summary[score.key], score.name, score.unit, score.meaning
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        value, std, low, high = (number_text(number, unit) for number in numbers)
        suffix = {"%": " %", "points": " points"}.get(unit, "") if value != NONE else ""
        rows.append((name, value + suffix, std, low, high, meaning))
    return rows


def unwatched_lines(evaluation: Evaluation) -> list[str]:
    """Lines on the first run's sub-tasks that were too short for the detector, and what to do."""
    epochs = evaluation.protocol.epochs
    return [one.told(epochs) for one in evaluation.runs[0].unwatched]


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
        "boundaries": _boundary_rows(run, protocol.sub_tasks),
        "detectors": _detector_rows(run),
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
            _latency_row("POST /ingest", run.speed.ingest, protocol.batch_size),
            _latency_row("POST /classify", run.speed.classify, run.speed.classify_batch),
        ],
        "throughput": (
            f"{sum(run.history.samples):,} samples were sent and learned in "
            f"{run.speed.stream_seconds:.1f} s: {run.speed.samples_per_second:,.0f} samples per "
            f"second end to end, not counting the evaluations in between."
        ),
        "comparison": None if comparison is None else comparison.content(),
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
                "batches": str(match.delay_batches) if match else NONE,
                "samples": f"{match.delay_samples:,}" if match else NONE,
                "detector": detector.get(match.found.batch, NONE) if match else NONE,
            }
        )
    rows += [
        {
            "change": "false",
            "classes": NONE,
            "true": NONE,
            "found": str(report.batch - 1),
            "batches": NONE,
            "samples": NONE,
            "detector": detector.get(report.batch, NONE),
        }
        for report in score.false
    ]
    return rows


def _detector_rows(run: Run) -> list[dict[str, str]]:
    """The detector that decided beside shadows; nothing without any."""
    if not run.shadows:
        return []
    names = {found.detector for found in run.found} - {"declared"}
    both = [(", ".join(sorted(names)) or "the one that decides", "decides", run.boundaries)]
    both += [(one.detector, "shadow", one.boundaries) for one in run.shadows]
    return [
        {
            "detector": name,
            "role": role,
            "alarms": str(len(score.matches) + len(score.false)),
            "found": str(len(score.matches)),
            "missed": str(len(score.missed)),
            "false": str(len(score.false)),
            "delay": f"{statistics.median(score.delays_samples):,g}" if score.matches else NONE,
        }
        for name, role, score in both
    ]


def held_rows(run: Run) -> list[dict[str, str]]:
    """How well each past sub-task is still held, then and now, as text.

    Keys are `sub_task` and `classes`, and for the model's own samples (`own_`) and test data
    (`test_`) `accuracy`, `probability` and `log_likelihood`.
    """
    rows = []
    for held in run.held:
        row = {
            "sub_task": str(held.sub_task),
            "classes": ", ".join(map(str, held.classes)) or NONE,
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
        return NONE
    return f"{number_text(then, unit)} \N{RIGHTWARDS ARROW} {number_text(now, unit)}"


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


def _latency_row(name: str, latency: Latency, samples: int) -> dict[str, str]:
    milliseconds = {
        key: number_text(1000 * getattr(latency, key), "number")
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
