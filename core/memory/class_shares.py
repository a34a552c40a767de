"""The shares of classes among the newest samples, and which class is not as it was.

Classes are those that the model itself names, so that no label is needed; where labels come, their
shares stand beside. The newest thousand samples that were answered (of a batch without labels some
will do) are a *window*, all earlier ones of the sub-task, without its first, the *reference*. Two
things are compared, each as a standardised change:

* the share of a class (two proportions, pooled), and
* how likely its samples are. What the likelihood of all other classes did as well is taken off,
  because a model that learns finds everything likelier.

A model that learns does so class by class, and names samples otherwise than before. So a class
drifts only where its samples are also less likely than they were themselves, and the reference
begins where a model knows its classes about.

Changes are in standard errors of independent samples. Samples that depend on each other vary more.

Rules of this module:

1. Sums are all that is kept, never a sample, of 256 classes at most; the others are one.
2. No randomness and no clock: the same stream gives the same numbers, bit for bit.

Throughout: N samples, C classes; float64, on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from core.batch import Label
from core.class_merge import ClassMerge
from core.memory.tallies import add_class_sums, array

BLOCK: Final = 100
"""Samples of a block, at least."""

BLOCKS: Final = 10
"""Full blocks of the window."""

MOST_CLASSES: Final = 256
"""That are told apart: the first ones that were discovered."""

FEWEST: Final = 200
"""Samples of the reference below which nothing is compared, and ..."""

FEWEST_OF_A_CLASS: Final = 20
"""... of a class on either side, for its likelihood."""

BY_CHANCE: Final = 0.001
"""P-value, corrected for the number of classes, below which a class is said to drift."""

SETTLED_SAMPLES: Final = 3000
"""Samples of a sub-task before what leaves the window becomes part of the reference."""

ANSWERED, LABELLED, LIKELIHOOD, SQUARE = range(4)


def nothing() -> Tensor:
    """Sums of no class."""
    return torch.zeros(0, 4, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Sums per class: answers with it, labels of it, log-likelihoods of these answers and squares.

    Arguments:
        reference: Of all samples of the sub-task before the window, with shape (C, 4).
        blocks: Of the samples of the window, oldest first, with shape (C, 4) each.
        origin: Log-likelihood that is taken off all, so that squares keep their digits.
    """

    reference: Tensor = field(default_factory=nothing)
    blocks: tuple[Tensor, ...] = ()
    origin: float = 0.0

    def observed(
        self, codes: Tensor, truths: Tensor, log_likelihoods: Tensor, *, is_settled: bool = True
    ) -> ClassShares:
        """Add samples that were answered before they were learned.

        Arguments:
            codes: Classes that were named, with shape (N,), int64.
            truths: Classes by their labels, likewise; below 0 without one.
            log_likelihoods: Log-likelihoods, with shape (N,).
            is_settled: Whether what leaves the window is kept to compare with.
        """
        if not len(codes):
            return self
        origin = self.origin
        if not self.blocks and not len(self.reference):
            origin = float(log_likelihoods.mean())
        most = int(torch.maximum(codes, truths).max())
        sums = np.zeros((min(most, MOST_CLASSES) + 1, 4))
        values = array(log_likelihoods.double() - origin)
        add_class_sums(array(codes), array(truths), values, MOST_CLASSES, sums)
        new = torch.from_numpy(sums)
        blocks = self.blocks
        if blocks and float(blocks[-1][:, ANSWERED].sum()) < BLOCK:
            blocks, new = blocks[:-1], _sum(blocks[-1], new)
        blocks, reference = (*blocks, new), self.reference
        if len(blocks) > BLOCKS + 1:
            reference = _sum(reference, blocks[0]) if is_settled else reference
            blocks = blocks[1:]
        return replace(self, reference=reference, blocks=blocks, origin=origin)

    def with_merged_classes(self, merge: ClassMerge) -> ClassShares:
        """Two classes in one; nothing where there are so many that some are told together."""
        parts = (self.reference, *self.blocks)
        if any(len(part) > MOST_CLASSES for part in parts):
            return ClassShares()
        reference, *blocks = (merge.added(part, 0) for part in parts)
        return replace(self, reference=reference, blocks=tuple(blocks))

    def told(self, labels: Sequence[Label], most: int) -> dict[str, Any]:
        """What is known, JSON-ready.

        Arguments:
            labels: Of the classes, by their codes.
            most: Classes that are told by themselves, those with most samples of the window; the
                others are told together.
        """
        window = nothing()
        for block in self.blocks:
            window = _sum(window, block)
        window = _sum(window, torch.zeros(len(self.reference), 4).double())
        reference = _sum(self.reference, torch.zeros(len(window), 4).double())
        n, m = float(window[:, ANSWERED].sum()), float(reference[:, ANSWERED].sum())
        known = min(len(window), len(labels), MOST_CLASSES)
        rows = [self._row(window, reference, code) for code in range(known)]
        order = sorted(range(known), key=lambda code: (-window[code, ANSWERED].item(), code))
        chosen = order[:most]
        rest = [code for code in range(len(window)) if code not in chosen]
        other = None
        if rest:
            others = torch.tensor(rest)
            labelled = float(window[:, LABELLED].sum())
            other = {
                "classes": len(labels) - len(chosen),
                "samples": int(window[others, ANSWERED].sum()),
                "share": _part(float(window[others, ANSWERED].sum()), n),
                "labelled_share": _part(float(window[others, LABELLED].sum()), labelled),
                "reference_share": _part(float(reference[others, ANSWERED].sum()), m),
            }
        return {
            "samples": int(n),
            "reference_samples": int(m),
            "classes": [{"label": labels[code], **rows[code]} for code in chosen],
            "other": other,
            "drifting": [labels[code] for code in order if rows[code]["drifts"]],
        }

    def _row(self, window: Tensor, reference: Tensor, code: int) -> dict[str, Any]:
        """What is known of a class."""
        n, m = float(window[:, ANSWERED].sum()), float(reference[:, ANSWERED].sum())
        now, before = float(window[code, ANSWERED]), float(reference[code, ANSWERED])
        change = likelier = unlikelier = None
        if m >= FEWEST and n >= FEWEST:
            pooled = (now + before) / (n + m)
            error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
            change = (now / n - before / m) / error if error else 0.0
            likelier, itself = _likelier(window, reference, code)
            unlikelier = None if likelier is None else min(0.0, max(likelier, itself))
        count = max(1, len(window))
        p_values = [_p_value(z, count) for z in (change, unlikelier)]
        return {
            "samples": int(now),
            "share": _part(now, n),
            "labelled_share": _part(
                float(window[code, LABELLED]), float(window[:, LABELLED].sum())
            ),
            "reference_share": _part(before, m),
            "share_change": change,
            "share_p_value": p_values[0],
            "likelihood_change": likelier,
            "likelihood_p_value": p_values[1],
            "drifts": any(p is not None and p < BY_CHANCE for p in p_values),
        }


def _likelier(window: Tensor, reference: Tensor, code: int) -> tuple[float | None, float]:
    """Standardised change of a class's mean log-likelihood: beside all others, and by itself."""
    enough = torch.minimum(window[:, ANSWERED], reference[:, ANSWERED]) >= FEWEST_OF_A_CLASS
    others = enough.clone()
    others[code] = False
    if not bool(enough[code]) or not bool(others.any()):
        return None, 0.0
    parts = [_moments(table) for table in (window, reference)]
    changes = parts[0][0] - parts[1][0]
    errors = parts[0][1] + parts[1][1]
    weights = window[:, ANSWERED] * others
    weights = weights / weights.sum()
    common = float((weights * changes.nan_to_num()).sum())
    spread = float((weights.square() * errors.nan_to_num()).sum())
    change = float(changes[code])
    return (
        _standardised(change - common, float(errors[code]) + spread),
        _standardised(change, float(errors[code])),
    )


def _moments(table: Tensor) -> tuple[Tensor, Tensor]:
    """Mean per class, and the variance of that mean."""
    n = table[:, ANSWERED]
    mean = table[:, LIKELIHOOD] / n
    return mean, (table[:, SQUARE] / n - mean.square()).clamp_min(0) / n


def _standardised(change: float, variance: float) -> float:
    return change / math.sqrt(variance) if variance else 0.0


def _p_value(change: float | None, classes: int) -> float | None:
    """Two-sided, times the number of classes that it may have been."""
    if change is None:
        return None
    return min(1.0, classes * math.erfc(abs(change) / math.sqrt(2)))


def _part(of: float, total: float) -> float | None:
    return of / total if total else None


def _sum(one: Tensor, other: Tensor) -> Tensor:
    """Sums of both, of as many classes as either has."""
    total = torch.zeros(max(len(one), len(other)), 4, dtype=torch.float64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
