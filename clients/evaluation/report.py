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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
from numpy.typing import ArrayLike

from clients.evaluation import figures
from clients.evaluation.comparison import Comparison
from clients.evaluation.recorded import Recorded
from clients.evaluation.report_page import markdown, page
from clients.evaluation.results import Evaluation, History
from clients.whole_file import WholeFile, write_whole

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
    write_whole(report.json, orjson.dumps(evaluation.to_dict(), option=orjson.OPT_INDENT_2))
    write_whole(report.html, page(evaluation, drawings, comparison).encode())
    write_whole(report.markdown, markdown(evaluation, comparison).encode())
    _write_scores(report.scores, (recorded, *compared))
    _write_history(report.history, evaluation)
    return report


def _write_scores(path: Path, evaluations: Sequence[Recorded]) -> None:
    with WholeFile(path) as whole, whole.text() as file:
        writer = csv.writer(file)
        writer.writerow(("evaluation", "seed", "score", "value"))
        for one in evaluations:
            for run in one.runs:
                for name, value in run.scores.items():
                    written = "" if math.isnan(value) else repr(value)
                    writer.writerow((one.name, run.seed, name, written))


def _write_history(path: Path, evaluation: Evaluation) -> None:
    names = [field.name for field in fields(History)]
    with WholeFile(path) as whole, whole.text() as file:
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
