"""Evidence for a change, added up over time: the Shiryaev-Roberts procedure on e-values.

With e-values e of mean one, R = (1 + R) e grows by one per sample on average as long as
nothing changes, so that it passes A after A samples on average, or later (an *e-detector*:
Shin, Ramdas and Rinaldo 2022). That holds for every bet, and for the weighted mean of many,
however they depend on each other: one threshold, in samples, fuses all signals. It is
worked out after every sample, so that it does not matter how a stream is cut into batches.
A loop over samples and bets, it is compiled: in small array operations it would cost ten times
as much.

Throughout: N samples, J bets; all in float64, logarithms natural.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.drift.bets import Array
from core.drift.compiled import compiled

LARGE = 200.0
"""log R from which on R is kept as its logarithm, far above any threshold: 1 + R is R there."""


SLACK = 1.0
"""Nats that a bet may gain by chance: some stay that high for long before a change begins."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What has been gathered.

    Arguments:
        totals: log R of every bet, with shape (J,); minus infinity at the start.
        heights: By how much the logarithm of each bet's gains stands above its lowest
            point, with shape (J,).
        spans: Samples since the height was last below `SLACK`, with shape (J,): how long
            ago the change began, if there is one.
        tops: The largest height since the lowest point, with shape (J,).
    """

    totals: Tensor
    heights: Tensor
    spans: Tensor
    tops: Tensor

    @classmethod
    def none(cls, n_bets: int) -> Evidence:
        """Before the first sample."""
        zeros = torch.zeros(n_bets, dtype=torch.float64)
        return cls(torch.full_like(zeros, -math.inf), zeros, zeros, zeros)

    def added(self, gains: Tensor, log_weights: Tensor) -> tuple[Evidence, Tensor]:
        """With N more samples.

        Arguments:
            gains: Logarithms of the e-values, with shape (J, N), N at least 1.
            log_weights: Of the bets, with shape (J,); their exponentials sum to one.

        Returns:
            The evidence, and log R of all bets together after each sample, with shape (N,).
        """
        totals, together = shiryaev_roberts(self.totals, gains, log_weights)
        before = (self.heights, self.spans, self.tops)
        heights, spans, tops = (one.numpy().copy() for one in before)
        _follow(heights, spans, tops, gains.numpy())
        return Evidence(totals, *map(torch.from_numpy, (heights, spans, tops))), together


def shiryaev_roberts(totals: Tensor, gains: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """R <- (1 + R) e, for every bet, sample by sample.

    Arguments:
        totals: log R of every bet before, with shape (J,).
        gains: Logarithms of the e-values, with shape (J, N), N at least 1.
        log_weights: Of the bets, with shape (J,).

    Returns:
        log R of every bet after the last sample, with shape (J,), and of all bets
        together after each, with shape (N,).
    """
    after, together = totals.numpy().copy(), np.empty(gains.shape[1])
    _accumulate(after, gains.numpy(), log_weights.numpy(), together)
    return torch.from_numpy(after), torch.from_numpy(together)


@compiled
def _accumulate(totals: Array, gains: Array, log_weights: Array, together: Array) -> None:
    """`totals` becomes log R after the last sample, `together` that of all bets after each."""
    n_bets, n = gains.shape
    weights, sums = np.exp(log_weights), np.exp(np.minimum(totals, LARGE))
    for i in range(n):
        total, largest = 0.0, -np.inf
        for j in range(n_bets):
            gain = gains[j, i]
            if totals[j] < LARGE and gain < LARGE:
                sums[j] = (1 + sums[j]) * math.exp(gain)
                if sums[j] >= math.exp(LARGE) or i == n - 1:
                    totals[j] = math.log(sums[j]) if sums[j] > 0 else -np.inf
            else:
                totals[j] = gain + (totals[j] if totals[j] >= LARGE else math.log1p(sums[j]))
                sums[j] = math.exp(min(totals[j], LARGE))
            total += weights[j] * sums[j]
            if totals[j] >= LARGE:
                largest = max(largest, totals[j] + log_weights[j])
        if largest == -np.inf:
            together[i] = math.log(total) if total > 0 else -np.inf
            continue
        parts = 0.0
        for j in range(n_bets):
            if totals[j] >= LARGE:
                parts += math.exp(totals[j] + log_weights[j] - largest)
            else:
                parts += weights[j] * sums[j] * math.exp(-largest)
        together[i] = largest + math.log(parts)


@compiled
def _follow(heights: Array, spans: Array, tops: Array, gains: Array) -> None:
    """All three become those after the last sample."""
    for j in range(gains.shape[0]):
        height, span, top = heights[j], spans[j], tops[j]
        for i in range(gains.shape[1]):
            height += gains[j, i]
            span += 1
            if height < SLACK:
                span = 0.0
            if height < 0:
                height = top = 0.0
            top = max(top, height)
        heights[j], spans[j], tops[j] = height, span, top
