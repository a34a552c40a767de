"""How accurate is continual learning on the paper's sequential learning tasks, and what is found?

Runs `gmr evaluate` (one pass, batches of 100, a private service with the default
model) on every data set that is at hand, for each SLT and seed, and puts the result
beside that of the paper (Pfuelb, Gepperth and Bagus 2021): accuracy over all ten
classes of the joint test set after the last sub-task. The paper trains for 50 epochs
and more per sub-task and reports the best accuracy of a run, averaged over ten; its
splits differ from ours, so read differences of a point as none.
"""

from __future__ import annotations

from typing import Any

from clients.commands.bench import Measurement, Say, Table
from clients.commands.evaluate import evaluate
from clients.data.datasets import known_datasets
from clients.evaluation.listener import Silent
from clients.evaluation.plan import Plan
from clients.evaluation.results import Evaluation

SLTS = ("D10", "D9-1a", "D9-1b", "D5-5a", "D5-5b", "D2-2-2-2-2a", "D2-2-2-2-2b")
DATA = ("mnist", "fashion_mnist", "devanagari")
SEEDS = (0, 1, 2)

# Its table of results: accuracy on D10, and what each SLT loses against that.
PAPER = {
    "mnist": (87.4, (0.0, -1.3, -3.5, -0.6, -1.3, -9.5, -10.4)),
    "fashion_mnist": (73.9, (0.0, -2.7, -1.5, -1.2, -1.9, -8.5, -5.7)),
    "devanagari": (74.1, (0.0, -3.2, -1.4, -6.8, -4.7, -22.5, -14.7)),
}


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: two SLTs on the digits that ship with scikit-learn, one seed."""
    if quick:
        cases = [("digits", slt) for slt in ("D10", "D5-5a")]
    else:
        cases = [(source, slt) for source in DATA for slt in SLTS if _at_hand(source, say)]
    seeds = SEEDS[:1] if quick else SEEDS
    rows, values = [], []
    for source, slt in cases:
        say(f"{source} {slt}, {len(seeds)} seed(s)")
        # Eleven passes over the few digits, as in the demo.
        plan = Plan(source=source, slt=slt, seeds=seeds, epochs=11 if source == "digits" else 1)
        evaluation, _ = evaluate(plan, Silent(), f"gmr evaluate {source} --slt {slt}")
        rows.append(_row(source, slt, evaluation))
        values.append({"source": source, "slt": slt, **_numbers(evaluation)})
    return Measurement(
        tables=(
            Table(
                f"Accuracy over all classes, %, {len(seeds)} seed(s); delay in batches",
                (
                    "data",
                    "SLT",
                    "accuracy",
                    "std",
                    "paper",
                    "forgets",
                    "found",
                    "false",
                    "delay",
                    "samples/s",
                ),
                tuple(rows),
            ),
        ),
        values={"results": values},
    )


def paper_accuracy(source: str, slt: str) -> float | None:
    """What the paper reports, in percent; None where it reports nothing.

    Example:
        >>> paper_accuracy("mnist", "D2-2-2-2-2a")
        77.9
    """
    if source not in PAPER or slt not in SLTS:
        return None
    baseline, differences = PAPER[source]
    return round(baseline + differences[SLTS.index(slt)], 1)


def _at_hand(source: str, say: Say) -> bool:
    if source in known_datasets():
        return True
    say(f"{source} is not at hand: left out")
    return False


def _row(source: str, slt: str, evaluation: Evaluation) -> tuple[str, ...]:
    summary = evaluation.summary()
    accuracy, delay = summary["accuracy"], summary["boundary_delay_batches"]
    paper = paper_accuracy(source, slt)
    n = len(evaluation.runs)
    return (
        source,
        slt,
        f"{100 * accuracy.mean:.1f}",
        f"{100 * accuracy.std:.2f}" if accuracy.n > 1 else "",
        "" if paper is None else f"{paper:.1f}",
        f"{100 * summary['forgetting'].mean:.1f}" if summary["forgetting"].n else "",
        f"{n * summary['boundaries_found'].mean:.0f} of {n * summary['boundaries_true'].mean:.0f}",
        f"{n * summary['boundaries_false'].mean:.0f}",
        f"{delay.mean:.1f}" if delay.n else "",
        f"{summary['samples_per_second'].mean:,.0f}",
    )


def _numbers(evaluation: Evaluation) -> dict[str, Any]:
    content = evaluation.to_dict()
    return {
        "summary": content["summary"],
        "runs": [{"seed": run["seed"], "scores": run["scores"]} for run in content["runs"]],
        "protocol": content["protocol"],
    }
