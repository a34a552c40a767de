"""Moments of every feature by itself over a sub-task; no sample is kept.

Whether new samples are distributed as those of an earlier sub-task were can be asked of single
features when all data of that sub-task are gone: their means, and their mean absolute deviations
from the mean of then, must be what they were. Moments of the data themselves tell, so that it
makes no difference what the model has made of these since.

Throughout: N samples, D features, in the sender's units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.memory.feature_sums import absolute_sums, totals

MOST_FEATURES = 4096
"""Of wider samples nothing is kept: single features say little there."""

ERROR = 0.05
"""Probability, at most, that one feature or more of the same distribution is found changed."""

LEAST_CHANGE = 0.2
"""Deviations: what has moved by less counts as the same. No sub-task comes back exactly."""


SURE = 6.0
"""Deviations by which all features together must have moved. Where all are one, six deviations
of its square come by chance in two of a thousand."""

MOST_ROWS = 512
"""Samples whose products are looked at, the last ones."""

RARE = 0.03
"""Of a feature's deviation over all that was ever seen: where a sub-task's own is below it, a
sample more might have been that far away."""


class Moved(NamedTuple):
    """Known movement of the features' means, because classes have other shares."""

    values: Tensor  # (2, D) of features, and of their absolute deviations
    doubt: Tensor  # () variance of what is known, where that of a feature is one


@dataclass(frozen=True, eq=False)
class Marginals:
    """Moments of every feature.

    Arguments:
        samples: Behind them.
        mean: With shape (D,), float64; as all of these.
        spread: Mean absolute deviation from the mean of the time.
        square: Mean squared deviation, likewise.
        fourth: Mean of its fourth power.
    """

    samples: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    spread: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    square: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    fourth: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    def observed(self, x: Tensor) -> Marginals:
        """Add N more samples, with shape (N, D)."""
        n, d = x.shape
        if not n or d > MOST_FEATURES:
            return self
        old = self.to(x.device) if self.samples else _nothing(d, x.device)
        total = self.samples + n
        share = n / total
        mean = torch.lerp(old.mean, totals(x) / n, share)
        away = torch.stack([old.spread, old.square, old.fourth])
        return Marginals(total, mean, *torch.lerp(away, absolute_sums(x, mean) / n, share))

    def to(self, device: torch.device) -> Marginals:
        """The same elsewhere."""
        moments = (self.mean, self.spread, self.square, self.fourth)
        return Marginals(self.samples, *(one.to(device) for one in moments))

    def compact(self) -> Marginals:
        """In half of the room, to be kept."""
        largest = torch.finfo(torch.float32).max
        spread, square, fourth = (
            one.clamp_max(largest).float() for one in (self.spread, self.square, self.fourth)
        )
        return replace(self, spread=spread, square=square, fourth=fourth)

    def moved(self, x: Tensor, codes: Tensor, change: Tensor) -> Moved:
        """What other shares of classes do to the means.

        Arguments:
            x: Samples of all classes, with shape (M, D).
            codes: Place of the class of each in `change`, with shape (M,), int64.
            change: By how much the share of each class has grown, with shape (C,).
        """
        members = torch.nn.functional.one_hot(codes, len(change)).double()  # (M, C)
        counts, away = members.sum(0), x - self.mean.to(x.device)
        # The mean of class c, times the change of its share, for all classes in one product.
        weights = members @ (change.double() / counts.clamp_min(1))
        doubt = (change.double().square() / counts.clamp_min(1)).sum()
        return Moved(torch.stack([weights @ away, weights @ away.abs()]), doubt)

    def differ(self, x: Tensor, unit: Tensor, known: Moved | None = None) -> bool:
        """Whether features are distributed otherwise than they were: one of them, or many a little.

        Two means are compared for each feature: of its values, and of their absolute deviations
        from the mean of then.

        Arguments:
            x: New samples, with shape (N, D), at least one.
            unit: Deviation of each feature over all that was ever seen, with shape (D,).
            known: What must have moved.
        """
        away, largest = self._away(x, unit, known)
        doubt = 1 / len(x) + 1 / self.samples + (0.0 if known is None else float(known.doubt))
        return _one_differs(away.mean(1), largest, doubt) or any(
            _many_differ(part, 1 / reach) for part, reach in zip(away, largest, strict=True)
        )

    def _away(self, x: Tensor, unit: Tensor, known: Moved | None) -> tuple[Tensor, Tensor]:
        """Both numbers of samples less what is expected, and the largest that each may become.

        Returns:
            In deviations, with shape (2, N, D) and (2, D).
        """
        old, unit = self.to(x.device), unit.double()
        square, fourth, spread = old.square.double(), old.fourth.double(), old.spread.double()
        rare = torch.where(square.sqrt() > RARE * unit, 0.0, unit)
        one_more = 1 / (self.samples + 1)
        square = square + one_more * rare.square()
        fourth = fourth + one_more * rare.pow(4)
        spread = spread + one_more * rare
        tiny = torch.finfo(torch.float32).tiny
        variances = torch.stack([square, (square - spread.square()).clamp_min(1e-2 * square)])
        variances = variances.clamp_min(tiny)
        # The deviation times the root of the kurtosis: what the largest value is where a feature
        # is zero but for a few samples.
        largest = (fourth / square.clamp_min(tiny) / variances).sqrt().clamp_min(1.0)
        away = x - old.mean
        both = torch.stack([away, away.abs() - spread])
        if known is not None:
            both = both - known.values[:, None]
        return both / variances.sqrt()[:, None], largest


def _one_differs(moves: Tensor, largest: Tensor, doubt: float) -> bool:
    """Whether any mean has moved, by Bernstein's inequality (Boucheron, Lugosi, Massart 2013, 2.8).

    All 2 D tests together err as seldom as `ERROR`. With 30 samples of 50 features a shift by one
    deviation is seen, with 100 by half of one.

    Arguments:
        moves: Of means, in deviations, with shape (2, D).
        largest: Of single values, likewise.
        doubt: Variance of a mean, in squared deviations.
    """
    moves = moves.abs()
    strength = moves.square() / (2 * doubt * (1 + largest * moves / 3))
    limit = math.log(2 * moves.numel() / ERROR)
    return bool(((strength > limit) & (moves > LEAST_CHANGE)).any())


def _many_differ(away: Tensor, weights: Tensor) -> bool:
    """Whether means have moved all together, each perhaps too little to be told by itself.

    The squared length of the mean is estimated without bias, and its deviation as well, from
    products of different samples, however features depend on each other (Chen and Qin 2010).

    Arguments:
        away: In deviations, with shape (N, D).
        weights: Of features, with shape (D,): those that are mostly zero say little.
    """
    away = away[-MOST_ROWS:] * weights
    n = len(away)
    if n < 2:
        return False
    products = (away @ away.T).fill_diagonal_(0)
    pairs = n * (n - 1)
    length = float(products.sum()) / pairs
    deviation = math.sqrt(2 * float(products.square().sum())) / pairs
    least = LEAST_CHANGE**2 * float(weights.square().sum())
    return length > max(least, SURE * deviation)


def _nothing(n_features: int, device: torch.device) -> Marginals:
    zeros = torch.zeros(n_features, dtype=torch.float64, device=device)
    return Marginals(0, zeros, zeros, zeros, zeros)
