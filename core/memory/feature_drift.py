"""Which features of the newest samples are not as they were, while a sub-task goes on?

A boundary says what has changed at once. What creeps is learned as it goes, and no boundary tells
of it. So the means of the newest samples, a *window*, are compared with those of all earlier ones
of the sub-task, the *reference*, feature by feature. The course of the sub-task has the sums
(`core.memory.course`), so that nothing more is kept.

Samples that depend on each other differ more from one block to the next than their variance within
a block explains. What that is worth in independent samples is estimated from successive blocks (von
Neumann, 1941), which a change in between hardly moves. Where the stream swings more slowly than
blocks follow each other, a swing looks like a change, and is one until it comes back.

Throughout: D features, K blocks; in the sender's units, float64, on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from core.memory.course import Course

WINDOW: Final = 1000.0
"""Samples of the window, at least: the newest blocks that have as many."""

FEWEST_OF_A_MEAN: Final = 10.0
"""Samples of a mean that is told: that of fewer says too much of each."""

FEWEST: Final = 200.0
"""Samples of the reference below which nothing is compared."""

FEWEST_BLOCKS: Final = 6
"""That say how samples depend on each other."""

BY_CHANCE: Final = 0.001
"""P-value, corrected for the number of features, below which a feature may be said to drift ..."""

LEAST_CHANGE: Final = 0.2
"""... and deviations by which its mean must have moved: of many samples anything is evident."""

MOST_TOLD: Final = 10
"""Features that are told by themselves."""

MOST_FEATURES: Final = 4096
"""Of wider samples nothing is told: single features say little there."""

DIGITS: Final = 6
"""Significant ones of every number."""


class Comparison(NamedTuple):
    """The window beside the reference, of every feature; tensors with shape (D,).

    Arguments:
        samples: Of the window.
        reference_samples: Of the reference.
        mean: Means of the window.
        reference: Means of the reference.
        deviation: Of its samples.
        change: Of the mean since, in these deviations; 0 where nothing varies.
        errors: The same in standard errors, without its sign.
        p_values: How often chance alone would move any feature as far, at most 1.
        drifts: Which features are said to drift, bool.
    """

    samples: int
    reference_samples: int
    mean: Tensor
    reference: Tensor
    deviation: Tensor
    change: Tensor
    errors: Tensor
    p_values: Tensor
    drifts: Tensor


def feature_drift(course: Course) -> dict[str, Any] | None:
    """The features that have changed most, JSON-ready; None for more than `MOST_FEATURES`.

    Arguments:
        course: Of the sub-task.

    Returns:
        `samples` of the window and `reference_samples`; `features`, at most `MOST_TOLD`, those that
        have changed most in standard errors first; and how many of all are `drifting`. A feature
        has its place `feature`, its `mean` in the window, `reference_mean` and
        `reference_deviation`, the `change` of the mean in these deviations, the `p_value` of that,
        whether it `drifts`, and its `course`: means of at most K blocks since the sub-task began,
        or a change went on. What cannot be told yet is None.
    """
    sums, sizes, origin = course.sums, course.sizes, course.origin
    if sums is None or sizes is None or origin is None:
        return {"samples": 0, "reference_samples": 0, "features": [], "drifting": None}
    if len(origin) > MOST_FEATURES:
        return None
    first = _first_of_window(sizes)
    n, m = float(sizes[first:].sum()), float(sizes[:first].sum())
    if n < FEWEST_OF_A_MEAN:
        return {"samples": int(n), "reference_samples": 0, "features": [], "drifting": None}
    found = compared(course)
    order = [*range(len(origin))] if found is None else _most_changed_first(found)
    whole = sizes >= FEWEST_OF_A_MEAN
    mean = sums[first:].sum(0) / n + origin
    means = sums[whole] / sizes[whole, None] + origin
    return {
        "samples": int(n),
        "reference_samples": int(m),
        "features": [
            {
                **_row(found, feature, mean),
                "course": [*map(_rounded, means[:, feature].tolist())],
            }
            for feature in order[:MOST_TOLD]
        ],
        "drifting": None if found is None else int(found.drifts.sum()),
    }


def compared(course: Course) -> Comparison | None:
    """The newest samples of a sub-task beside all earlier ones; None where that cannot be told.

    Arguments:
        course: Of the sub-task.
    """
    if course.sums is None or course.sizes is None or len(course.sums[0]) > MOST_FEATURES:
        return None
    first = _first_of_window(course.sizes)
    enough = float(course.sizes[:first].sum()) >= FEWEST
    return _compared(course, first) if enough else None


def rows_of(found: Comparison, features: Sequence[int]) -> list[dict[str, Any]]:
    """Features that have changed, as `feature_drift` tells them, those that changed most first.

    Arguments:
        found: The comparison.
        features: Which ones; `MOST_TOLD` of them are told.
    """
    wanted = frozenset(features)
    order = [feature for feature in _most_changed_first(found) if feature in wanted]
    return [_row(found, feature, found.mean) for feature in order[:MOST_TOLD]]


def _most_changed_first(found: Comparison) -> list[int]:
    order: list[int] = found.errors.sort(descending=True, stable=True).indices.tolist()
    return order


def _first_of_window(sizes: Tensor) -> int:
    """The newest block from which on there are enough samples for a window; 0 for none."""
    since = sizes.flip(0).cumsum(0).flip(0)
    enough = (since >= WINDOW).nonzero()
    return int(enough[-1]) if len(enough) else 0


def _compared(course: Course, first: int) -> Comparison:
    """The samples of the course's blocks from the first of the window on, beside those before."""
    assert course.sums is not None
    assert course.sizes is not None
    assert course.squares is not None
    assert course.origin is not None
    sums, sizes = course.sums, course.sizes[:, None]
    means, n, m = sums / sizes, sizes[first:].sum(), sizes[:first].sum()
    reference, moved = sums[:first].sum(0) / m, sums[first:].sum(0) / n
    moved = moved - reference
    within = (course.squares - (sizes * means.square()).sum(0)).clamp_min(0) / sizes.sum()
    between = (sizes[:first] * (means[:first] - reference).square()).sum(0) / m
    deviation = (within + between).sqrt()
    error = deviation * (_dependence(means, course.sizes, within) * (1 / n + 1 / m)).sqrt()
    change = torch.where(deviation > 0, moved / deviation, 0.0)
    errors = torch.where(error > 0, moved.abs() / error, 0.0)
    p_values = (len(errors) * torch.special.erfc(errors / math.sqrt(2))).clamp_max(1.0)
    drifts = (p_values < BY_CHANCE) & (change.abs() >= LEAST_CHANGE)
    before = reference + course.origin
    mean = moved + before
    return Comparison(int(n), int(m), mean, before, deviation, change, errors, p_values, drifts)


def _dependence(means: Tensor, sizes: Tensor, within: Tensor) -> Tensor:
    """Samples that are worth one independent one, of each feature, at least 1, with shape (D,).

    Arguments:
        means: Of blocks, with shape (K, D).
        sizes: Their samples, with shape (K,).
        within: Variance of samples within a block, with shape (D,).
    """
    if len(sizes) < FEWEST_BLOCKS:
        return torch.ones_like(within)
    steps = means.diff(dim=0).square() / (1 / sizes[1:] + 1 / sizes[:-1])[:, None]
    return torch.where(within > 0, steps.mean(0) / within, 1.0).clamp_min(1.0)


def _row(found: Comparison | None, feature: int, mean: Tensor) -> dict[str, Any]:
    """What a comparison says of a feature; None: nothing could be compared."""
    row = {"feature": feature, "mean": _rounded(mean[feature])}
    if found is None:
        nothing = ("reference_mean", "reference_deviation", "change", "p_value")
        return {**row, **dict.fromkeys(nothing), "drifts": False}
    return {
        **row,
        "reference_mean": _rounded(found.reference[feature]),
        "reference_deviation": _rounded(found.deviation[feature]),
        "change": _rounded(found.change[feature]),
        "p_value": _rounded(found.p_values[feature]),
        "drifts": bool(found.drifts[feature]),
    }


def _rounded(value: Tensor | float) -> float:
    return float(f"{float(value):.{DIGITS}g}")
