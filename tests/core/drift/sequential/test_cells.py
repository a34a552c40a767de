"""Tests for core.drift.sequential.cells: what the last samples preferred, against the long run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable, CellBet
from core.drift.sequential.cells import (
    AT_ONCE,
    MEMORIES,
    PRIOR,
    RENEWAL,
    SMOOTHING,
    SPARE_CELLS,
    TRICKLING,
    CellCounts,
    bet_on_cells,
)
from core.drift.sequential.evidence import Evidence
from tests.core.evidence_path import added

WIDTHS = (3, 2)
BETS = (CellBet("s", 0, AT_ONCE, 0.8, 1.0), CellBet("s", 1, TRICKLING, 0.5, 1.0))

paths = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=40)


def cells(path: Sequence[tuple[int, int]]) -> Array:
    """With shape (divisions, N): those of the second division come after the first's."""
    return np.array([[one for one, _ in path], [3 + other for _, other in path]])


def betted(
    path: Sequence[tuple[int, int]], tally: CellCounts, bets: tuple[CellBet, ...] = BETS
) -> tuple[CellCounts, Array]:
    return counted(tally, cells(path), BetTable((), bets))


def counted(tally: CellCounts, cells: Array, bet_table: BetTable) -> tuple[CellCounts, Array]:
    now, e_values = deepcopy(tally), np.empty((len(bet_table.cells), cells.shape[1]))
    bet_on_cells(e_values, cells, bet_table.table, now.counts, now.recent, now.spread, now.quiet, 1)
    return now, e_values


def with_counts(counts: list[float], recent: list[float]) -> CellCounts:
    long = np.array(counts, dtype=np.float64)
    both = np.array([recent] * len(MEMORIES), dtype=np.float64)
    return CellCounts(WIDTHS, long, both, long).smoothed()


@settings(deadline=None)
@given(path=paths)
def test_it_is_the_plain_rule_sample_by_sample(path: list[tuple[int, int]]) -> None:
    start = CellCounts.empty(WIDTHS)
    after, e_values = betted(path, start)
    counts, recent = np.zeros(5), np.zeros((len(MEMORIES), 5))
    for i, places in enumerate(cells(path).T):
        for bet, e in zip(BETS, e_values[:, i], strict=True):
            cell = places[bet.partition]
            begin, end = ((0, 3), (3, 5))[bet.partition]
            usual = (counts[cell] + SMOOTHING) / (i + float(start.spread[cell]))
            own = recent[bet.memory, begin:end].sum()
            last = (recent[bet.memory, cell] + PRIOR * usual) / (own + PRIOR)
            assert e == pytest.approx(1 - bet.share + bet.share * last / usual, rel=1e-9)
        counts[places] += 1
        recent *= np.exp(-1 / np.array(MEMORIES))[:, None]
        recent[:, places] += 1
    assert after.counts.tolist() == pytest.approx(counts.tolist())
    assert after.recent == pytest.approx(recent, rel=1e-9)


@settings(deadline=None)
@given(path=paths, at=st.integers(0, 39))
def test_it_does_not_matter_how_a_stream_is_cut(path: list[tuple[int, int]], at: int) -> None:
    whole, e_values = betted(path, CellCounts.empty(WIDTHS))
    tally, parts = CellCounts.empty(WIDTHS), []
    for piece in (path[:at], path[at:]):
        if piece:
            tally, own = betted(piece, tally)
            parts.append(own)
    assert np.concatenate(parts, 1) == pytest.approx(e_values, rel=1e-9)
    assert tally.recent == pytest.approx(whole.recent)
    assert tally.counts.tolist() == whole.counts.tolist()


def test_weights_never_overflow_in_a_huge_batch() -> None:
    path = [(i % 3, i % 2) for i in range(60_000)]
    tally, e_values = betted(path, CellCounts.empty(WIDTHS))
    assert np.isfinite(e_values).all()
    assert tally.counts.tolist() == [20_000] * 3 + [30_000] * 2
    mass = [1 / (1 - np.exp(-1 / memory)) for memory in MEMORIES]
    assert tally.recent[:, :3].sum(1).tolist() == pytest.approx(mass, rel=1e-6)


@settings(deadline=None)
@given(
    share=st.floats(0.01, 0.99),
    counts=st.lists(st.integers(0, 50), min_size=3, max_size=3),
    recent=st.lists(st.floats(0, 20), min_size=3, max_size=3),
)
def test_under_the_long_run_shares_the_mean_e_value_is_one(
    share: float, counts: list[int], recent: list[float]
) -> None:
    """Whatever the last samples preferred."""
    # Three cells of the first division; the smoothing of all three belongs to it.
    n = sum(counts)
    tally = with_counts([*map(float, counts), n, 0], [*recent, sum(recent), 0])
    bet = (CellBet("s", 0, AT_ONCE, share, 1.0),)
    e_values = [betted([(cell, 0)], tally, bet)[1].item() for cell in range(3)]
    shares = (np.array(counts) + SMOOTHING) / (n + float(tally.spread[0]))
    assert float((np.array(e_values) * shares).sum()) == pytest.approx(1, abs=1e-9)
    assert min(e_values) > 0


def test_a_cell_that_the_last_samples_preferred_pays_and_others_cost() -> None:
    tally = with_counts([500, 300, 200, 1000, 0], [4, 4, 32, 40, 0])
    e_values = [betted([(cell, 0)], tally)[1][0, 0] for cell in range(3)]
    assert e_values[2] > 1.8
    assert max(e_values[:2]) < 0.7


def test_cells_never_seen_share_the_smoothing_however_many_they_are() -> None:
    used = np.zeros(1000)
    used[:5] = 100
    tally = CellCounts((1000,), used, np.tile(used, (2, 1)), used).smoothed()
    assert tally.spread.tolist() == [SMOOTHING * (5 + SPARE_CELLS)] * 1000
    few = CellCounts.empty((4,))
    assert few.spread.tolist() == [SMOOTHING * 4] * 4


def test_once_renewed_the_last_samples_are_all_that_there_have_been() -> None:
    before, _ = betted([(0, 0)] * 900, CellCounts.empty(WIDTHS))
    shifted, _ = betted([(1, 1)] * 150, before)
    now = shifted.renewed()
    last = shifted.recent[AT_ONCE]
    assert now.counts.tolist() == np.where(last < SMOOTHING, 0, last).tolist()
    assert float(now.counts[0]) < 0.1 * float(now.counts[1])
    # As many samples as are counted now tell no shares: until there are more, nothing is won.
    assert now.counts.sum() < 2 * RENEWAL
    learned, e_values = betted([(1, 1)] * 500, now)
    assert e_values[:, : int(RENEWAL - now.counts[:3].sum())].max() == 0
    for path, least, most in (([(1, 1)], 0.9, 1.1), ([(0, 0)], 0.1, 1.1)):
        _, e_values = betted(path, learned)
        assert least < e_values.min() <= e_values.max() < most
    # Without that, what has changed would go on to be news.
    assert betted([(1, 1)], shifted)[1].max() > 3


def test_bets_stay_fair_while_shares_are_learned_anew_over_many_cells() -> None:
    """The last samples alone do not tell that most of a hundred cells are not in use any more."""
    random = np.random.default_rng(0)
    bet_table = BetTable(
        (), (CellBet("s", 0, AT_ONCE, 0.8, 0.5), CellBet("s", 0, TRICKLING, 0.8, 0.5))
    )
    tally = CellCounts.empty((100,))
    for used in (100, 20):
        tally = counted(tally, random.integers(used, size=(1, 1000)), bet_table)[0].smoothed()
    _, e_values = counted(tally.renewed(), random.integers(20, size=(1, 1000)), bet_table)
    highest = added(Evidence.none(2), e_values, bet_table, bet_table.weights).highest
    assert np.expm1(highest) < 10_000
