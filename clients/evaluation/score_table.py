"""The headline scores of an evaluation: what each is called, says, and counts as better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NONE: Final = "\N{EN DASH}"


@dataclass(frozen=True)
class Score:
    """A headline score."""

    key: str  # in `Run.scores`
    name: str
    unit: str  # as `number_text` knows it
    better: int  # 1: more is better, -1: less is, 0: neither
    meaning: str


SCORES: Final = (
    Score("accuracy", "accuracy", "%", 1, "all classes of the joint test set, at the end"),
    Score("average_accuracy", "ACC", "%", 1, "mean over sub-tasks of the final accuracy"),
    Score(
        "backward_transfer",
        "BWT",
        "points",
        1,
        "change of accuracy on earlier sub-tasks since each was learned; below 0 is forgetting",
    ),
    Score(
        "forgetting", "forgetting", "points", -1, "best earlier accuracy minus the final one, mean"
    ),
    Score(
        "forward_transfer",
        "FWT",
        "share",
        1,
        "how much sooner a sub-task is learned than by a fresh model; needs --reference",
    ),
    Score(
        "average_anytime_accuracy",
        "average anytime accuracy",
        "%",
        1,
        "mean over time of the accuracy on sub-tasks seen by then",
    ),
    Score(
        "prequential_accuracy",
        "prequential accuracy",
        "%",
        1,
        "every labelled sample classified before it was learned",
    ),
    Score(
        "estimate_error",
        "accuracy estimate, error",
        "points",
        -1,
        "accuracy expected without labels, against prequential accuracy of ten batches; mean",
    ),
    Score(
        "sample_purity",
        "samples: purity",
        "%",
        1,
        "drawn samples whose nearest test samples are of the class that was asked for",
    ),
    Score(
        "sample_accepted",
        "samples: accepted",
        "%",
        1,
        "drawn samples that the model is as sure of as it wants to be",
    ),
    Score("sample_precision", "samples: precision", "%", 1, "drawn samples near a test sample"),
    Score("sample_recall", "samples: recall", "%", 1, "test samples near a drawn sample"),
    Score(
        "sample_density", "samples: density", "share", 1, "test samples about a drawn one, over k"
    ),
    Score("sample_coverage", "samples: coverage", "%", 1, "test samples with a drawn one about"),
    Score("boundaries_found", "boundaries found", "count", 1, "true changes reported in time"),
    Score("boundaries_missed", "missed", "count", -1, "true changes not reported in time"),
    Score("boundaries_false", "false", "count", -1, "reports without a true change"),
    Score("boundary_delay_batches", "delay, batches", "number", -1, "mean over found boundaries"),
    Score("boundary_delay_samples", "delay, samples", "number", -1, "mean over found boundaries"),
    Score(
        "samples_per_second",
        "samples per second",
        "count",
        1,
        "from the first request until the last sample is learned",
    ),
)


def number_text(value: float, unit: str) -> str:
    """A number as a table shows it; a dash where there is none.

    Example:
        >>> number_text(0.92345, "%"), number_text(-0.0312, "points"), number_text(1234.5, "count")
        ('92.3', '-3.1', '1,234')
        >>> number_text(0.98765, "share"), number_text(1.0, "number")
        ('0.988', '1')
        >>> number_text(math.nan, "%") == NONE
        True
    """
    if not math.isfinite(value):
        return NONE
    if unit in ("%", "points"):
        return f"{100 * value:z.1f}"  # z: what rounds to zero has no sign
    if unit == "nats":
        return f"{value:,.1f}"
    if unit == "share":
        return f"{value:.3f}"
    if unit == "count":
        return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
    return f"{value:,.1f}".removesuffix(".0")
