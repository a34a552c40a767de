"""The course of a sub-task: has the stream stood still since the last boundary?

A ramp goes on after the boundary by which it was found. Once the detector has learned what is
usual by then, it finds the rest of the ramp as well, and that is no second change. It can be told
from one by what came in between: the means of features have moved all the while, steadily, in the
very direction in which they have changed now. Before a change of its own the stream stood still, or
moved in another direction.

Rules of this module:

1. Sums over ten samples at least are all that is kept; never a sample.
2. The size of what is kept does not depend on the length of the stream.

Throughout: N samples, D features, K blocks; in the sender's units, float64, on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.memory.creeping import Creeping
from core.memory.feature_sums import centred_sums

BLOCK = 50.0
"""Samples of a block, to begin with."""

MOST_BLOCKS = 32
"""Kept; when there are more, two become one each."""

FEWEST_BLOCKS = 6
"""That can show a steady movement."""

TINY = 1e-200
"""What is divided by, at least."""

FEWEST = 10
"""Samples that make a mean."""

EVIDENT = 3.0
"""Standard errors by which the mean of a feature must have changed to say in which direction."""

BY_CHANCE = 0.05
"""How often a stream that stands still may pass for one that moves."""

LATELY = 0.2
"""The same by the later half of its blocks: a movement may have ended."""

EARLY = 0.2
"""The same by the earlier half: a movement may have begun after a rest, and is another change."""

LEAST_MOVED = 0.4
"""Part of the change by which the stream must have moved before; at a constant pace it is one or
more."""


PAIRS = 256
"""Of samples that came one after the other, looked at in a batch for equal values, at most ..."""

ENOUGH_PAIRS = 1000
"""... until there are so many: they tell how often a feature has the same value twice."""

LEAST_APART = 1e-9
"""Of the size of a value: what is nearer to another is the same. Samples are no finer."""


class Continuation(NamedTuple):
    """The evidence that a change goes on.

    Arguments:
        p_value: How often a stream that stands still would seem to move as steadily, 0 to 1.
        p_value_early: The same by the earlier half of the time since the boundary.
        p_value_lately: The same by the later half.
        moved: How far the stream had moved by then, as a part of what has changed since.
    """

    p_value: float
    p_value_early: float
    p_value_lately: float
    moved: float


@dataclass(frozen=True, eq=False)
class Course:
    """Means of the samples of a sub-task, block after block since its beginning.

    Arguments:
        sums: Of the features of each block's samples, with shape (K, D); None before the first.
        squares: The same of squared differences from the origin, of all blocks, with shape (D,).
        origin: Mean of the first samples, with shape (D,).
        sizes: Samples of each block, with shape (K,).
        ends: Samples of the stream by the end of each block, with shape (K,).
        width: Samples of a whole block.
        ties: How many of the pairs that were looked at had equal values, with shape (D,).
        pairs: Of samples that came one after the other, looked at for that.
        creeping: Features that have crept since; see `core.memory.creeping`.
    """

    sums: Tensor | None = None
    squares: Tensor | None = None
    origin: Tensor | None = None
    sizes: Tensor | None = None
    ends: Tensor | None = None
    width: float = BLOCK
    ties: Tensor | None = None
    pairs: float = 0.0
    creeping: Creeping = field(default_factory=Creeping)

    def observed(self, x: Tensor, end: int) -> Course:
        """Add more samples of the sub-task.

        Arguments:
            x: With shape (N, D); none that are suspected.
            end: Samples of the stream with these.
        """
        if not len(x):
            return self
        origin = x.double().mean(0).cpu() if self.origin is None else self.origin
        found, ties = centred_sums(x, origin.to(x.device)), self.ties
        pairs = min(PAIRS, len(x) - 1) if self.pairs < ENOUGH_PAIRS else 0
        if pairs:
            equal = (x[1 : pairs + 1] == x[:pairs]).sum(0, dtype=torch.float64)
            found = torch.cat([found, equal[None]])
        sums, squares, *equals = found.cpu()
        for equal in equals:
            ties = equal if ties is None else ties + equal
        sums = sums[None]
        sizes, ends = torch.tensor([float(len(x))]).double(), torch.tensor([float(end)]).double()
        if self.sums is not None:
            assert self.squares is not None
            assert self.sizes is not None
            assert self.ends is not None
            squares = self.squares + squares
            last = slice(-1 if float(self.sizes[-1]) < self.width else len(self.sizes), None)
            n = len(self.sizes[last])
            sums = torch.cat([self.sums[: len(self.sums) - n], sums + self.sums[last].sum(0)])
            ends = torch.cat([self.ends[: len(self.ends) - n], ends])
            sizes = torch.cat([self.sizes[: len(self.sizes) - n], sizes + self.sizes[last].sum()])
        seen = replace(
            self,
            sums=sums,
            squares=squares,
            origin=origin,
            sizes=sizes,
            ends=ends,
            ties=ties,
            pairs=self.pairs + pairs,
        )
        return seen if len(sizes) <= MOST_BLOCKS else seen._halved()

    def _halved(self) -> Course:
        """Join every two blocks; the last one stays alone where their number is odd."""
        assert self.sums is not None
        assert self.sizes is not None
        assert self.ends is not None
        odd = len(self.sizes) % 2
        n = len(self.sizes) - odd
        sums = self.sums[:n].view(n // 2, 2, -1).sum(1)
        sizes = self.sizes[:n].view(-1, 2).sum(1)
        return replace(
            self,
            sums=torch.cat([sums, self.sums[n:]]),
            sizes=torch.cat([sizes, self.sizes[n:]]),
            ends=torch.cat([self.ends[1:n:2], self.ends[n:]]),
            width=2 * self.width,
        )

    def continuation(self, x: Tensor, start: int) -> Continuation | None:
        """Whether a change goes on that the stream has been making since the boundary.

        Arguments:
            x: Samples since the change began, with shape (N, D).
            start: Where that was, in samples of the stream.

        Returns:
            None if the stream stood still, or moved elsewhere, or too little is known.
        """
        if self.sums is None or self.squares is None or self.origin is None or len(x) < FEWEST:
            return None
        assert self.sizes is not None
        assert self.ends is not None
        # The estimate of the start may be late by a little: the last block before it is left out.
        n_blocks = int((self.ends <= start).sum()) - 1
        if n_blocks < FEWEST_BLOCKS:
            return None
        sums, sizes = self.sums[:n_blocks], self.sizes[:n_blocks]
        values = x.double() - self.origin.to(x.device)
        now, variance_now = values.mean(0).cpu(), values.var(0, correction=0).cpu()
        n, m = float(len(x)), float(sizes.sum())
        before = sums.sum(0) / m
        total = float(self.sizes.sum())
        variance = self.squares / total - (self.sums.sum(0) / total).square()
        variance = variance.clamp_min(0)
        change = now - before
        error = (variance_now / n + variance / m).sqrt()
        change = torch.where(change.abs() > EVIDENT * error, change, 0)
        spread = variance + variance_now
        axis = torch.where(spread > 0, change / spread.clamp_min(1e-300), 0)
        if not bool(axis.any()):
            return None
        positions = (sums @ axis) / sizes
        moved = _slope(positions, sizes) * (n_blocks - 1) / float(change @ axis)
        middle = n_blocks // 2
        early, lately = trend(positions[: n_blocks - middle]), trend(positions[middle:])
        found = Continuation(trend(positions), early, lately, moved)
        steady = found.p_value <= BY_CHANCE and early <= EARLY and lately <= LATELY
        return found if steady and moved >= LEAST_MOVED else None

    def moments(self) -> tuple[Tensor, Tensor] | None:
        """Mean and deviation of features, both with shape (D,); None of a handful of samples."""
        if self.sums is None or self.squares is None or self.origin is None:
            return None
        assert self.sizes is not None
        m = float(self.sizes.sum())
        if m < FEWEST:
            return None
        before = self.sums.sum(0) / m
        variance = (self.squares / m - before.square()).clamp_min(0)
        finest = (LEAST_APART * self.origin).square()
        return self.origin + before, torch.where(variance > finest, variance, 0).sqrt()

    def changed(self, x: Tensor, by_chance: float) -> Tensor | None:
        """Difference of the mean, variance or values of features, in sampling errors, shape (D,).

        Three tests for each feature: of its mean, of its variance, and of how often it has the
        value that it had last. Values that are all the same say nothing of a variance: those of a
        rare category are, in a few samples, and those of a sensor that sticks. It is asked how
        probable they are, by how often a feature can have had that value before.

        Arguments:
            x: New samples, with shape (N, D), in their order.
            by_chance: How often any feature at all may be among them where none has changed.

        Returns:
            0 for features that may be as before; None if too few samples are known on either side.
        """
        if self.sums is None or self.squares is None or self.origin is None:
            return None
        assert self.sizes is not None
        n, m = float(len(x)), float(self.sizes.sum())
        if min(n, m) < FEWEST:
            return None
        values = x.double().cpu()
        same = (values == values[-1]).double().mean(0)
        finest = LEAST_APART * self.origin.abs()
        values = values - self.origin
        mean, before = values.mean(0), self.sums.sum(0) / m
        squares = (values - mean).square()
        variance, fourth = squares.mean(0), squares.square().mean(0)
        known = (self.squares / m - before.square()).clamp_min(0)
        known = torch.where(known > finest.square(), known, 0)
        away = ((values - before).abs() > finest).double().mean(0)
        n, m = n / self._dependence(known), m / self._dependence(known)
        # A variance is known the less the heavier the tails are; a normal law has 3.
        kurtosis = (fourth / variance.square().clamp_min(TINY)).clamp_min(3)
        # The new samples alone may hold too few of a rare value to know the variance.
        pooled = (n * variance + m * known) / (n + m) * (1 / n + 1 / m)
        error = torch.maximum(variance / n + known / m, pooled).sqrt().clamp_min(TINY)
        scale = (variance.clamp_min(TINY) / known.clamp_min(TINY)).log()
        moved = (mean - before).abs() / error
        spread_out = scale.abs() / ((kurtosis - 1) * (1 / n + 1 / m)).sqrt()
        level = by_chance / (3 * len(mean))
        limit = critical(level, min(n, m) - 1)
        varied = known > 0
        moments = torch.maximum(moved, torch.where(same < 1, spread_out, 0))
        moments = torch.where(varied & (moments > limit), moments, 0)
        # The last value itself is no news of how often it comes.
        others = ((same * len(x) - 1) / (len(x) - 1)).clamp_min(0)
        usual = self.largest_share(values[-1] - before, known, finest)
        rare = _excess(others, max(1.0, n - 1), usual, m)
        # What never varied has a share of 0 away from its only value.
        rare = torch.where(varied, rare, _excess(away, n, torch.zeros_like(away), m))
        rare = torch.where(rare > -math.log(level), (2 * rare).sqrt(), 0)
        return torch.maximum(moments, rare)

    def largest_share(self, apart: Tensor, variance: Tensor, finest: Tensor) -> Tensor:
        """The largest share of samples that can have had a value, with shape (D,).

        A share p at a distance from the mean makes a variance of p / (1 - p) times its square at
        least (Cantelli's inequality); that of a feature with two values is found exactly. And
        p^2 of all pairs have the value in both, so that they are equal as often at least.

        Arguments:
            apart: The value less the mean, with shape (D,).
            variance: With shape (D,).
            finest: What counts as no distance, with shape (D,).
        """
        square = torch.where(apart.abs() > finest, apart, 0).square()
        share = variance / (variance + square).clamp_min(TINY)
        share = torch.where(square > 0, share, 1)
        if self.ties is None or not self.pairs:
            return share
        equal = self.ties / self.pairs
        # Above the rate in all but a few cases of a hundred; for none at all, the rule of three.
        equal = equal + 2 * (equal * (1 - equal) / self.pairs).sqrt() + 3 / self.pairs
        return torch.minimum(share, equal.clamp_max(1).sqrt())

    @property
    def depends(self) -> bool:
        """Whether samples in a row are so alike that each is worth less than half of one."""
        if self.sums is None or self.squares is None or self.sizes is None:
            return False
        m = float(self.sizes.sum())
        if m < FEWEST:
            return False
        variance = (self.squares / m - (self.sums.sum(0) / m).square()).clamp_min(0)
        return self._dependence(variance) > 2

    def _dependence(self, variance: Tensor) -> float:
        """Samples that are worth one, at least 1: by how blocks differ, in half of the features."""
        assert self.sums is not None
        assert self.sizes is not None
        varies = variance > 0
        if len(self.sizes) < FEWEST_BLOCKS or not bool(varies.any()):
            return 1.0
        means = self.sums / self.sizes[:, None]
        apart = means - self.sums.sum(0) / self.sizes.sum()
        ratio = (self.sizes[:, None] * apart.square()).sum(0) / (len(self.sizes) - 1)
        return max(1.0, float((ratio[varies] / variance[varies]).median()))


def _excess(now: Tensor, n: float, before: Tensor, m: float) -> Tensor:
    """Logarithm of the likelihood ratio of two shares against one for both, with shape (D,).

    By chance it is above c about as seldom as exp(-c) (Chernoff's bound).

    Arguments:
        now: Share of n samples, with shape (D,).
        before: Share of m others, with shape (D,).

    Returns:
        0 where the share has not grown.
    """
    both = (n * now + m * before) / (n + m)
    found = n * _divergence(now, both) + m * _divergence(before, both)
    return torch.where(now > before, found, 0)


def _divergence(share: Tensor, other: Tensor) -> Tensor:
    """Kullback and Leibler's, of a coin from another that may fall the same ways."""
    return (
        torch.xlogy(share, share)
        - torch.xlogy(share, other)
        + torch.xlogy(1 - share, 1 - share)
        - torch.xlogy(1 - share, 1 - other)
    )


def critical(p_value: float, freedom: float) -> float:
    """Two-sided critical value of Student's t, by Wallace's (1959) transformation to a normal.

    Arguments:
        p_value: Above 0.
        freedom: Degrees of it; fewer than one count as one.

    Example:
        >>> round(critical(0.01, 9.0), 1), round(critical(0.01, 1e6), 3)
        (3.3, 2.576)
    """
    freedom = max(1.0, freedom)
    level = torch.tensor(p_value / 2, dtype=torch.float64)
    z = -float(torch.special.ndtri(level)) * (8 * freedom + 3) / (8 * freedom + 1)
    # Beyond any number of errors for next to no freedom.
    return math.sqrt(freedom * math.expm1(min(z * z / freedom, 200.0)))


def _slope(values: Tensor, weights: Tensor) -> float:
    """Slope of a straight line through numbers at 0, 1, 2, ..., by weighted least squares."""
    at = torch.arange(len(values), dtype=torch.float64)
    at = at - float(at @ weights) / float(weights.sum())
    return float((weights * at) @ values) / float(weights @ at.square())


def trend(values: Tensor) -> float:
    """How often numbers in no order would rise as steadily: Mann (1945) and Kendall's (1975) test.

    Arguments:
        values: In the order of time, with shape (K,).

    Returns:
        The one-sided p-value of S, the pairs that rise less those that fall, by its normal
        approximation with continuity correction; 1 for fewer than two values.

    Example:
        >>> round(trend(torch.arange(8.0)), 5), round(trend(torch.tensor([1.0, 0, 2, 0, 1])), 2)
        (0.00042, 0.5)
    """
    k = len(values)
    if k < 2:
        return 1.0
    later = torch.triu(torch.ones(k, k, dtype=torch.bool), diagonal=1)
    score = float((values[None] - values[:, None]).sign()[later].sum())
    deviation = math.sqrt(k * (k - 1) * (2 * k + 5) / 18)
    z = (score - math.copysign(min(1.0, abs(score)), score)) / deviation
    return 0.5 * math.erfc(z / math.sqrt(2))
