"""Evidence for a change, added up over time: the Shiryaev-Roberts procedure on e-values.

With e-values e of mean one, R = (1 + R) e grows by one per sample on average as long as
nothing changes, so that it passes A after A samples on average, or later (an *e-detector*:
Shin, Ramdas and Rinaldo 2022). That holds for every bet, and for the weighted mean of many,
however they depend on each other: one threshold, in samples, fuses all signals. It is
worked out after every sample, so that it does not matter how a stream is cut into batches.
A loop over samples and bets, it is compiled: in small array operations it would cost ten times
as much. For the same reason it multiplies, all bets side by side; logarithms are taken between
batches, and where numbers become too large for that.

Throughout: N samples, J bets, V signals; all in float64, logarithms natural.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array, compiled, vectorised
from core.drift.sequential.bets import BetTable
from core.drift.sequential.record import record

LARGE = 200.0
"""Logarithms from which on numbers are not multiplied any more, far above any threshold. Those of
e-values are below it."""

SLACK = 1.0
"""Nats from which on a bet counts as winning."""

CHANCE = 4.0
"""Nats that a bet may gain by chance: some stay that high for long before a change begins."""

ALIKE = 2.0
"""Nats by which a bet may be behind the one that has gained most and be as good a witness."""

TOTALS, CUSUMS, CUSUM_MAXIMA, RUN_LENGTHS, AGES = range(5)

Read = tuple[int, int, float, float, float]
"""The last fields of a `Reading`: loudest, leader, run_length, age and what was lost."""


class Reading(NamedTuple):
    """A reading of the evidence.

    Arguments:
        statistics: log(1 + R), of the bets of each signal and, at the end, of all together: V + 1
            values.
        loudest: The signal whose bets have gained most.
        leader: The bet that has gained most.
        run_length: Samples for which the change has shown, by the bets that have gained most. Of
            those about as loud the latest start counts: before a change some neither gain nor
            lose, and find no lowest point for long.
        age: Samples since the change began, by the same bets, `run_length` at most: the first
            `CHANCE` nats are taken to have been gained as fast as the rest.
        lost: Nats that the bet which stood highest has lost again.
    """

    statistics: list[float]
    loudest: int
    leader: int
    run_length: int
    age: int
    lost: float

    @classmethod
    def of(cls, sums: Array, read: Read) -> Reading:
        """From `statistics`, with shape (V + 1,), and all else."""
        loudest, leader, run_length, age, lost = read
        return cls(sums.tolist(), loudest, leader, int(run_length), int(age), lost)

    @property
    def statistic(self) -> float:
        """The statistic of all bets together."""
        return self.statistics[-1]


@record
class Evidence:
    """The evidence that has been gathered.

    Arguments:
        levels: Of every bet, with shape (5, J), the rows that are properties here.
    """

    levels: Array

    @property
    def totals(self) -> Array:
        """log R of every bet, with shape (J,); minus infinity at the start."""
        return self._row(TOTALS)

    @property
    def cusums(self) -> Array:
        """How high the logarithm of each bet's gains stands above its lowest point: (J,)."""
        return self._row(CUSUMS)

    @property
    def run_lengths(self) -> Array:
        """Samples since the cusum was last below `SLACK`, with shape (J,)."""
        return self._row(RUN_LENGTHS)

    @property
    def ages(self) -> Array:
        """Samples since the cusum was last below `CHANCE`, with shape (J,)."""
        return self._row(AGES)

    @property
    def cusum_maxima(self) -> Array:
        """The largest cusum since the lowest point, with shape (J,)."""
        return self._row(CUSUM_MAXIMA)

    def _row(self, place: int) -> Array:
        row: Array = self.levels[place]
        return row

    @classmethod
    def none(cls, n_bets: int) -> Evidence:
        """Before the first sample."""
        levels = np.zeros((5, n_bets))
        levels[TOTALS] = -np.inf
        return cls(levels)

    @classmethod
    def known(
        cls, levels: Array, bet_table: BetTable, weights: Array, reading: Reading
    ) -> Evidence:
        """Note what the evidence comes to.

        Arguments:
            levels: With shape (5, J).
            bet_table: The bets.
            weights: Of the bets, with shape (J,).
            reading: What `read` would say by these.
        """
        evidence = cls(levels)
        evidence._keep(bet_table, weights, reading)
        return evidence

    def read(self, bet_table: BetTable, weights: Array) -> Reading:
        """What it comes to, by the signals of the bets, and their weights, with shape (J,).

        It is asked for after a batch, and again before the next: the last answer is kept.
        """
        known = self.__dict__.get("_known")
        if known is not None and known[0] is bet_table and known[1] is weights:
            reading: Reading = known[2]
            return reading
        sums = np.empty(len(bet_table.signals) + 1)
        read = _read(self.levels, weights, bet_table.table, sums)
        return self._keep(bet_table, weights, Reading.of(sums, read))

    def _keep(self, bet_table: BetTable, weights: Array, reading: Reading) -> Reading:
        self.__dict__["_known"] = bet_table, weights, reading
        return reading


@compiled
def gather(
    levels: Array, probe: Array, e_values: Array, weights: Array, bets: Array, sums: Array
) -> tuple[float, float, Read]:
    """Add up what bets gain.

    Arguments:
        levels: Of `Evidence`; become those after the last sample.
        probe: log R of every bet since another moment, with shape (J,); becomes that, too.
        e_values: E-values, with shape (N, J), N at least 1; below e^`LARGE`. There may be further
            columns, of ones.
        weights: Of the bets, with shape (J,); their sum is one.
        bets: `BetTable.table`.
        sums: Is filled with `Reading.statistics` after the last sample, with shape (V + 1,).

    Returns:
        The largest log(1 + R) of all bets together on the way, that of the probe, and all else of
        the `Reading` after the last sample.
    """
    highest = of_probe = np.inf
    largest = -np.inf
    for j in range(len(weights)):
        largest = max(largest, levels[TOTALS, j], levels[CUSUM_MAXIMA, j], probe[j])
    if largest < LARGE:
        highest, of_probe = _multiply(levels, probe, e_values, weights)
    if not (highest < np.inf and of_probe < np.inf):
        highest, of_probe = _add(levels, probe, e_values, weights)
    return highest, of_probe, _read(levels, weights, bets, sums)


@vectorised
def _multiply(levels: Array, probe: Array, e_values: Array, weights: Array) -> tuple[float, float]:
    """The same as `_add`; if what it returns is infinite, nothing has been changed."""
    n_bets, (n, width) = len(weights), e_values.shape
    slack, chance = math.exp(SLACK), math.exp(CHANCE)
    totals, since, shares = np.zeros(width), np.zeros(width), np.zeros(width)
    cusums, cusum_maxima = np.zeros(width), np.zeros(width)
    run_lengths, ages = np.zeros(width), np.zeros(width)
    for j in range(n_bets):
        shares[j] = weights[j]
        totals[j], since[j] = np.exp(levels[TOTALS, j]), np.exp(probe[j])
        cusums[j], cusum_maxima[j] = np.exp(levels[CUSUMS, j]), np.exp(levels[CUSUM_MAXIMA, j])
        run_lengths[j], ages[j] = levels[RUN_LENGTHS, j], levels[AGES, j]
    highest = of_probe = 0.0
    for i in range(n):
        together = together_since = 0.0
        # In loops over few arrays, or the compiler would not take several bets at a time.
        for j in range(width):
            totals[j] = (1 + totals[j]) * e_values[i, j]
            since[j] = (1 + since[j]) * e_values[i, j]
        # Nor are sums taken where arrays are filled: last bits would go by where these lie.
        for j in range(width):
            together += shares[j] * totals[j]
            together_since += shares[j] * since[j]
        for j in range(width):
            cusum = cusums[j] * e_values[i, j]
            cusum_maxima[j] = max(cusum_maxima[j], cusum) if cusum >= 1 else 1.0
            cusums[j] = cusum if cusum >= 1 else 1.0
        for j in range(width):
            run_lengths[j] = run_lengths[j] + 1 if cusums[j] >= slack else 0.0
            ages[j] = ages[j] + 1 if cusums[j] >= chance else 0.0
        highest, of_probe = max(highest, together), max(of_probe, together_since)
    # What has overflowed once stays infinite, or is no number.
    fits = highest < np.inf and of_probe < np.inf
    for j in range(n_bets):
        fits &= totals[j] < np.inf and since[j] < np.inf and cusum_maxima[j] < np.inf
    if not fits:
        return np.inf, np.inf
    for j in range(n_bets):
        levels[TOTALS, j], probe[j] = np.log(totals[j]), np.log(since[j])
        levels[CUSUMS, j], levels[CUSUM_MAXIMA, j] = np.log(cusums[j]), np.log(cusum_maxima[j])
        levels[RUN_LENGTHS, j], levels[AGES, j] = run_lengths[j], ages[j]
    return np.log1p(highest), np.log1p(of_probe)


@compiled
def _add(levels: Array, probe: Array, e_values: Array, weights: Array) -> tuple[float, float]:
    """`levels` and `probe` become those after the last sample, by logarithms only.

    Returns:
        The largest log(1 + R) of all bets together, and that of the probe.
    """
    n, n_bets = len(e_values), len(weights)
    highest = of_probe = -np.inf
    for i in range(n):
        together = together_since = -np.inf
        for j in range(n_bets):
            gain, log_weight = np.log(e_values[i, j]), np.log(weights[j])
            levels[TOTALS, j] = np.logaddexp(0.0, levels[TOTALS, j]) + gain
            probe[j] = np.logaddexp(0.0, probe[j]) + gain
            together = np.logaddexp(together, levels[TOTALS, j] + log_weight)
            together_since = np.logaddexp(together_since, probe[j] + log_weight)
            cusum = levels[CUSUMS, j] + gain
            levels[CUSUM_MAXIMA, j] = max(levels[CUSUM_MAXIMA, j], cusum) if cusum >= 0 else 0.0
            levels[CUSUMS, j] = max(cusum, 0.0)
            levels[RUN_LENGTHS, j] = levels[RUN_LENGTHS, j] + 1 if cusum >= SLACK else 0.0
            levels[AGES, j] = levels[AGES, j] + 1 if cusum >= CHANCE else 0.0
        highest, of_probe = max(highest, together), max(of_probe, together_since)
    return np.logaddexp(0.0, highest), np.logaddexp(0.0, of_probe)


@compiled
def _read(levels: Array, weights: Array, bets: Array, sums: Array) -> Read:
    """Fills `sums`; see `gather`."""
    n_bets = len(weights)
    own = levels[TOTALS] + np.log(weights)
    leader, highest = 0, 0
    for j in range(n_bets):
        if own[j] > own[leader]:
            leader = j
        if levels[CUSUM_MAXIMA, j] > levels[CUSUM_MAXIMA, highest]:
            highest = j
    best = own[leader]
    sums[:] = 0
    for j in range(n_bets):
        # Beside the best, so that nothing overflows.
        part = math.exp(own[j] - best) if own[j] > -np.inf else 0.0
        sums[bets[j].signal] += part
        sums[-1] += part
    run_length = age = np.inf
    for j in range(n_bets):
        if own[j] >= best - ALIKE:
            cusum = max(levels[CUSUMS, j], 2 * CHANCE)
            run_length = min(run_length, levels[RUN_LENGTHS, j])
            age = min(age, run_length, levels[AGES, j] * cusum / (cusum - CHANCE))
    loudest = 0
    for v in range(len(sums)):
        sums[v] = np.logaddexp(0.0, best + np.log(sums[v]))
        if v < len(sums) - 1 and sums[v] > sums[loudest]:
            loudest = v
    return loudest, leader, run_length, age, levels[CUSUM_MAXIMA, highest] - levels[CUSUMS, highest]
