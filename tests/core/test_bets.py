"""Tests for the core.drift.bets module: a bet is fair while nothing changes, and gains after."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.drift.bets import Book, CellBet, RankBet
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


def ranks(scores: list[int]) -> tuple[Tensor, Tensor]:
    """Of every member of a multiset among all of it, itself included: low and high."""
    values = torch.tensor(scores, dtype=torch.float64)
    ordered = values.sort().values
    low = torch.searchsorted(ordered, values).double()
    high = torch.searchsorted(ordered, values, right=True).double()
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
    torch.testing.assert_close(paid.mean(1), torch.ones(len(bets)).double(), atol=1e-9, rtol=0)
    assert bool((paid > 0).all())


@settings(deadline=None)
@given(bet=rank_bets, cuts=st.lists(st.floats(0.001, 0.999), max_size=20, unique=True))
def test_over_any_division_of_the_unit_interval_e_values_integrate_to_one(
    bet: RankBet, cuts: list[float]
) -> None:
    edges = torch.tensor([0.0, *sorted(cuts), 1.0], dtype=torch.float64)
    low, high = edges[:-1], edges[1:]
    paid = book(bet).on_ranks(low, high)[0]
    assert float((paid * (high - low)).sum()) == pytest.approx(1, abs=1e-9)


@settings(deadline=None)
@given(bet=rank_bets, low=st.floats(0, 0.9), width=st.floats(0.01, 0.1))
def test_high_ranks_are_paid_as_low_ones_seen_from_the_other_end(
    bet: RankBet, low: float, width: float
) -> None:
    begin, end = (torch.tensor([value], dtype=torch.float64) for value in (low, low + width))
    mirrored = bet._replace(high=not bet.high)
    one, other = book(bet).on_ranks(begin, end), book(mirrored).on_ranks(1 - end, 1 - begin)
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_a_narrow_rank_is_paid_by_the_density_that_is_betted_on() -> None:
    low = torch.tensor([0.01, 0.3, 0.9], dtype=torch.float64)
    paid = book(RankBet("s", False, 0.4, 0.2, 1.0)).on_ranks(low, low + 1e-7)
    density = 0.6 + 0.4 * 0.2 * low ** (0.2 - 1)
    torch.testing.assert_close(paid[0], density, rtol=1e-5, atol=0)


@pytest.mark.parametrize("bet", BOOK.ranks, ids=lambda bet: f"{bet.signal} {bet.share}")
def test_a_bet_of_the_book_gains_at_its_own_end_only(bet: RankBet) -> None:
    low = torch.tensor([0.0, 0.5, 0.999], dtype=torch.float64)
    first, middle, last = book(bet).on_ranks(low, low + 0.001)[0].tolist()
    own, other = (last, first) if bet.high else (first, last)
    assert own > 5
    assert max(middle, other) < 1


def test_a_bet_on_fewer_samples_loses_less_when_none_comes_and_gains_less_of_many() -> None:
    many, few = (book(RankBet("s", False, share, 0.2, 1.0)) for share in (0.9, 0.1))
    usual, low = torch.tensor([0.7]).double(), torch.tensor([0.0]).double()
    assert float(many.on_ranks(usual, usual + 0.01)) < float(few.on_ranks(usual, usual + 0.01)) < 1
    assert float(many.on_ranks(low, low + 0.01)) > float(few.on_ranks(low, low + 0.01)) > 1


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
    shares = torch.tensor(usual, dtype=torch.float64)
    shares = shares / shares.sum()
    recent = torch.tensor(last[: len(usual)], dtype=torch.float64) + 1e-3
    recent = recent / recent.sum()
    bets = Book((), (CellBet("s", 0, 0, share, 1.0),))
    paid = bets.on_cells(recent[None, None], shares[None])[0]
    assert float((paid * shares).sum()) == pytest.approx(1, abs=1e-9)
    assert bool((paid > 0).all())


def test_a_cell_that_the_last_samples_preferred_pays_and_others_cost() -> None:
    shares = torch.tensor([SHARES], dtype=torch.float64)
    recent = torch.tensor([[[0.1, 0.1, 0.8]]], dtype=torch.float64)
    paid = Book((), (CellBet("s", 0, 0, 0.8, 1.0),)).on_cells(recent, shares)[0]
    assert paid.tolist() == pytest.approx([0.2 + 0.8 * 0.2, 0.2 + 0.8 / 3, 0.2 + 0.8 * 4])


def test_every_bet_is_on_its_own_memory_and_division() -> None:
    bets = (CellBet("s", 1, 0, 0.5, 1.0), CellBet("s", 0, 1, 0.25, 1.0))
    recent = torch.tensor([[[0.1], [0.2]], [[0.3], [0.4]]], dtype=torch.float64)
    shares = torch.tensor([[0.5], [0.1]], dtype=torch.float64)
    paid = Book((), bets).on_cells(recent, shares)
    assert paid[:, 0].tolist() == pytest.approx([0.5 + 0.5 * 2, 0.75 + 0.25 * 0.6])


# The book ---------------------------------------------------------------------------------


def test_weights_sum_to_one_and_every_bet_belongs_to_one_signal() -> None:
    weights = BOOK.log_weights.exp()
    assert len(BOOK) == len(weights) == len(BOOK.ranks) + len(BOOK.cells)
    assert float(weights.sum()) == pytest.approx(1)
    parts = torch.stack([*BOOK.signals.values()]).exp()
    torch.testing.assert_close(parts.sum(0), weights)
    assert bool(((parts > 0).sum(0) == 1).all())
    assert list(BOOK.signals) == ["inliers", "likelihood", "occupancy"]


def test_weights_are_relative() -> None:
    one = Book((RankBet("a", False, 0.5, 0.5, 3.0), RankBet("b", True, 0.5, 0.5, 1.0)), ())
    assert one.log_weights.exp().tolist() == pytest.approx([0.75, 0.25])
    assert one.signals["a"].tolist() == [pytest.approx(math.log(0.75)), -math.inf]
