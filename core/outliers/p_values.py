"""Strangeness as a probability: conformity scores in, p-values out.

What is usual is told by *calibration rows*: conformity scores (`core.density.conformity`) of
inliers, taken before they were learned, each with a weight. A sample may be strange in several
ways:

* the first conformity score, its closeness or likelihood, is low;
* so is one of the next conformity scores, which say the same at other scales
  (`core.outliers.scales`); or
* its other conformity scores are not as they are among inliers: their Mahalanobis distance from the
  rows' mean is large. So a sample may be too simple (an image without ink). It is not strange for
  fitting better than new samples do, because samples that were learned fit better: the distance is
  that from the mean and all that fits better (`core.density.conformity.BETTER`). Where there are no
  other scales, the first conformity score must go with these, too.

Each way is turned into the log of a tail probability among the rows. The mean of the two lowest is
the sample's *typicality*: one way alone is often chance, and all of them together know less than
the strangest. Its rank among the rows' own is the p-value (split conformal prediction: Vovk et
al. 2005; weighted: Tibshirani et al. 2019). So a share of about a of inliers has a p-value of a
or less, whatever the model, and p-values of different models compare.

Rows come from models that went on learning since. Where samples repeat each other (categories,
switches, sensors that rest) nothing but that tells a sample from rows of the very same values. So
there numbers that differ by no more than such models do are alike.

Beyond the rows' lowest twentieth a tail is taken to fall exponentially (peaks over a threshold),
so that typicality ranks samples that are stranger than any row. P-values do not go below
1 / (n + 1) for n rows: more cannot be known from n. Who asks for a lower rate gets outliers by
extrapolation all the same: below the rows' lowest tenth typicality, too, is taken to fall
exponentially, and no faster than its lowest row, so that nothing that a row has shown is one.

Throughout: N samples, D features, n rows, S conformity scores, T of them of other scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from core.density.conformity import BETTER
from core.outliers.cone import Cone

FEWEST_ROWS = 100
"""With fewer rows than these, nothing is calibrated."""

WINSORISED = 0.005
"""Share of rows at either end of a conformity score that count as the next ones inside: an extreme
value must not widen what is usual."""

RIDGE = 1e-4
"""Share of a conformity score's variance that is its own: conformity scores that always go together
must be told apart by no less."""

LEAST = -1e300
"""Log share of what is stranger than can be said: finite, and so are sums of a few."""

REPEATED = 0.5
"""Share of rows that have another like them, from which on samples repeat each other."""

SAME = 1e-6
"""Part by which numbers of equal samples differ, as float32."""

GRAIN = 0.7
"""Nats by which models differ about the same sample: one that splits a component takes log 2."""

NOISE = 0.1
"""Deviation of conformity scores that must go together, for the same reason ..."""

ALIKE = 0.01
"""... and what is left of that in typicalities."""

PER_COMPONENT = 40
"""Samples that a component is learned from, at least, about. Of these it leaves up to e^(D / 40)
times less unexplained than of others (docs/notebook.md). In a table a sample that fits better still
is strange: it is of a tight group that got a component of its own."""

WAYS = 2
"""The lowest shares, whose mean counts."""

TAIL = 0.05
"""Share of the rows below whose highest the exponential tail begins."""

FAR_TAIL = 0.1
"""Likewise of the rows' typicalities, for rates that no p-value can have."""

EXPONENTIAL = 1.0
"""Nats over which typicality, a log of shares, would fall by the factor e were these exact. Where
rows by chance fall sooner, they are not believed."""


@dataclass(frozen=True, eq=False)
class Tails:
    """The lower tails of W numbers' distributions, among weighted rows.

    Arguments:
        values: Of each number, ascending, with shape (W, n).
        log_shares: Log of the share of inliers at or below each, with shape (W, n).
        edge: Where the exponential tail begins, with shape (W, 1); likewise:
        log_edge: The log share there.
        scale: Distance below the edge over which the share falls by the factor e; positive.
        grain: Values that differ by less are alike; 0 where all are told apart.
    """

    values: Tensor
    log_shares: Tensor
    edge: Tensor
    log_edge: Tensor
    scale: Tensor
    grain: float

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor, grain: float) -> Tails:
        """Measure the tails of rows, (n, W); the weights, with shape (n,), sum to one."""
        values, order = rows.T.contiguous().sort(1)
        shares = weights[order].cumsum(1).clamp(max=1.0)
        wanted = shares.new_full((len(values), 1), TAIL)
        at = torch.searchsorted(shares, wanted).clamp(max=values.shape[1] - 1)
        edge, there = values.gather(1, at), shares.gather(1, at)
        # By the median of what lies beyond, which a single extreme row does not move.
        middle = values.gather(1, torch.searchsorted(shares, there / 2))
        spread = values[:, -1:] - values[:, values.shape[1] // 2, None]
        least = 1e-9 * spread + torch.finfo(torch.float32).tiny
        scale = torch.maximum((edge - middle) / math.log(2), least)
        return cls(values, shares.log(), edge, there.log(), scale, grain)

    def log_shares_of(self, asked: Tensor) -> Tensor:
        """Log of the share of inliers that are as low or lower, of numbers (N, W), as (N, W)."""
        asked = asked.T.contiguous()
        if not self.grain:
            return self._log_shares(asked).T
        # What is within the grain counts half.
        both = self._log_shares(asked - self.grain), self._log_shares(asked + self.grain)
        return torch.logaddexp(*both).T - math.log(2)

    def _log_shares(self, asked: Tensor) -> Tensor:
        """The same of numbers (W, N), as (W, N), all told apart."""
        right = torch.searchsorted(self.values, asked).clamp_(1, self.values.shape[1] - 1)
        low, high = self.values.gather(1, right - 1), self.values.gather(1, right)
        part = ((asked - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
        inner = torch.lerp(
            self.log_shares.gather(1, right - 1), self.log_shares.gather(1, right), part
        )
        outer = self.log_edge - (self.edge - asked) / self.scale
        return torch.where(asked < self.edge, outer, inner)


@dataclass(frozen=True, eq=False)
class Fit:
    """The usual range, fitted to calibration rows.

    Arguments:
        mean: Of the conformity scores that must go together, with shape (F,).
        whitening: (these - mean) @ whitening has independent columns of variance one; (F, F).
        better: What, in these columns, fits better than usual.
        tails: Of the first conformity score, of what says the same at T other scales, and of minus
            the squared distance.
        n_scales: T.
        alike: Typicalities that differ by no more are the same.
        typicalities: Of the rows themselves, ascending, with shape (n,).
        ranks: Weight of all rows up to each, with shape (n,); the last is one.
    """

    mean: Tensor
    whitening: Tensor
    better: Cone
    tails: Tails
    n_scales: int
    alike: float
    typicalities: Tensor
    ranks: Tensor

    def shares(self, conformity: Tensor) -> Tensor:
        """Logs of tail probabilities, the last one of the fit, with shape (N, T + 2)."""
        conformity = conformity.double().cpu()
        together = (_together(conformity, self.n_scales) - self.mean) @ self.whitening
        apart = self.better.squared_distances(together)
        return _shares(self.tails, _ways(conformity, self.n_scales, apart))


@dataclass(frozen=True, eq=False)
class Typicality:
    """Calibration rows, and what follows from them.

    Arguments:
        rows: Conformity scores of inliers, with shape (n, S).
        weights: How much each counts, with shape (n,), positive.
        n_scales: T, conformity scores after the first that say the same at other scales.
        n_features: D.
    """

    rows: Tensor
    weights: Tensor
    n_scales: int = 0
    n_features: int = 0

    @classmethod
    def none(cls) -> Typicality:
        """Nothing is calibrated."""
        return cls(torch.zeros(0, 1), torch.zeros(0))

    def __len__(self) -> int:
        """n, or 0 where there are too few rows to say anything."""
        return len(self.rows) if len(self.rows) >= FEWEST_ROWS else 0

    @cached_property
    def n_effective(self) -> float:
        """Rows of equal weight that would say as much."""
        weights = self.weights.double()
        return float(weights.sum().square() / weights.square().sum())

    @cached_property
    def fit(self) -> Fit:
        """What is usual; made at the first question, in some milliseconds."""
        rows, weights = self.rows.double().cpu(), self.weights.double().cpu()
        weights = weights / weights.sum()
        repeated = _repeated(rows[:, 0]) > REPEATED
        grain, noise, alike = (GRAIN, NOISE, ALIKE) if repeated else (0.0, 0.0, 0.0)
        together = _together(rows, self.n_scales)
        ends = torch.quantile(
            together, torch.tensor([WINSORISED, 1 - WINSORISED], dtype=rows.dtype), dim=0
        )
        inner = together.clamp(ends[0], ends[1])
        mean = weights @ inner
        centred = inner - mean
        deviation = (weights @ centred.square() + noise**2).sqrt()
        # A conformity score that never varies says nothing.
        scale = torch.where(deviation > 1e-9 * (1 + mean.abs()), 1 / deviation, 0.0)
        scaled = centred * scale
        correlation = (scaled * weights[:, None]).T @ scaled
        correlation += torch.diag(RIDGE + (noise * scale).square())
        values, vectors = torch.linalg.eigh(correlation)
        whitening = scale[:, None] * (vectors / values.clamp_min(RIDGE).sqrt())
        better = self._better(whitening)
        apart = better.squared_distances((together - mean) @ whitening)
        ways = _ways(rows, self.n_scales, apart)
        tails = Tails.of(ways, weights, grain)
        own, order = _mean_of_lowest(_shares(tails, ways)).sort()
        ranks = weights[order].cumsum(0)
        return Fit(mean, whitening, better, tails, self.n_scales, alike, own, ranks)

    def _better(self, whitening: Tensor) -> Cone:
        """What fits better than usual, in whitened conformity scores."""
        ways, longest = BETTER, math.inf
        if self.n_scales:  # beside them: the size and, where there are factors, the rest
            ways, longest = BETTER[2::2], self.n_features / PER_COMPONENT
        signs = torch.tensor(ways[: len(whitening)], dtype=whitening.dtype)
        return Cone.of(torch.diag(signs)[signs != 0] @ whitening, longest)

    def typicality(self, conformity: Tensor) -> Tensor:
        """Log of a tail probability per sample, with shape (N,), float64; less is stranger."""
        return _mean_of_lowest(self.fit.shares(conformity))

    def strangest(self, conformity: Tensor) -> tuple[Tensor, Tensor]:
        """Typicality, and by which of the T + 2 shares a sample is strangest, with shape (N,) each.

        The shares are those of the first conformity score, of what says the same at other scales,
        and of the fit.
        """
        shares = self.fit.shares(conformity)
        return _mean_of_lowest(shares), shares.argmin(1)

    def p_values(self, typicality: Tensor) -> Tensor:
        """Share of inliers at least as strange, with shape (N,), in (0, 1], float64."""
        fit, n = self.fit, self.n_effective
        below = torch.searchsorted(fit.typicalities, typicality + fit.alike, right=True)
        shares = torch.cat([fit.ranks.new_zeros(1), fit.ranks.clamp(max=1.0)])[below]
        return ((1 + n * shares) / (n + 1)).clamp(max=1.0)

    @cached_property
    def least_p_value(self) -> float:
        """What p-values do not go below."""
        return 1 / (self.n_effective + 1)

    def inliers(self, typicality: Tensor, p_values: Tensor, rate: float) -> Tensor:
        """Which samples are no outliers at a rate, with shape (N,), bool.

        Arguments:
            typicality: Of the samples, with shape (N,).
            p_values: Likewise.
            rate: Between 0 and 1. Below what p-values can be, it is kept by extrapolation.
        """
        if rate >= self.least_p_value:
            return p_values > rate
        return typicality >= self.least_typicality(rate)

    def least_typicality(self, rate: float) -> float:
        """The least typicality of inliers at a rate.

        The least whose p-value is above the rate; for rates that no p-value can have, that from
        which so large a share of inliers is expected to be stranger.

        Arguments:
            rate: Between 0 and 1.
        """
        fit, n = self.fit, self.n_effective
        shares = (1 + n * fit.ranks.clamp(max=1.0)) / (n + 1)
        if rate < self.least_p_value:
            return self._far(rate, shares) - fit.alike
        enough = shares > rate
        index = int(enough.long().argmax()) if bool(enough.any()) else -1
        return float(fit.typicalities[index] - fit.alike)

    def _far(self, rate: float, shares: Tensor) -> float:
        """The typicality below which a share of inliers lies that is too small for p-values.

        Arguments:
            rate: That share.
            shares: P-values of the rows, ascending, with shape (n,).
        """
        rows = self.fit.typicalities
        # At least one row lies below, however the weights are.
        at = max(int(torch.searchsorted(self.fit.ranks, FAR_TAIL)), 1)
        at = min(at, len(rows) - 1)
        edge, share = float(rows[at]), float(shares[at])
        below = self.fit.ranks.diff(prepend=self.fit.ranks.new_zeros(1))[:at]
        mean = float(((edge - rows[:at]) * below).sum() / below.sum())
        # The lowest row stands at the least p-value.
        lowest = (edge - float(rows[0])) / math.log(share / self.least_p_value)
        # And a standard error, because too few rows may not show how far the tail goes.
        scale = max(mean, lowest, EXPONENTIAL) * (1 + 1 / math.sqrt(at))
        return edge - scale * math.log(share / rate)


def _repeated(numbers: Tensor) -> float:
    """Share of numbers (n,) that are next to the same."""
    ordered = numbers.sort().values
    same = ordered.diff() <= SAME * (1 + ordered[1:].abs())
    return float((functional.pad(same, (1, 0)) | functional.pad(same, (0, 1))).double().mean())


def _together(conformity: Tensor, n_scales: int) -> Tensor:
    """Conformity scores that must go together, with shape (N, F)."""
    return conformity[:, 1 + n_scales :] if n_scales else conformity


def _ways(conformity: Tensor, n_scales: int, apart: Tensor) -> Tensor:
    """Numbers of which less is stranger, with shape (N, T + 2).

    Arguments:
        apart: Squared distance from what is usual or better, with shape (N,).
    """
    return torch.cat([conformity[:, : 1 + n_scales], -apart[:, None]], 1)


def _shares(tails: Tails, ways: Tensor) -> Tensor:
    """Log shares with shape (N, T + 2), finite whatever was asked."""
    shares = tails.log_shares_of(ways)
    return shares.nan_to_num(nan=LEAST, neginf=LEAST).clamp_min(LEAST)


def _mean_of_lowest(shares: Tensor) -> Tensor:
    """Mean of the lowest log shares, with shape (N,)."""
    return shares.topk(min(WAYS, shares.shape[1]), 1, largest=False).values.mean(1)
