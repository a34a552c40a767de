"""For how long a stream stays where it is.

A sensor that is read ten times a second says ten times the same. Bets on where the last samples lay
(`core.drift.sequential.cells`, `core.drift.sequential.features`) would win from that without any
change. So they look at one sample in so many that those they look at fall as independent ones
would: a change shows later by as much, and is not seen where there is none.

How many that are shows from pairs of samples: as long as those that are l apart lie in the same
cell more often than by chance, one in l is too many.

Throughout: N samples in stream order, R rows of cells (one for each way to tell cells apart).
"""

from __future__ import annotations

import numpy as np

from core.compiled.loops import Array, compiled

LONGEST = 64
"""Samples apart, at most, that pairs are looked at."""

EVIDENT = 5.0
"""Standard deviations by which neighbours must agree more often than by chance, in one row."""
FEWEST = 10.0
"""Pairs that must agree beyond chance, where chance expects next to none."""

STILL = 1.0
"""Standard deviations up to which pairs agree by chance, once neighbours evidently do not."""


def thinning_interval(cells: Array) -> int:
    """One sample in how many is as good as independent, by the row that stays longest.

    Arguments:
        cells: With shape (R, N), unsigned or int64, not negative.

    Returns:
        1 where neighbours are, 0 where those `LONGEST` apart are not.
    """
    if not cells.size or cells.shape[1] <= 2 * LONGEST:
        return 1
    shares = np.zeros(int(cells.max()) + 1)
    # Rows in one piece, so that there is one kind of row to compile for.
    apart = [_apart(row, shares) for row in np.ascontiguousarray(cells, np.int64)]
    return 0 if 0 in apart else max(apart)


@compiled
def _apart(row: Array, shares: Array) -> int:
    """The same for one row, with shape (N,); `shares` has room for all cells."""
    n = len(row)
    shares[:] = 0
    for i in range(n):
        shares[row[i]] += 1 / n
    chance = (shares * shares).sum()
    for apart in range(1, LONGEST + 1):
        pairs, alike = n - apart, 0
        for i in range(apart, n):
            alike += row[i] == row[i - apart]
        excess = alike - pairs * chance
        deviation = np.sqrt(pairs * chance * max(1 - chance, 0.0))
        if apart == 1:
            if excess < max(FEWEST, EVIDENT * deviation):
                return 1
        elif excess < STILL * max(deviation, 1.0):
            return apart
    return 0
