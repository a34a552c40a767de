"""Severity of a change: a lower estimate of the total variation between before and after, 0 to 1.

0.3 says that at least about three samples of ten would have to be others for the new samples to
look as those of the sub-task before. The distance itself cannot be known from some samples; but
whatever part of it shows in one view is a lower bound of it (data processing), so that the largest
of four views is one, too. From each its sampling error is taken off, so that no change is about 0:

* `likelihood`: the excess of small p-values of the new samples, max over t of F(t) - t, by the
  model and the inliers of before (one-sided Kolmogorov-Smirnov distance from uniform), less
  sqrt(log 20 / 2n), which by chance alone is passed once in 20 times (Massart 1990).
* `components`: half the sum of |share now - share expected| of the components on which samples
  fall, less its expectation and the same chance. Where the sub-task's labels tell which components
  were its own, or it is the first.
* `features`: the largest distance of one feature, normal with mean and variance as before and as
  now, less 0.4 sqrt(2 log(40 D) / n). Where half of the new samples have one value, it is by how
  much more often a value comes than it can have come before; where none varied before, the share
  of samples that have another value.
* `labels`: where labels contradict what is known, the share of labelled samples that the model
  calls otherwise, less how often that happened before, and the same chance as of likelihoods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.drift.detector import Cause, Verdict
from core.engine.explanation import MOST_FEATURES, MOST_SAMPLES, evenly, expected_shares
from core.engine.inliers import Inliers
from core.engine.state import EngineState
from core.learners.learner import Learner, Scores
from core.memory.course import LEAST_APART

CHANCE: Final = math.log(20) / 2
GRID: Final = 241
REACH: Final = 12.0
"""Deviations of before on either side in which densities of a feature are compared."""

LUMP: Final = 0.5
"""Share of new samples that have one value of a feature from which on it is taken by its values."""


@dataclass(frozen=True)
class Severity:
    """Says how severe a change is.

    Arguments:
        learner: The model's way of learning.
        inliers: What p-values rest on.
    """

    learner: Learner[Any]
    inliers: Inliers

    def of(
        self, state: EngineState, batches: Sequence[Batch], verdict: Verdict | None
    ) -> tuple[float | None, str | None]:
        """The severity, and the view that shows it; None, None where there are no new samples.

        Arguments:
            state: Before the change.
            batches: New samples.
            verdict: Of the detector; None when a person declared the boundary.
        """
        batches = [batch for batch in batches if len(batch)]
        if not batches or state.model.learner is None:
            return None, None
        raw = evenly([batch.features for batch in batches], MOST_SAMPLES)
        scores = self.learner.score(state.model.learner, state.standardiser.apply(raw))
        if scores is None:
            return None, None
        views = {
            "likelihood": self._likelihood(state, scores),
            "components": self._components(state, scores),
            "features": _features(state, raw),
        }
        if verdict is not None and verdict.cause is Cause.LABELS:
            codes = evenly([state.model.codes_of(batch) for batch in batches], MOST_SAMPLES)
            views["labels"] = self._labels(state, scores, codes)
        view = max(views, key=lambda name: views[name])
        return round(min(1.0, max(0.0, views[view])), 4), view

    def _likelihood(self, state: EngineState, scores: Scores) -> float:
        p = self.inliers.p_values(state, scores)
        if p is None:
            return 0.0
        n = len(p)
        ranks = torch.arange(1, n + 1, dtype=torch.float64) / n
        return float((ranks - p.double().cpu().sort().values).max()) - math.sqrt(CHANCE / n)

    def _components(self, state: EngineState, scores: Scores) -> float:
        model = self.learner.model(state.model.learner)
        before = None if model is None else expected_shares(model, state)
        if before is None:
            return 0.0
        now = scores.joint.argmax(-1).cpu().bincount(minlength=len(before)).double()
        n = float(now.sum())
        apart = 0.5 * float((now / n - before).abs().sum())
        noise = 0.5 * float((2 * before * (1 - before) / (math.pi * n)).sqrt().sum())
        return apart - noise - math.sqrt(CHANCE / n)

    def _labels(self, state: EngineState, scores: Scores, codes: Tensor) -> float:
        model = self.learner.model(state.model.learner)
        if model is None or not model.n_classes:
            return 0.0
        named = (codes != UNLABELLED) & (codes < model.n_classes)
        called = model.readout.class_probabilities(scores.joint).argmax(-1).cpu()
        n = int(named.sum())
        if not n:
            return 0.0
        usual = state.stream.prequential
        wrong = float((called[named] != codes[named]).double().mean())
        return wrong - (1 - usual.mean if usual.weight else 0.0) - math.sqrt(CHANCE / n)


def _features(state: EngineState, raw: Tensor) -> float:
    known, n, d = state.sub_task.marginals, *raw.shape
    if known.samples < 2 or n < 2 or d > MOST_FEATURES:
        return 0.0
    mean, deviation = known.mean.cpu(), known.square.cpu().clamp_min(0).sqrt()
    finest = LEAST_APART * mean.abs()
    varied = deviation > finest
    x = raw.double().cpu()
    own = x.std(0, correction=0)
    unit = torch.where(varied, deviation, 1.0)
    shift = ((x.mean(0) - mean) / unit).clamp(-REACH / 2, REACH / 2)
    apart = _distance(shift, (own / unit).clamp(0.15, 3.0))
    # A normal law says nothing of a value that half of the samples have: no spread shows how often
    # it comes. It came before as often, at most, as mean, variance and equal pairs allow.
    middle = x.median(0).values
    lumped = (x == middle).double().mean(0) >= LUMP
    values = torch.stack([x.min(0).values, middle, x.max(0).values])
    grown = torch.stack([_grown(state, x, value, mean, deviation) for value in values]).amax(0)
    apart = torch.where(lumped, grown, apart)
    # What never varied had one value; by the rule of three, others were a share of 3 / m at most.
    away = ((x - mean).abs() > finest).double().mean(0) - 3 / known.samples
    apart = torch.where(varied, apart, away)
    return float(apart.max()) - 0.4 * math.sqrt(2 * math.log(40 * d) / n)


def _grown(state: EngineState, x: Tensor, value: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """By how much more of the samples have a value than before, at least, with shape (D,).

    Arguments:
        x: New samples, with shape (N, D).
        value: With shape (D,).
        mean: Before, with shape (D,).
        deviation: Likewise.
    """
    finest = LEAST_APART * mean.abs()
    usual = state.sub_task.course.largest_share(value - mean, deviation.square(), finest)
    return (x == value).double().mean(0) - usual


def _distance(shift: Tensor, ratio: Tensor) -> Tensor:
    """Total variation between a standard normal and those of means and deviations (D,).

    Example:
        >>> found = _distance(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0]))
        >>> [round(float(one), 2) for one in found]
        [0.0, 0.68]
    """
    z = torch.linspace(-REACH, REACH, GRID, dtype=shift.dtype)
    now = (-0.5 * ((z - shift[:, None]) / ratio[:, None]).square()).exp() / ratio[:, None]
    before = (-0.5 * z.square()).exp()
    step = 2 * REACH / (GRID - 1)
    return (now - before).abs().sum(-1) * step / (2 * math.sqrt(2 * math.pi))
