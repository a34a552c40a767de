"""What evidence comes to sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable, CellBet
from core.drift.sequential.evidence import Evidence, Reading, gather


class Gathered(NamedTuple):
    """What some samples have added; see `core.drift.sequential.monitor.Updated`."""

    evidence: Evidence
    highest: float
    probe: Array
    probe_highest: float


def added(
    evidence: Evidence,
    e_values: Array,
    bet_table: BetTable,
    weights: Array,
    probe: Array | None = None,
    further: int = 0,
) -> Gathered:
    """With samples more, from e-values with shape (J, N); no probe: one that begins now.

    Arguments:
        further: Columns of ones beside the bets.
    """
    levels, sums = evidence.levels.copy(), np.empty(len(bet_table.signals) + 1)
    since = np.full(len(e_values), -np.inf) if probe is None else probe.copy()
    by_sample = np.pad(e_values.T, [(0, 0), (0, further)], constant_values=1)
    highest, of_probe, read = gather(levels, since, by_sample, weights, bet_table.table, sums)
    reading = Reading.of(sums, read)
    return Gathered(Evidence.known(levels, bet_table, weights, reading), highest, since, of_probe)


def book_of(n_bets: int) -> BetTable:
    """Of bets on one signal; which ones is of no account."""
    return BetTable((), (CellBet("s", 0, 0, 0.5, 1.0),) * n_bets)


def steps(e_values: Array, weights: Array) -> Iterator[float]:
    """log(1 + R) of all bets together after each sample, from e-values with shape (J, N)."""
    evidence, bet_table = Evidence.none(len(e_values)), book_of(len(e_values))
    for n in range(e_values.shape[1]):
        evidence, highest, *_ = added(evidence, e_values[:, n : n + 1], bet_table, weights)
        yield highest


def path(e_values: Array, weights: Array) -> Array:
    """The same after all samples, with shape (N,)."""
    return np.array(list(steps(e_values, weights)))
