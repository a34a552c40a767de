"""The paper's rule, to the letter: c = 1, a drop of the inlier rate by more than 20 %.

Section "Task Boundary Detection": a sample is an inlier when its log-likelihood is at
least mean - c * deviation, both running; a boundary is assumed each time the share of
inliers in a minibatch "drops by more than 20 %". The paper leaves open what it drops
from and how the statistics run; here it drops by 20 points from the batch before, and
the statistics are exponential averages with a rate of 0.01 per batch (docs/detector.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.drift.detector import Arming, Level, Observation, UnarmedReason, Verdict

SIGNAL = "inlier_rate_drop"


@dataclass(frozen=True)
class PaperState:
    """Running statistics of the log-likelihood, and the last batch's inlier rate."""

    samples: int = 0
    batches: int = 0
    mean: float = 0.0
    variance: float = 0.0
    inlier_rate: float | None = None


@dataclass(frozen=True)
class PaperDetector:
    """Reports a boundary when the inlier rate falls by more than `drop` in one batch.

    Arguments:
        c: Deviations below the mean at which a sample becomes an outlier.
        drop: Of the share of inliers, absolute, 0 to 1.
        rate: Of the exponential averages, per batch.
        warm_up: Samples after a reset before it may speak.
    """

    c: float = 1.0
    drop: float = 0.2
    rate: float = 0.01
    warm_up: int = 1000

    @property
    def state_type(self) -> type[PaperState]:
        return PaperState

    @property
    def name(self) -> str:
        return "paper"

    def start(self) -> PaperState:
        return PaperState()

    def observe(
        self, state: PaperState, seen: Observation, converged: bool
    ) -> tuple[PaperState, Verdict]:
        scores = seen.log_likelihoods.double()
        n = len(scores)
        mean = float(scores.mean())
        spread = float(scores.var(correction=0))
        inlier_rate: float | None = None  # of the first batch there is nothing to tell it by
        if state.batches:
            limit = state.mean - self.c * math.sqrt(state.variance)
            inlier_rate = float((scores >= limit).double().mean())
        drop = 0.0
        if state.inlier_rate is not None and inlier_rate is not None:
            drop = state.inlier_rate - inlier_rate
        armed = converged and state.samples >= self.warm_up
        boundary = armed and drop > self.drop
        verdict = Verdict(
            level=Level.ALARM if boundary else Level.NORMAL,
            names=(SIGNAL,),
            values=(drop,),
            threshold=self.drop,
            armed=armed,
            inlier_rate=inlier_rate,
            inlier_rate_mean=state.inlier_rate,
            change_samples=n,
            log_likelihood_before=state.mean if state.batches else None,
            log_likelihood_now=mean,
        )
        if boundary:
            return state, verdict
        rate = max(self.rate, 1 / (state.batches + 1))  # a plain average at first
        shift = mean - state.mean
        return (
            replace(
                state,
                samples=state.samples + n,
                batches=state.batches + 1,
                mean=state.mean + rate * shift,
                variance=(1 - rate) * (state.variance + rate * shift**2) + rate * spread,
                inlier_rate=inlier_rate,
            ),
            verdict,
        )

    def arming(self, state: PaperState, since_boundary: int, converged: bool) -> Arming:
        if not converged:
            return Arming.unknown(UnarmedReason.ANNEALING)
        return Arming.after(max(0, self.warm_up - state.samples))

    def typical(self, state: PaperState, x: Tensor) -> Tensor:
        return torch.ones(len(x), dtype=torch.bool)

    def accept(self, state: PaperState) -> PaperState:
        return self.start()

    def dismiss(self, state: PaperState) -> PaperState:
        return state
