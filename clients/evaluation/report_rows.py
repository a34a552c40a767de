"""Rows of a report's tables, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from clients.evaluation.results import Evaluation, Run
from clients.evaluation.score_table import NONE, SCORES, number_text
from clients.evaluation.scores import Latency, Spread


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


def boundary_rows(run: Run, sub_tasks: Sequence[Sequence[object]]) -> list[dict[str, str]]:
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


def detector_rows(run: Run) -> list[dict[str, str]]:
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


def latency_row(name: str, latency: Latency, samples: int) -> dict[str, str]:
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


def fact_rows(evaluation: Evaluation) -> list[dict[str, Any]]:
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
