"""Tests for core.drift.sequential.bets: a bet is fair while nothing changes, and gains after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable, RankBet, pay_ranks
from core.drift.sequential.scores import RANKED
from core.drift.sequential.signals import BET_TABLE

rank_bets = st.builds(
    RankBet,
    signal=st.just("s"),
    score=st.just(0),
    high=st.booleans(),
    share=st.floats(0.01, 0.99),
    power=st.floats(0.01, 0.99) | st.floats(1.01, 20) | st.sampled_from([2.0, 4.0, 8.0, 32.0]),
    weight=st.floats(0.01, 1.0),
)


BY_POWER = {4.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 0.3: -1, 0.2: -1, 0.12: -1}
"""Squarings that raise a number to a power."""


def pays(bets: Sequence[RankBet], low: Array, high: Array) -> Array:
    """E-values with shape (bets, N)."""
    e_values = np.empty((len(bets), len(low)))
    pay_ranks(e_values, low[None], high[None], BetTable(tuple(bets), ()).table)
    return e_values


def ranks(scores: list[int]) -> tuple[Array, Array]:
    """Of every member of a multiset among all of it, itself included: low and high."""
    ordered = sorted(scores)
    low, high = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return low / len(scores), high / len(scores)


# Ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [-1, RANKED])
def test_ranks_that_are_not_looked_up_are_not_betted_on(score: int) -> None:
    bet_table = BetTable((RankBet("s", score, True, 0.5, 2.0, 1.0),), ())
    with pytest.raises(ValueError, match=f"other scores than the first {RANKED}"):
        _ = bet_table.table


@given(
    bets=st.lists(rank_bets, min_size=1, max_size=4),
    scores=st.lists(st.integers(-3, 3), min_size=1, max_size=30),
)
@settings(deadline=None)
def test_over_the_members_of_any_multiset_the_mean_e_value_is_one(
    bets: list[RankBet], scores: list[int]
) -> None:
    """Each member is as likely to be the last one, ties or not: that is exchangeability."""
    low, high = ranks(scores)
    e_values = pays(bets, low, high)
    assert e_values.mean(1) == pytest.approx(np.ones(len(bets)), abs=1e-9)
    assert (e_values > 0).all()


@settings(deadline=None)
@example(bet=RankBet("s", 0, True, 0.5, 0.5, 1.0), cuts=[0.001, 0.0010000000000000002])
@given(bet=rank_bets, cuts=st.lists(st.floats(0.001, 0.999), max_size=20, unique=True))
def test_over_any_division_of_the_unit_interval_e_values_integrate_to_one(
    bet: RankBet, cuts: list[float]
) -> None:
    edges = np.array([0.0, *sorted(cuts), 1.0])
    low, high = edges[:-1], edges[1:]
    e_values = pays([bet], low, high)[0]
    assert float((e_values * (high - low)).sum()) == pytest.approx(1, abs=1e-9)


@settings(deadline=None)
@given(
    bets=st.lists(rank_bets, min_size=1, max_size=5),
    low=st.floats(0, 0.9, allow_subnormal=False),
)
def test_every_bet_pays_the_mean_of_its_density(bets: list[RankBet], low: float) -> None:
    high = low + 0.05
    e_values = pays(bets, np.array([low]), np.array([high]))[:, 0]
    for bet, value in zip(bets, e_values.tolist(), strict=True):
        begin, end = (1 - high, 1 - low) if bet.high else (low, high)
        mean = (end**bet.power - begin**bet.power) / (high - low)
        assert value == pytest.approx(1 - bet.share + bet.share * mean, rel=1e-9)


@settings(deadline=None)
@given(bet=rank_bets, low=st.integers(0, 99), width=st.integers(1, 10))
def test_high_ranks_are_paid_as_low_ones_seen_from_the_other_end(
    bet: RankBet, low: int, width: int
) -> None:
    begin, end = np.array([[low], [low + width]]) / 110
    mirrored = bet._replace(high=not bet.high)
    one, other = pays([bet], begin, end), pays([mirrored], 1 - end, 1 - begin)
    assert one[0] == pytest.approx(other[0], abs=1e-9)


def test_a_narrow_rank_is_paid_by_the_density_that_is_betted_on() -> None:
    low = np.array([0.01, 0.3, 0.9])
    e_values = pays([RankBet("s", 0, False, 0.4, 0.2, 1.0)], low, low + 1e-7)
    density = 0.6 + 0.4 * 0.2 * low ** (0.2 - 1)
    assert e_values[0] == pytest.approx(density, rel=1e-5)


@pytest.mark.parametrize("bet", BET_TABLE.ranks, ids=lambda bet: f"{bet.signal} {bet.share}")
def test_a_bet_of_the_book_gains_at_its_own_end_only(bet: RankBet) -> None:
    low = np.array([0.0, 0.5, 0.999])
    first, middle, last = pays([bet._replace(score=0)], low, low + 0.001)[0].tolist()
    own, other = (last, first) if bet.high == (bet.power < 1) else (first, last)
    assert own > (5 if bet.power < 1 else 2)
    assert max(middle, other) < 1


def test_a_bet_on_fewer_samples_loses_less_when_none_comes_and_gains_less_of_many() -> None:
    bets = [RankBet("s", 0, False, share, 0.2, 1.0) for share in (0.9, 0.1)]
    low = np.array([0.7, 0.0])
    (many_usual, many_low), (few_usual, few_low) = pays(bets, low, low + 0.01).tolist()
    assert many_usual < few_usual < 1
    assert many_low > few_low > 1


def test_every_bet_is_on_its_own_score() -> None:
    bets = (RankBet("s", 1, False, 0.5, 0.2, 1.0), RankBet("s", 0, False, 0.5, 0.2, 1.0))
    low = np.array([[0.9], [0.0]])
    e_values = np.empty((2, 1))
    pay_ranks(e_values, low, low + 0.01, BetTable(bets, ()).table)
    assert e_values[0, 0] > 1 > e_values[1, 0]


# The book ---------------------------------------------------------------------------------


def test_weights_sum_to_one_and_every_bet_belongs_to_one_signal() -> None:
    bets = [*BET_TABLE.ranks, *BET_TABLE.cells, *BET_TABLE.labels, *BET_TABLE.features]
    assert len(BET_TABLE) == len(BET_TABLE.weights) == len(bets)
    assert float(BET_TABLE.weights.sum()) == pytest.approx(1)
    assert BET_TABLE.signals == (
        "inliers",
        "likelihood",
        "doubt",
        "occupancy",
        "labels",
        "features",
    )
    assert [BET_TABLE.signals[owner] for owner in BET_TABLE.table["signal"]] == [
        bet.signal for bet in bets
    ]


def test_bets_lie_side_by_side_by_kind() -> None:
    numbers = list(range(len(BET_TABLE)))
    kinds = BET_TABLE.ranks, BET_TABLE.cells, BET_TABLE.labels, BET_TABLE.features
    assert [len(numbers[place]) for place in BET_TABLE.places] == [len(kind) for kind in kinds]
    assert [one for place in BET_TABLE.places for one in numbers[place]] == numbers
    assert BET_TABLE.ends == tuple(place.stop for place in BET_TABLE.places)
    _, cells, _, features = BET_TABLE.places
    assert np.flatnonzero(BET_TABLE.on_last).tolist() == numbers[cells] + numbers[features]


def test_the_table_has_what_every_bet_says() -> None:
    bets = [*BET_TABLE.ranks, *BET_TABLE.cells, *BET_TABLE.labels, *BET_TABLE.features]
    for bet, line in zip(bets, BET_TABLE.table, strict=True):
        said = {**bet._asdict(), "signal": BET_TABLE.signals.index(bet.signal)}
        del said["weight"]
        told = {name: line[name] for name in BET_TABLE.table.dtype.names or ()}
        squarings = told.pop("squarings")
        assert {name: told.pop(name) for name in said} == said
        assert not any(told.values())
        assert squarings == (BY_POWER[bet.power] if isinstance(bet, RankBet) else 0)


def test_weights_are_relative() -> None:
    one = BetTable(
        (RankBet("a", 0, False, 0.5, 0.5, 3.0), RankBet("b", 0, True, 0.5, 0.5, 1.0)), ()
    )
    assert one.weights.tolist() == pytest.approx([0.75, 0.25])
