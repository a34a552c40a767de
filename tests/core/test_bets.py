"""Tests for the core.drift.bets module: a bet is fair while nothing changes, and gains after."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.drift.bets import Array, Book, CellBet, RankBet
from core.drift.sequential import BOOK

SHARES = [0.5, 0.3, 0.2]

rank_bets = st.builds(
    RankBet,
    signal=st.just("s"),
    high=st.booleans(),
    share=st.floats(0.01, 0.99),
    power=st.floats(0.01, 0.99),
    weight=st.floats(0.01, 1.0),
)


def book(*bets: RankBet) -> Book:
    return Book(bets, ())


def ranks(scores: list[int]) -> tuple[Array, Array]:
    """Of every member of a multiset among all of it, itself included: low and high."""
    ordered = sorted(scores)
    low, high = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return low / len(scores), high / len(scores)


# Ranks ------------------------------------------------------------------------------------


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
    paid = book(*bets).on_ranks(low, high)
    assert paid.mean(1) == pytest.approx(np.ones(len(bets)), abs=1e-9)
    assert (paid > 0).all()


@settings(deadline=None)
@given(bet=rank_bets, cuts=st.lists(st.floats(0.001, 0.999), max_size=20, unique=True))
def test_over_any_division_of_the_unit_interval_e_values_integrate_to_one(
    bet: RankBet, cuts: list[float]
) -> None:
    edges = np.array([0.0, *sorted(cuts), 1.0])
    low, high = edges[:-1], edges[1:]
    paid = book(bet).on_ranks(low, high)[0]
    assert float((paid * (high - low)).sum()) == pytest.approx(1, abs=1e-9)


@settings(deadline=None)
@given(bet=rank_bets, low=st.integers(0, 99), width=st.integers(1, 10))
def test_high_ranks_are_paid_as_low_ones_seen_from_the_other_end(
    bet: RankBet, low: int, width: int
) -> None:
    begin, end = np.array([[low], [low + width]]) / 110
    mirrored = bet._replace(high=not bet.high)
    one, other = book(bet).on_ranks(begin, end), book(mirrored).on_ranks(1 - end, 1 - begin)
    assert one[0] == pytest.approx(other[0], abs=1e-9)


def test_a_narrow_rank_is_paid_by_the_density_that_is_betted_on() -> None:
    low = np.array([0.01, 0.3, 0.9])
    paid = book(RankBet("s", False, 0.4, 0.2, 1.0)).on_ranks(low, low + 1e-7)
    density = 0.6 + 0.4 * 0.2 * low ** (0.2 - 1)
    assert paid[0] == pytest.approx(density, rel=1e-5)


@pytest.mark.parametrize("bet", BOOK.ranks, ids=lambda bet: f"{bet.signal} {bet.share}")
def test_a_bet_of_the_book_gains_at_its_own_end_only(bet: RankBet) -> None:
    low = np.array([0.0, 0.5, 0.999])
    first, middle, last = book(bet).on_ranks(low, low + 0.001)[0].tolist()
    own, other = (last, first) if bet.high else (first, last)
    assert own > 5
    assert max(middle, other) < 1


def test_a_bet_on_fewer_samples_loses_less_when_none_comes_and_gains_less_of_many() -> None:
    many, few = (book(RankBet("s", False, share, 0.2, 1.0)) for share in (0.9, 0.1))
    usual, low = np.array([0.7]), np.array([0.0])
    assert many.on_ranks(usual, usual + 0.01).item() < few.on_ranks(usual, usual + 0.01).item() < 1
    assert many.on_ranks(low, low + 0.01).item() > few.on_ranks(low, low + 0.01).item() > 1


# Cells ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    share=st.floats(0.01, 0.99),
    usual=st.lists(st.floats(0.01, 1), min_size=2, max_size=6),
    last=st.lists(st.floats(0, 1), min_size=6, max_size=6),
)
def test_under_the_long_run_shares_the_mean_e_value_of_cells_is_one(
    share: float, usual: list[float], last: list[float]
) -> None:
    """Whatever the last samples preferred."""
    shares = np.array(usual)
    shares = shares / shares.sum()
    recent = np.array(last[: len(usual)]) + 1e-3
    recent = recent / recent.sum()
    bets = Book((), (CellBet("s", 0, 0, share, 1.0),))
    paid = bets.on_cells(recent[None, None], shares[None])[0]
    assert float((paid * shares).sum()) == pytest.approx(1, abs=1e-9)
    assert (paid > 0).all()


def test_a_cell_that_the_last_samples_preferred_pays_and_others_cost() -> None:
    shares = np.array([SHARES])
    recent = np.array([[[0.1, 0.1, 0.8]]])
    paid = Book((), (CellBet("s", 0, 0, 0.8, 1.0),)).on_cells(recent, shares)[0]
    assert paid.tolist() == pytest.approx([0.2 + 0.8 * 0.2, 0.2 + 0.8 / 3, 0.2 + 0.8 * 4])


def test_every_bet_is_on_its_own_memory_and_division() -> None:
    bets = (CellBet("s", 1, 0, 0.5, 1.0), CellBet("s", 0, 1, 0.25, 1.0))
    recent = np.array([[[0.1], [0.2]], [[0.3], [0.4]]])
    shares = np.array([[0.5], [0.1]])
    paid = Book((), bets).on_cells(recent, shares)
    assert paid[:, 0].tolist() == pytest.approx([0.5 + 0.5 * 2, 0.75 + 0.25 * 0.6])


# The book ---------------------------------------------------------------------------------


def test_weights_sum_to_one_and_every_bet_belongs_to_one_signal() -> None:
    weights = BOOK.log_weights.exp()
    assert len(BOOK) == len(weights) == len(BOOK.ranks) + len(BOOK.cells)
    assert float(weights.sum()) == pytest.approx(1)
    parts = BOOK.weights_of_signals.exp()
    assert parts.sum(0).tolist() == pytest.approx(weights.tolist())
    assert ((parts > 0).sum(0) == 1).all()
    assert BOOK.signals == ("inliers", "likelihood", "occupancy")
    assert (parts > 0).sum(1).tolist() == [
        sum(bet.signal == name for bet in (*BOOK.ranks, *BOOK.cells)) for name in BOOK.signals
    ]


def test_weights_are_relative() -> None:
    one = Book((RankBet("a", False, 0.5, 0.5, 3.0), RankBet("b", True, 0.5, 0.5, 1.0)), ())
    assert one.log_weights.exp().tolist() == pytest.approx([0.75, 0.25])
    assert one.weights_of_signals[0].tolist() == [pytest.approx(math.log(0.75)), -math.inf]
