"""How strange a sample is, as a probability: traits in, p-values out.

What is usual is told by *calibration rows*: traits (`core.density.traits`) of inliers, taken
before they were learned, each with a weight. A sample is strange in one of two ways:

* its closeness, the first trait, is low; or
* its traits do not go together as they do among inliers: their Mahalanobis distance from the
  rows' mean is large. This is two-sided: a sample may be too simple (an image without ink).

Both are turned into logs of tail probabilities among the rows; the smaller, the second counted
as `CAUTION` times larger, is the sample's *typicality*. Its rank among the rows' own is the
p-value (split conformal prediction: Vovk et al. 2005; weighted: Tibshirani et al. 2019). So a
share of about a of inliers has a p-value of a or less, whatever the model, and p-values of
different models compare.

Beyond the rows' lowest twentieth a tail is taken to fall exponentially (peaks over a threshold),
so that typicality ranks samples that are stranger than any row. P-values do not go below
1 / (n + 1) for n rows: more cannot be known from n.

Throughout: N samples, n rows, S traits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

FEWEST_ROWS = 100
"""With fewer rows than these, nothing is calibrated."""

WINSORISED = 0.005
"""Share of rows at either end of a trait that count as the next ones inside: a freak must not
widen what is usual."""

RIDGE = 1e-4
"""Share of a trait's variance that is its own: traits that always go together must be told apart
by no less."""

CAUTION = 4.0
"""A sample whose traits do not go together is called strange so many times less readily than
one that is far from everything: in tables, most that are found that way are inliers."""

TAIL = 0.05
"""Share of the rows below whose highest the exponential tail begins."""


@dataclass(frozen=True, eq=False)
class Tail:
    """The lower tail of a number's distribution, among weighted rows.

    Arguments:
        values: Ascending, with shape (n,).
        log_shares: Log of the share of inliers at or below each, with shape (n,).
        edge: Where the exponential tail begins.
        log_edge: The log share there.
        scale: Distance below the edge over which the share falls by the factor e; positive.
    """

    values: Tensor
    log_shares: Tensor
    edge: float
    log_edge: float
    scale: float

    @classmethod
    def of(cls, values: Tensor, weights: Tensor) -> Tail:
        """Of rows, with shape (n,); the weights sum to one."""
        values, order = values.sort()
        weights = weights[order]
        shares = weights.cumsum(0).clamp(max=1.0)
        at = int(torch.searchsorted(shares, TAIL).clamp(max=len(values) - 1))
        edge = values[at]
        # By the median of what lies beyond, which a single freak does not move.
        middle = int(torch.searchsorted(shares, float(shares[at]) / 2))
        least = (
            1e-9 * float(values[-1] - values[len(values) // 2]) + torch.finfo(torch.float32).tiny
        )
        scale = max(float(edge - values[middle]) / math.log(2), least)
        return cls(values, shares.log(), float(edge), float(shares[at].log()), scale)

    def log_share(self, values: Tensor) -> Tensor:
        """Log of the share of inliers that are as low or lower, with shape (N,)."""
        right = torch.searchsorted(self.values, values).clamp(1, len(self.values) - 1)
        low, high = self.values[right - 1], self.values[right]
        part = ((values - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
        inner = torch.lerp(self.log_shares[right - 1], self.log_shares[right], part)
        outer = self.log_edge - (self.edge - values) / self.scale
        return torch.where(values < self.edge, outer, inner)


@dataclass(frozen=True, eq=False)
class Fit:
    """What the rows say is usual.

    Arguments:
        mean: Of the traits, with shape (S,).
        whitening: (traits - mean) @ whitening has independent columns of variance one; (S, S).
        closeness: Tail of the first trait.
        fit: Tail of minus the squared Mahalanobis distance.
        typicalities: Of the rows themselves, ascending, with shape (n,).
        shares: Weight of all rows up to each, with shape (n,); the last is one.
    """

    mean: Tensor
    whitening: Tensor
    closeness: Tail
    fit: Tail
    typicalities: Tensor
    shares: Tensor

    def typicality(self, traits: Tensor) -> Tensor:
        """With shape (N,), float64."""
        traits = traits.double().cpu()
        apart = ((traits - self.mean) @ self.whitening).square().sum(-1)
        closeness = self.closeness.log_share(traits[:, 0].contiguous())
        return _stranger(closeness, self.fit.log_share(-apart))


@dataclass(frozen=True, eq=False)
class Typicality:
    """Calibration rows, and what follows from them.

    Arguments:
        rows: Traits of inliers, with shape (n, S).
        weights: How much each counts, with shape (n,), positive.
    """

    rows: Tensor
    weights: Tensor

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
        ends = torch.quantile(
            rows, torch.tensor([WINSORISED, 1 - WINSORISED], dtype=rows.dtype), dim=0
        )
        inner = rows.clamp(ends[0], ends[1])
        mean = weights @ inner
        centred = inner - mean
        deviation = (weights @ centred.square()).sqrt()
        # A trait that never varies says nothing.
        scale = torch.where(deviation > 1e-9 * (1 + mean.abs()), 1 / deviation, 0.0)
        scaled = centred * scale
        correlation = (scaled * weights[:, None]).T @ scaled
        correlation += RIDGE * torch.eye(len(mean), dtype=correlation.dtype)
        values, vectors = torch.linalg.eigh(correlation)
        whitening = scale[:, None] * (vectors / values.clamp_min(RIDGE).sqrt())
        apart = ((rows - mean) @ whitening).square().sum(-1)
        closeness, fit = Tail.of(rows[:, 0].contiguous(), weights), Tail.of(-apart, weights)
        own = _stranger(closeness.log_share(rows[:, 0].contiguous()), fit.log_share(-apart))
        own, order = own.sort()
        return Fit(mean, whitening, closeness, fit, own, weights[order].cumsum(0))

    def typicality(self, traits: Tensor) -> Tensor:
        """Log of a tail probability per sample, with shape (N,), float64; less is stranger."""
        return self.fit.typicality(traits)

    def p_values(self, typicality: Tensor) -> Tensor:
        """Share of inliers at least as strange, with shape (N,), in (0, 1], float64."""
        fit, n = self.fit, self.n_effective
        below = torch.searchsorted(fit.typicalities, typicality, right=True)
        shares = torch.cat([fit.shares.new_zeros(1), fit.shares.clamp(max=1.0)])[below]
        return ((1 + n * shares) / (n + 1)).clamp(max=1.0)


def _stranger(closeness: Tensor, fit: Tensor) -> Tensor:
    """The smaller of two log shares, with shape (N,); finite whatever was asked."""
    typicality = torch.minimum(closeness, fit + math.log(CAUTION))
    least = torch.finfo(typicality.dtype).min
    return typicality.nan_to_num(nan=least, neginf=least)
