"""Counts of the cells on which samples fell, in the long run and recently.

A cell of each division holds every sample, so that the counts of a division add up to as
many samples. A bet on cells (`core.drift.sequential.bets`) is on what the last samples preferred,
against the shares in the long run; each sample is betted on by what was counted before it, and
counted then, so that it does not matter how a stream is cut into batches.

Throughout: N samples, M cells of all divisions together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from core.compiled.loops import Array, compiled, vectorised

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
class CellCounts:
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
        """Smooth the counts as the cells in use ask for."""
        return replace(self, spread=spread_over(self.counts, self.widths))

    def faded(self) -> Self:
        """Keep the shares of the long run, and drop the recent counts."""
        return replace(self, recent=np.zeros_like(self.recent)).smoothed()

    def renewed(self) -> Self:
        """As if the last samples were all that there have been."""
        # What has all but faded is in use no more.
        last = np.where(self.recent[AT_ONCE] < SMOOTHING, 0, self.recent[AT_ONCE])
        recent = np.tile(last, (len(MEMORIES), 1))
        return replace(self, counts=last, recent=recent, quiet=RENEWAL).smoothed()


@compiled
def spread_over(counts: Array, widths: tuple[int, ...]) -> Array:
    """`CellCounts.spread` that the cells in use ask for.

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
    e_values: Array,
    cells: Array,
    bets: Array,
    counts: Array,
    recent: Array,
    spread: Array,
    quiet: float,
    thinning: int,
) -> None:
    """Bet on samples one by one, and count them.

    Instead of fading all cells with every sample, the samples' weights grow.

    Arguments:
        e_values: Is filled with e-values; with shape (bets on cells, N).
        cells: Of every sample in each division, with shape (divisions, N), int64.
        bets: Those on cells in `BetTable.table`.
        counts: See `CellCounts`; the samples are added.
        recent: See `CellCounts`; the samples are added.
        spread: See `CellCounts`.
        quiet: See `CellCounts`.
        thinning: One sample in so many is betted on, and one of the last ones; all are counted.
    """
    n_divisions, n = cells.shape
    total = counts.sum() / n_divisions
    looked_at, rarity = np.empty(n, np.bool_), np.empty(cells.shape)
    known, before = np.empty(n), np.empty(cells.shape)
    prior, mass_with = np.empty(n), np.empty(n)
    for i in range(n):
        looked_at[i] = thinning == 1 or int(total + i) % thinning == 0
    for division in range(n_divisions):
        for i in range(n):
            cell = cells[division, i]
            rarity[division, i] = total + i + spread[cell]
            known[i] = counts[cell] + SMOOTHING
            counts[cell] += 1
        # What does not depend on the sample before is worked out for several at a time.
        for i in range(n):
            rarity[division, i] /= known[i]
    for memory in range(len(GROWTH)):
        mass, weight = recent[memory].sum() / n_divisions, 1.0
        for i in range(n):
            prior[i] = PRIOR * weight
            mass_with[i] = mass + prior[i]
            for division in range(n_divisions):
                before[division, i] = recent[memory, cells[division, i]]
            if looked_at[i]:
                weight *= GROWTH[memory]
                for division in range(n_divisions):
                    recent[memory, cells[division, i]] += weight
                mass += weight
            if (i + 1) % FRESH == 0 or i == n - 1:
                for cell in range(recent.shape[1]):
                    recent[memory, cell] /= weight
                mass /= weight
                weight = 1.0
        for j in range(len(bets)):
            bet = bets[j]
            if bet.memory != memory:
                continue
            division, share = bet.partition, bet.share
            for i in range(n):
                ratio = (before[division, i] * rarity[division, i] + prior[i]) / mass_with[i]
                gain = 1 - share + share * ratio if total + i >= quiet else 0.0
                e_values[j, i] = gain if looked_at[i] else 1.0
