"""How often samples are unknown to the model, with a label of a known class and without any.

A sample is unknown where the model finds it unlikely (`core.outliers.unknown`). Samples of known
classes are, too, now and then, and more often where a table drifts. How often is seen by those that
come with a label. As often, others without a label are unknown and yet of a known class.

Both change in the course of a stream, and labels may come more often at one time than at another.
So samples are compared within blocks of the stream, and what these say is pooled: the ratio of
rates by Mantel and Haenszel (1959).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

BLOCK: Final = 30
"""Samples of a block, at least."""

FADING: Final = 5000.0
"""Samples of the stream over which what blocks said fades to 1/e."""


@dataclass(frozen=True)
class UnknownRates:
    """What blocks say, and the counts of the one that is not over.

    Arguments:
        numerator: Of the ratio: over blocks, the sum of unknown samples with a label times samples
            without one, by all samples of the block.
        denominator: Likewise of unknown samples without a label times samples with one.
        block: Samples with a label of a class that was known, the unknown ones of these, samples
            without a label, and the unknown ones of these.

    Example:
        >>> rates = UnknownRates().updated(100, 2, 100, 20)
        >>> round(rates.known_share, 3)
        0.1
    """

    numerator: float = 0.0
    denominator: float = 0.0
    block: tuple[int, int, int, int] = (0, 0, 0, 0)

    def updated(
        self, labelled: int, unknown_labelled: int, unlabelled: int, unknown_unlabelled: int
    ) -> UnknownRates:
        """Add the samples of a batch, counted as those of a block."""
        came = (labelled, unknown_labelled, unlabelled, unknown_unlabelled)
        first, second, third, fourth = (
            one + more for one, more in zip(self.block, came, strict=True)
        )
        block = (first, second, third, fourth)
        n = first + third
        if n < BLOCK:
            return replace(self, block=block)
        kept = math.exp(-n / FADING)
        numerator, denominator = _products(block)
        return UnknownRates(
            self.numerator * kept + numerator, self.denominator * kept + denominator
        )

    @property
    def known_share(self) -> float:
        """Share of the unknown samples without a label that are of known classes, 0 to 1.

        It is 0 where no label says so.
        """
        numerator, denominator = _products(self.block)
        total = self.denominator + denominator
        return min(1.0, (self.numerator + numerator) / total) if total > 0 else 0.0


def _products(block: tuple[int, int, int, int]) -> tuple[float, float]:
    """What a block adds to numerator and denominator."""
    labelled, unknown_labelled, unlabelled, unknown_unlabelled = block
    n = max(1, labelled + unlabelled)
    return unknown_labelled * unlabelled / n, unknown_unlabelled * labelled / n
