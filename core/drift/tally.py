"""Where samples fell: counts of cells in the long run and among the last samples.

A cell of each division holds every sample, so that the counts of a division add up to as
many samples. A bet on cells (`core.drift.bets`) is on what the last samples preferred, against
the shares in the long run; each sample is betted on by what was counted before it, and
counted then, so that it does not matter how a stream is cut into batches.

Throughout: N samples, M cells of all divisions together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from core.drift.compiled import Array, compiled, vectorised

MEMORIES = (50.0, 400.0)
"""Samples after which what the last samples preferred has faded to a third: for what comes at
once, and for what trickles in."""
AT_ONCE, TRICKLING = range(2)

PRIOR = 20.0
"""Samples that the long-run shares count as among the last ones."""

SMOOTHING = 0.5
"""Samples added to every cell, so that none has a share of zero."""

SPARE_CELLS = 10
"""Cells never seen that may yet be: they share the smoothing."""

RENEWAL = 500.0
"""Samples from which shares are learned anew once they have changed."""

GROWTH = np.exp([1 / memory for memory in MEMORIES])
"""By which a sample counts for more than the one before it, by memory."""

FRESH = 256
"""Samples after which growing weights are scaled back, long before they overflow."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Samples per cell.

    Arguments:
        widths: Cells of each division.
        counts: In the long run, with shape (M,), float64.
        recent: Among the last, faded, with shape (memories, M), float64.
        spread: Samples that smoothing adds to each cell's division, with shape (M,), float64.
        quiet: Samples of the long run up to which nothing is paid: fewer do not tell shares.
    """

    widths: tuple[int, ...]
    counts: Array
    recent: Array
    spread: Array
    quiet: float = 0.0

    @classmethod
    def empty(cls, widths: Sequence[int]) -> Self:
        """Before the first sample.

        Arguments:
            widths: Cells of each division.
        """
        none = np.zeros(sum(widths))
        return cls(tuple(widths), none, np.zeros((len(MEMORIES), len(none))), none).smoothed()

    def smoothed(self) -> Self:
        """With the smoothing that the cells in use ask for."""
        return replace(self, spread=spread_over(self.counts, self.widths))

    def faded(self) -> Self:
        """With the shares of the long run, and no last samples."""
        return replace(self, recent=np.zeros_like(self.recent)).smoothed()

    def renewed(self) -> Self:
        """As if the last samples were all that there have been."""
        # What has all but faded is in use no more.
        last = np.where(self.recent[AT_ONCE] < SMOOTHING, 0, self.recent[AT_ONCE])
        recent = np.tile(last, (len(MEMORIES), 1))
        return replace(self, counts=last, recent=recent, quiet=RENEWAL).smoothed()


@compiled
def spread_over(counts: Array, widths: tuple[int, ...]) -> Array:
    """`Tally.spread` that the cells in use ask for.

    Arguments:
        counts: In the long run, with shape (M,) or longer.
        widths: Cells of each division.
    """
    spread, begin = np.empty(sum(widths)), 0
    for width in widths:
        used = 0
        for cell in range(begin, begin + width):
            used += counts[cell] != 0
        for cell in range(begin, begin + width):
            spread[cell] = SMOOTHING * min(width, used + SPARE_CELLS)
        begin += width
    return spread


@vectorised
def bet_on_cells(
    paid: Array,
    cells: Array,
    terms: tuple[Array, Array],
    counts: Array,
    recent: Array,
    spread: Array,
    quiet: float,
    stride: int,
) -> None:
    """Bet on samples one by one, and count them.

    Instead of fading all cells with every sample, the samples' weights grow.

    Arguments:
        paid: Is filled with e-values; with shape (bets on cells, N).
        cells: Of every sample in each division, with shape (divisions, N), int64.
        terms: `Book.cell_terms`.
        counts: See `Tally`; the samples are added.
        recent: See `Tally`; the samples are added.
        spread: See `Tally`.
        quiet: See `Tally`.
        stride: One sample in so many is betted on, and one of the last ones; all are counted.
    """
    places, shares = terms
    n_divisions, n = cells.shape
    weights, share = np.ones(len(GROWTH)), np.empty(len(GROWTH))
    total = counts.sum() / n_divisions
    # Sums along an axis, and quotients of tables, take seconds to compile.
    masses, rarity = np.empty(len(GROWTH)), np.empty(n_divisions)
    for memory in range(len(GROWTH)):
        masses[memory] = recent[memory].sum() / n_divisions
    for i in range(n):
        looked_at = stride == 1 or int(total) % stride == 0
        for division in range(n_divisions):
            cell = cells[division, i]
            rarity[division] = (total + spread[cell]) / (counts[cell] + SMOOTHING)
            counts[cell] += 1
        for memory in range(len(GROWTH)):
            share[memory] = 1 / (masses[memory] + PRIOR * weights[memory])
        for j in range(len(shares)):
            if not looked_at:
                paid[j, i] = 1.0
                continue
            memory, division = places[j, 0], places[j, 1]
            last = recent[memory, cells[division, i]] * rarity[division] + PRIOR * weights[memory]
            ratio = last * share[memory]
            paid[j, i] = 1 - shares[j] + shares[j] * ratio if total >= quiet else 0.0
        total += 1
        for memory in range(len(GROWTH)):
            if looked_at:
                weights[memory] *= GROWTH[memory]
                for division in range(n_divisions):
                    recent[memory, cells[division, i]] += weights[memory]
                masses[memory] += weights[memory]
            if (i + 1) % FRESH == 0 or i == n - 1:
                for cell in range(recent.shape[1]):
                    recent[memory, cell] /= weights[memory]
                masses[memory] /= weights[memory]
                weights[memory] = 1.0
