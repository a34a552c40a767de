"""Evidence for a change, added up over time: the Shiryaev-Roberts procedure on e-values.

With e-values e of mean one, R = (1 + R) e grows by one per sample on average as long as
nothing changes, so that it passes A after A samples on average, or later (an *e-detector*:
Shin, Ramdas and Rinaldo 2022). That holds for every bet, and for the weighted mean of many,
however they depend on each other: one threshold, in samples, fuses all signals. It is
worked out after every sample, so that it does not matter how a stream is cut into batches.
A loop over samples and bets, it is compiled: in small array operations it would cost ten times
as much. For the same reason it multiplies, and takes logarithms where numbers become large or
small only.

Throughout: N samples, J bets, V signals; all in float64, logarithms natural.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from core.drift.bets import Array, Book
from core.drift.compiled import compiled

LARGE = 200.0
"""log R from which on R is kept as its logarithm, far above any threshold: 1 + R is R there.
The logarithms of e-values are below it."""

SLACK = 1.0
"""Nats from which on a bet counts as winning."""

CHANCE = 4.0
"""Nats that a bet may gain by chance: some stay that high for long before a change begins."""

ALIKE = 2.0
"""Nats by which a bet may be behind the one that has gained most and be as good a witness."""

TOTALS, HEIGHTS, TOPS, SPANS, CLIMBS = range(5)


class Reading(NamedTuple):
    """What the evidence comes to.

    Arguments:
        statistic: log(1 + R), of all bets together.
        of_signals: The same of the bets of each signal, V values.
        leader: The bet that has gained most.
        span: Samples for which the change has shown, by the bets that have gained most. Of
            those about as loud the latest start counts: before a change some neither gain nor
            lose, and find no lowest point for long.
        age: Samples since the change began, by the same bets, `span` at most: the first
            `CHANCE` nats are taken to have been gained as fast as the rest.
        lost: Nats that the bet which stood highest has lost again.
    """

    statistic: float
    of_signals: list[float]
    leader: int
    span: int
    age: int
    lost: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What has been gathered.

    Arguments:
        levels: Of every bet, with shape (5, J), the rows that are properties here.
    """

    levels: Array

    @property
    def totals(self) -> Array:
        """log R of every bet, with shape (J,); minus infinity at the start."""
        return self._row(TOTALS)

    @property
    def heights(self) -> Array:
        """How high the logarithm of each bet's gains stands above its lowest point: (J,)."""
        return self._row(HEIGHTS)

    @property
    def spans(self) -> Array:
        """Samples since the height was last below `SLACK`, with shape (J,)."""
        return self._row(SPANS)

    @property
    def climbs(self) -> Array:
        """Samples since the height was last below `CHANCE`, with shape (J,)."""
        return self._row(CLIMBS)

    @property
    def tops(self) -> Array:
        """The largest height since the lowest point, with shape (J,)."""
        return self._row(TOPS)

    def _row(self, place: int) -> Array:
        row: Array = self.levels[place]
        return row

    @classmethod
    def none(cls, n_bets: int) -> Evidence:
        """Before the first sample."""
        levels = np.zeros((5, n_bets))
        levels[TOTALS] = -np.inf
        return cls(levels)

    def added(self, paid: Array, weights: Array) -> tuple[Evidence, Array]:
        """With N more samples.

        Arguments:
            paid: E-values, with shape (J, N), N at least 1; below e^`LARGE`.
            weights: Of the bets, with shape (J,); their sum is one.

        Returns:
            The evidence, and log R of all bets together after each sample, with shape (N,).
        """
        levels, together = self.levels.copy(), np.empty(paid.shape[1])
        _accumulate(levels[TOTALS], paid, weights, together)
        _follow(levels, paid)
        return Evidence(levels), together

    def read(self, book: Book, weights: Array) -> Reading:
        """What it comes to, by the signals of the bets, and their weights, with shape (J,).

        It is asked for after a batch, and again before the next: the last answer is kept.
        """
        known = self.__dict__.get("_known")
        if known is not None and known[0] is book and known[1] is weights:
            reading: Reading = known[2]
            return reading
        sums = np.empty(1 + len(book.signals))
        leader, span, age, lost = _read(self.levels, weights, book.owners, sums)
        statistic, *of_signals = sums.tolist()
        reading = Reading(statistic, of_signals, leader, int(span), int(age), lost)
        self.__dict__["_known"] = book, weights, reading
        return reading


def shiryaev_roberts(totals: Array, paid: Array, weights: Array) -> tuple[Array, Array]:
    """R <- (1 + R) e, for every bet, sample by sample.

    Arguments:
        totals: log R of every bet before, with shape (J,).
        paid: E-values, with shape (J, N), N at least 1; below e^`LARGE`.
        weights: Of the bets, with shape (J,).

    Returns:
        log R of every bet after the last sample, with shape (J,), and of all bets
        together after each, with shape (N,).
    """
    after, together = totals.copy(), np.empty(paid.shape[1])
    _accumulate(after, paid, weights, together)
    return after, together


@compiled
def _accumulate(totals: Array, paid: Array, weights: Array, together: Array) -> None:
    """`totals` becomes log R after the last sample, `together` that of all bets after each."""
    n_bets, n = paid.shape
    most = math.exp(LARGE)
    loud = np.full(n, -np.inf)  # of bets so large that only their logarithm is kept
    together[:] = 0
    for j in range(n_bets):
        total, weight, log_weight = totals[j], weights[j], np.log(weights[j])
        r = math.exp(min(total, LARGE))
        for i in range(n):
            if r < most:
                r = (1 + r) * paid[j, i]
                together[i] += weight * r
                total = LARGE
                if r >= most:
                    total = math.log(r)
                continue
            total += np.log(paid[j, i])
            if total < LARGE:
                r = math.exp(total)
                together[i] += weight * r
            else:
                loud[i] = np.logaddexp(loud[i], total + log_weight)
        totals[j] = np.log(r) if r < most else total
    for i in range(n):
        together[i] = np.logaddexp(np.log(together[i]), loud[i])


@compiled
def _follow(levels: Array, paid: Array) -> None:
    """All but totals become those after the last sample.

    The height is that at the last mark, and the logarithm of what was paid since.
    """
    least, most = math.exp(-LARGE), math.exp(LARGE)
    for j in range(paid.shape[0]):
        mark, top = levels[HEIGHTS, j], levels[TOPS, j]
        span, climb = levels[SPANS, j], levels[CLIMBS, j]
        floor, since, peak = math.exp(-mark), 1.0, 1.0
        for i in range(paid.shape[1]):
            since *= paid[j, i]
            span += 1
            climb += 1
            if since < floor * math.exp(CHANCE):
                climb = 0.0
                if since < floor * math.exp(SLACK):
                    span = 0.0
            if since < floor or since == 0:
                mark = top = 0.0
                floor, since, peak = 1.0, 1.0, 1.0
                continue
            peak = max(peak, since)
            if since < least or since > most:
                top = max(top, mark + math.log(peak))
                mark += math.log(since)
                floor, since, peak = math.exp(-mark), 1.0, 1.0
        levels[HEIGHTS, j], levels[TOPS, j] = (
            mark + math.log(since),
            max(top, mark + math.log(peak)),
        )
        levels[SPANS, j], levels[CLIMBS, j] = span, climb


@compiled
def _read(
    levels: Array, weights: Array, owners: Array, sums: Array
) -> tuple[int, float, float, float]:
    """Fills `sums` with log(1 + R), of all and by signal; leader, span, age and what was lost."""
    n_bets = len(weights)
    sums[:] = -np.inf
    leader, highest, best = 0, 0, -np.inf
    for j in range(n_bets):
        own = levels[TOTALS, j] + np.log(weights[j])
        sums[0] = np.logaddexp(sums[0], own)
        sums[1 + owners[j]] = np.logaddexp(sums[1 + owners[j]], own)
        if own > best:
            leader, best = j, own
        if levels[TOPS, j] > levels[TOPS, highest]:
            highest = j
    span = age = np.inf
    for j in range(n_bets):
        if levels[TOTALS, j] + np.log(weights[j]) >= best - ALIKE:
            height = max(levels[HEIGHTS, j], 2 * CHANCE)
            span = min(span, levels[SPANS, j])
            age = min(age, span, levels[CLIMBS, j] * height / (height - CHANCE))
    for v in range(len(sums)):
        sums[v] = np.logaddexp(0.0, sums[v])
    return leader, span, age, levels[TOPS, highest] - levels[HEIGHTS, highest]
