"""Evidence for a change, added up over time: the Shiryaev-Roberts procedure on e-values.

With e-values e of mean one, R = (1 + R) e grows by one per sample on average as long as
nothing changes, so that it passes A after A samples on average, or later (an *e-detector*:
Shin, Ramdas and Rinaldo 2022). That holds for every bet, and for the weighted mean of many,
however they depend on each other: one threshold, in samples, fuses all signals. It is
worked out after every sample, so that it does not matter how a stream is cut into batches.

Throughout: N samples, J bets; all in float64, logarithms natural.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Evidence:
    """What has been gathered.

    Arguments:
        totals: log R of every bet, with shape (J,); minus infinity at the start.
        heights: By how much the logarithm of each bet's gains stands above its lowest
            point, with shape (J,).
        spans: Samples since that point, with shape (J,): how long ago the change began,
            if there is one.
        tops: The largest height since that point, with shape (J,).
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
            gains: Logarithms of the e-values, with shape (J, N).
            log_weights: Of the bets, with shape (J,); their exponentials sum to one.

        Returns:
            The evidence, and log R of all bets together after each sample, with shape (N,).
        """
        n = gains.shape[1]
        totals, together = shiryaev_roberts(self.totals, gains, log_weights)
        heights = self.heights.numpy()[:, None]
        path = np.concatenate([heights, heights + gains.numpy().cumsum(1)], 1)
        place = path.argmin(1)
        lowest = path[_rows(place), place]
        fell = lowest <= 0
        spans = np.where(fell, n - place, self.spans.numpy() + n)
        lowest = np.minimum(lowest, 0.0)
        # What was reached before the lowest point belongs to another change.
        before = fell[:, None] & (np.arange(n + 1) < place[:, None])
        reached = np.where(before, -np.inf, path).max(1) - lowest
        tops = np.where(fell, reached, np.maximum(self.tops.numpy(), reached))
        after = map(torch.from_numpy, (path[:, -1] - lowest, spans, tops))
        return Evidence(totals, *after), together


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
    values = gains.numpy()
    sums = values.cumsum(1)
    # R_n = exp(S_n) (R_0 + sum over i of exp(-S_{i-1})), S the sums of the gains.
    before = np.logaddexp.accumulate(values - sums, 1)
    paths = sums + np.logaddexp(totals.numpy()[:, None], before)
    weighed = paths + log_weights.numpy()[:, None]
    together = np.logaddexp.reduce(weighed, 0)
    return torch.from_numpy(paths[:, -1].copy()), torch.from_numpy(together)


def _rows(places: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.arange(len(places))
