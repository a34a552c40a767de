"""Does the live service reach what was aimed at, for every preset and data set?

Runs `gmr evaluate` (one pass, batches of 100, a private service, boundaries found by the
service, nothing stored) on the tasks for which a target was set, with three seeds, and puts
mean and spread beside the target. `continual` runs all of the paper's tasks instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clients.commands.bench import Measurement, Say, Table
from clients.commands.evaluate import evaluate
from clients.data.datasets import known_datasets
from clients.evaluation.listener import Silent
from clients.evaluation.plan import Plan

SEEDS = (0, 1, 2)
PAIRS_OF_10_TO_19 = "10,11/12,13/14,15/16,17/18,19"
ONE_BY_ONE = "/".join(map(str, range(24)))
ALL_AT_ONCE = ",".join(map(str, range(24)))


@dataclass(frozen=True)
class RunTimeTarget:
    """One row: a stream, a model, and the accuracy aimed at, in percent."""

    source: str
    slt: str
    target: float | None
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""


SMALL = {"n_components": 10, "n_factors": 18}
FLAT = {"preset": "flat"}

AIMS: tuple[RunTimeTarget, ...] = (
    RunTimeTarget("mnist", "D10", 98.3),
    RunTimeTarget("mnist", "D9-1a", 98.3),
    RunTimeTarget("mnist", "D2-2-2-2-2a", 98.3),
    RunTimeTarget("mnist", "D2-2-2-2-2b", 98.3),
    RunTimeTarget("fashion_mnist", "D10", None),
    RunTimeTarget("fashion_mnist", "D2-2-2-2-2a", 88.5),
    RunTimeTarget("devanagari", "D10", None),
    RunTimeTarget("devanagari", "D2-2-2-2-2a", 98.7),
    RunTimeTarget("devanagari", PAIRS_OF_10_TO_19, 98.2, note="classes 10-19 in pairs"),
    RunTimeTarget("devanagari", ONE_BY_ONE, 97.0, note="24 classes, one at a time"),
    RunTimeTarget("devanagari", ALL_AT_ONCE, None, note="24 classes at once"),
    RunTimeTarget("mnist", "D2-2-2-2-2a", 95.5, SMALL, "at most 158,000 numbers"),
    RunTimeTarget("mnist", "D10", 92.5, FLAT),
    RunTimeTarget("mnist", "D9-1a", 92.0, FLAT),
    RunTimeTarget("mnist", "D2-2-2-2-2a", 92.5, FLAT),
    RunTimeTarget("mnist", "D2-2-2-2-2b", 92.5, FLAT),
    RunTimeTarget("fashion_mnist", "D10", None, FLAT),
    RunTimeTarget("fashion_mnist", "D2-2-2-2-2a", 80.0, FLAT),
    RunTimeTarget("devanagari", "D10", None, FLAT),
    RunTimeTarget("devanagari", "D2-2-2-2-2a", 95.0, FLAT),
)


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: two tasks on the digits that ship with scikit-learn, one seed."""
    aims = AIMS
    if quick:
        aims = (RunTimeTarget("digits", "D10", None), RunTimeTarget("digits", "D2-2-2-2-2a", None))
    seeds = SEEDS[:1] if quick else SEEDS
    rows, values = [], []
    for aim in aims:
        if aim.source != "digits" and aim.source not in known_datasets():
            say(f"{aim.source} is not at hand: left out")
            continue
        # Eleven passes over the few digits, as in the demo.
        plan = Plan(
            source=aim.source,
            slt=aim.slt,
            seeds=seeds,
            epochs=11 if aim.source == "digits" else 1,
            settings=aim.settings,
        )
        evaluation, _ = evaluate(plan, Silent(), f"gmr evaluate {aim.source} --slt {aim.slt}")
        summary = evaluation.summary()
        accuracy, n = summary["accuracy"], len(seeds)
        row = (
            aim.source,
            aim.note or aim.slt,
            aim.settings.get("preset", "mfa"),
            f"{100 * accuracy.mean:.2f}",
            f"{100 * accuracy.std:.2f}" if n > 1 else "",
            "" if aim.target is None else f"{aim.target:.1f}",
            f"{n * summary['boundaries_found'].mean:.0f} of "
            f"{n * summary['boundaries_true'].mean:.0f}",
            f"{n * summary['boundaries_false'].mean:.0f}",
            f"{summary['samples_per_second'].mean:,.0f}",
        )
        say("  ".join(row))
        rows.append(row)
        runs = [run["scores"] for run in evaluation.to_dict()["runs"]]
        values.append({**vars(aim), "seeds": list(seeds), "runs": runs})
    columns = (
        "data", "SLT", "preset", "accuracy", "std", "target", "found", "false", "samples/s",
    )  # fmt: skip
    title = f"Accuracy over all classes, %, {len(seeds)} seed(s)"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})
