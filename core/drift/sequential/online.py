"""E-values from a small reference that grows with every sample.

Ranks among a few samples that stand still are uniform on average only: what the few happen to
be like, all later samples are paid for alike. Ranked among all samples before it, a sample has a
rank that does not depend on the earlier ranks (online conformal prediction: Vovk, Gammerman and
Shafer 2005, section 8.2), so that bets on it are exact however small the reference is.

Cells are betted on by such ranks, too: of how many samples the bag has in the same cell, itself
included. That is a score which treats all samples of the bag alike.

Throughout: N samples, S scores, n earlier samples, K cells.
"""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.ranks import find_ranks
from core.drift.sequential.scores import BLOCK, OVERALL

PIECE = 16
"""Samples that are ranked among each other one by one; then they are sorted in."""

RARE_SHARE = 0.5
"""Samples in rare cells that a bet on rarity is on."""

RARE_POWER = 0.2
"""Of the density of their ranks; see `RankBet`."""

CORRELATED = 3.0
"""Standard errors of a correlation of neighbours from which on they depend on each other."""

STAYING = 2.6
"""Standard deviations by which neighbours fall on the same component more often than by chance:
where classes stay for long, few samples may show hardly any but one."""

AGREEING = 4.0
"""The same for bins of features, of which there are many."""

QUARTERS = 4
MOVING = 3.0
"""Standard deviations by which components are shared out among the quarters of the samples more
unevenly than by chance: where classes stay so long that few samples are of one or two of them,
neighbours agree hardly more often than any two samples do."""


@compiled
def find_online_ranks(
    low: Array, high: Array, places: Array, known: Array, begins: Array, scores: Array
) -> None:
    """Fills what `find_ranks` does, every sample ranked among those before it as well.

    Arguments are those of `find_ranks`; `places` are among `known` alone. Time grows with N^2.
    """
    find_ranks(low, high, places, known, begins, scores)
    n, n_blocks = scores.shape[1], begins.shape[1] - 1
    blocks = np.zeros(n)
    for row in range(len(places)):
        if row >= OVERALL:
            for i in range(n):
                blocks[i] = np.floor(scores[row, i] / BLOCK + 0.5)
        for i in range(n):
            own = int(max(0.0, min(blocks[i], float(n_blocks))))
            begin, end = begins[row, own], begins[row, min(own + 1, n_blocks)]
            among = end - begin + 1
            below = places[row, i] - begin
            equal = int(np.floor(high[row, i] * among + 0.5)) - below
            for j in range(i):
                if blocks[j] == blocks[i]:
                    among += 1
                    below += scores[row, j] < scores[row, i]
                    equal += scores[row, j] == scores[row, i]
            low[row, i] = below / among
            high[row, i] = (below + equal) / among


@compiled
def pay_rarity(e_values: Array, cells: Array, counts: Array) -> None:
    """Pay for samples in cells of which the bag has few.

    Arguments:
        e_values: Is filled with e-values, with shape (N,).
        cells: Of the samples, with shape (N,), int, 0 to K - 1.
        counts: Earlier samples of each cell, with shape (K,), float64; the samples are added.
    """
    total = counts.sum()
    for i in range(len(cells)):
        counts[cells[i]] += 1
        total += 1
        own, below, upto = counts[cells[i]], 0.0, 0.0
        for count in counts:
            below += count if count < own else 0.0
            upto += count if count <= own else 0.0
        low, high = below / total, upto / total
        mean = (high**RARE_POWER - low**RARE_POWER) / (high - low)
        e_values[i] = 1 - RARE_SHARE + RARE_SHARE * mean


def neighbours_depend(scores: Array, cells: Array) -> bool:
    """Whether samples evidently depend on the ones before them.

    Arguments:
        scores: With shape (S, N), in stream order; rows that do not vary say nothing.
        cells: With shape (R, N), not negative: components first, then bins of features.
    """
    n = scores.shape[1]
    if n < 3:
        return False
    for row in scores:
        known = np.sort(row)
        # Equals have the same rank: in any order of theirs they would seem to rise.
        rank = (np.searchsorted(known, row) + np.searchsorted(known, row, "right")) / 2
        rank -= rank.mean()
        varies = float((rank * rank).mean())
        correlation = float((rank[1:] * rank[:-1]).sum()) / (n * varies) if varies else 0.0
        if abs(correlation) > CORRELATED / n**0.5:
            return True
    pairs = n - 1
    for limit, row in zip(chain([STAYING], repeat(AGREEING)), cells, strict=False):
        shares = np.bincount(row) / n
        chance = float((shares * shares).sum())
        alike = int((row[1:] == row[:-1]).sum())
        spread = max(1.0, (pairs * chance * (1 - chance)) ** 0.5)
        if alike - pairs * chance > limit * spread:
            return True
    return len(cells) > 0 and _unevenness(cells[0]) > MOVING


def _unevenness(cells: Array) -> float:
    """How unevenly cells are shared out over time, in standard deviations of chance.

    Pearson's chi-square of a table of quarters by cells, less its mean and over its deviation
    where order says nothing.

    Arguments:
        cells: In stream order, with shape (N,), int, not negative; N at least 3.

    Example:
        >>> _unevenness(np.array([0, 1, 2, 3] * 25)) < 0
        True
        >>> _unevenness(np.array([0] * 80 + [1] * 20)) > MOVING
        True
    """
    n = len(cells)
    quarters = np.arange(n) * QUARTERS // n
    table = np.zeros((QUARTERS, int(cells.max()) + 1))
    np.add.at(table, (quarters, cells), 1)
    table = table[:, table.any(0)]
    expected = np.outer(table.sum(1), table.sum(0)) / n
    degrees = (QUARTERS - 1) * (table.shape[1] - 1)
    if not degrees:
        return 0.0
    chi_square = float(((table - expected) ** 2 / expected).sum())
    return (chi_square - degrees * n / (n - 1)) / float((2 * degrees) ** 0.5)
