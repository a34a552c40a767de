"""Signal: the share of inliers falls.

A sample is an inlier when its log-likelihood is at least mean - c * deviation, both
slow running values (the paper's rule with c = 1). How many of n samples are inliers is
binomial; a CUSUM of its log-likelihood ratio tests the slowly tracked rate p0 against
p0 - loss. Being one-sided, it ignores the rise of the likelihood while a model learns.
Large batches are weighed in blocks, so that their first samples cannot hide their last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from core.drift.cusum import Cusum
from core.running import Running

BLOCK = 100
"""Samples weighed at once."""


@dataclass(frozen=True)
class InlierRateState:
    """What is known of the log-likelihood and of the share of inliers."""

    scores: Running = Running()  # of the log-likelihood
    inliers: Running = Running()  # of the indicator
    evidence: Cusum = Cusum()


@dataclass(frozen=True)
class BatchInliers:
    """One batch, as this signal sees it."""

    samples: int
    mean: float  # of the log-likelihood, nats
    rate: float  # share of inliers, 0 to 1
    counts: list[int]  # inliers of every block
    tame: Running  # log-likelihood with freaks cut off: what the statistics learn from


@dataclass(frozen=True)
class InlierRate:
    """CUSUM of the inlier rate.

    Arguments:
        c: Deviations below the mean at which a sample stops being an inlier.
        loss: Fall of the inlier rate that is tested for, absolute.
    """

    c: float = 1.0
    loss: float = 0.1

    def read(self, state: InlierRateState, log_likelihoods: Tensor) -> BatchInliers:
        """Summarise the log-likelihoods of a batch, with shape (N,)."""
        scores = log_likelihoods.double()
        tamed = scores.clamp(min=state.scores.lowest)
        tame = Running(len(scores), float(tamed.mean()), float(tamed.var(correction=0)))
        known = state.scores if state.scores.weight else tame
        limit = known.mean - self.c * known.deviation
        inside, n = scores >= limit, len(scores)
        counts = [int(inside[begin : begin + BLOCK].sum()) for begin in range(0, n, BLOCK)]
        return BatchInliers(n, float(scores.mean()), sum(counts) / n, counts, tame)

    def weigh(self, state: InlierRateState, batch: BatchInliers) -> InlierRateState:
        """With the evidence of a batch; nothing that it is compared with moves."""
        if state.scores.weight == 0:
            return state
        p0 = min(max(state.inliers.mean, 0.02 + self.loss), 0.98)
        p1 = p0 - self.loss
        inlier, outlier = math.log(p1 / p0), math.log((1 - p1) / (1 - p0))
        evidence, left = state.evidence, batch.samples
        for count in batch.counts:
            n = min(BLOCK, left)
            evidence = evidence.added(count * inlier + (n - count) * outlier, n)
            left -= n
        return replace(state, evidence=evidence)

    def absorb(self, state: InlierRateState, batch: BatchInliers) -> InlierRateState:
        """With the slow statistics following a batch that is no suspect."""
        n = batch.samples
        return replace(
            state,
            scores=state.scores.updated(n, batch.tame.mean, batch.tame.variance),
            inliers=state.inliers.updated(n, batch.rate),
        )
