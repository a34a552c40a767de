"""Tests for core.drift.sequential.online: e-values that are exact for any number of samples."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.drift.sequential.bets import pay_ranks
from core.drift.sequential.online import find_online_ranks, neighbours_depend, pay_rarity
from core.drift.sequential.ranks import Ranks
from core.drift.sequential.scores import BLOCK, RANKED
from core.drift.sequential.signals import BET_TABLE

RANKS = BET_TABLE.table[BET_TABLE.places[0]]


def online_ranks(known: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with shape (S, n)."""
    ranking = Ranks.of(known)
    low, high = np.empty(scores.shape), np.empty(scores.shape)
    places = np.empty(scores.shape, np.int64)
    find_online_ranks(low, high, places, ranking.scores, ranking.begins, scores)
    return low, high


def tables(rng: np.random.Generator, n: int, classes: int) -> np.ndarray:
    """Scores with equals among them, the last two rows within classes: with shape (4, n)."""
    scores = rng.integers(0, 4, (RANKED, n)).astype(float)
    scores[2:] += rng.integers(0, classes, n) * BLOCK
    return scores


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(1, 12), st.integers(1, 4))
def test_a_sample_is_ranked_among_all_before_it(seed: int, n: int, more: int, classes: int):
    rng = np.random.default_rng(seed)
    known, scores = tables(rng, n, classes), tables(rng, more, classes)
    low, high = online_ranks(known, scores)
    for row in range(RANKED):
        for i in range(more):
            bag = np.concatenate([known[row], scores[row, : i + 1]])
            if row >= 2:
                bag = bag[np.round(bag / BLOCK) == np.round(scores[row, i] / BLOCK)]
            assert low[row, i] == pytest.approx((bag < scores[row, i]).mean())
            assert high[row, i] == pytest.approx((bag <= scores[row, i]).mean())


def test_bets_on_them_are_fair_whatever_few_samples_came_before():
    # Over all orders of any samples, what every bet has paid for them comes to one.
    rng = np.random.default_rng(0)
    scores = tables(rng, 6, 2)
    products = []
    for order in permutations(range(6)):
        inside = scores[:, order].copy()
        low, high = online_ranks(inside[:, :2], inside[:, 2:].copy())
        e_values = np.ones((len(RANKS), 4))
        pay_ranks(e_values, low, high, RANKS)
        products.append(e_values.prod(1))
    assert np.mean(products, 0) == pytest.approx(1, rel=1e-6)


def test_a_small_reference_that_stands_still_would_not_be_fair():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((RANKED, 6))
    scores[2:] = 0
    products = []
    for order in permutations(range(6)):
        low, high = Ranks.of(scores[:, order[:2]]).ranks(scores[:, order[2:]])
        e_values = np.ones((len(RANKS), 4))
        pay_ranks(e_values, low, high, RANKS)
        products.append(e_values.prod(1))
    assert np.mean(products, 0).max() > 1.3


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 3), min_size=2, max_size=6))
def test_a_bet_on_rarity_is_fair_over_all_orders(cells: list[int]):
    products = []
    for order in permutations(cells):
        e_values = np.empty(len(cells))
        pay_rarity(e_values, np.array(order), np.zeros(4))
        products.append(e_values.prod())
    assert np.mean(products) == pytest.approx(1)


def test_rare_cells_pay_and_are_counted():
    counts, e_values = np.array([90.0, 0.0, 10.0]), np.empty(2)
    pay_rarity(e_values, np.array([1, 0]), counts)
    assert e_values[0] > 5 > 1 > e_values[1]
    assert counts.tolist() == [91, 1, 10]


def moving(share: float, n: int = 100, seed: int = 0) -> np.ndarray:
    """Values that each keep a share of the one before, with shape (1, n)."""
    noise = np.random.default_rng(seed).standard_normal(n)
    values = noise.copy()
    for i in range(1, n):
        values[i] = share * values[i - 1] + (1 - share**2) ** 0.5 * noise[i]
    return values[None]


def test_neighbours_that_resemble_each_other_are_told_from_independent_ones():
    one = np.zeros((1, 100), np.int64)
    found = [neighbours_depend(moving(0.6, seed=seed), one) for seed in range(100)]
    independent = [neighbours_depend(moving(0.0, seed=seed), one) for seed in range(100)]
    assert sum(found) >= 95
    assert sum(independent) <= 3


def test_so_are_classes_that_stay():
    rng = np.random.default_rng(0)
    mixed = rng.integers(0, 10, (1, 100))
    assert not neighbours_depend(moving(0.0), mixed)
    assert not neighbours_depend(np.round(moving(0.0)), mixed)  # equals say nothing
    assert neighbours_depend(moving(0.0), np.sort(mixed))
    assert not neighbours_depend(np.zeros((1, 2)), np.zeros((1, 2), np.int64))
