"""A running mean and variance: a plain average at first, exponential later."""

from __future__ import annotations

import math
from dataclasses import dataclass

UNIT = 100
"""Samples after which the newest weigh `FORGETTING`, however they are cut into batches."""

FORGETTING = 0.01

FREAK = 5.0
"""Deviations below the mean at which a number says nothing but that it is far off."""


@dataclass(frozen=True)
class Running:
    """Mean and variance of a stream of numbers, the newest 10,000 or so counting most.

    Example:
        >>> Running().updated(2, mean=1.0).updated(2, mean=3.0)
        Running(weight=4.0, mean=2.0, variance=1.0)
    """

    weight: float = 0.0  # samples behind it, in all
    mean: float = 0.0
    variance: float = 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return math.sqrt(max(self.variance, 0.0))

    @property
    def lowest(self) -> float:
        """What lower numbers are to be counted as, minus infinity while little is known.

        One sample of a broken sensor, a million nats below the rest, would otherwise widen
        the deviation so much that nothing is an outlier for the next 10,000 samples.
        """
        if self.weight < UNIT:
            return -math.inf
        # A stream of equal numbers has no deviation; it must still be able to move.
        return self.mean - FREAK * max(self.deviation, 1.0)

    def updated(self, n: float, mean: float, variance: float = 0.0) -> Running:
        """Add n more samples of this mean and variance."""
        rate = max(n / (self.weight + n), 1 - (1 - FORGETTING) ** (n / UNIT))
        shift = mean - self.mean
        spread = (1 - rate) * (self.variance + rate * shift**2) + rate * variance
        return Running(self.weight + n, self.mean + rate * shift, spread)

    def pooled(self, other: Running) -> Running:
        """Both streams as one, by their weights."""
        weight = self.weight + other.weight
        if weight == 0:
            return other
        share = other.weight / weight
        shift = other.mean - self.mean
        spread = (1 - share) * self.variance + share * other.variance
        return Running(weight, self.mean + share * shift, spread + share * (1 - share) * shift**2)
