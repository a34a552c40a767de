"""Tests for core.drift.sequential.features: single features, each with evidence of its own."""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.cells import MEMORIES, PRIOR, SMOOTHING
from core.drift.sequential.features import (
    BINS,
    EDGES,
    FEE,
    FEWEST,
    FeatureCounts,
    bet_on_features,
    find_bins,
)
from core.drift.sequential.signals import BET_TABLE
from tests.core.evidence_path import path

N_BETS = len(BET_TABLE.features)


def binned(
    values: Array, centres: Array, spreads: Array, winners: list[int] | None = None
) -> Array:
    bins = np.empty(values.shape, np.uint8)
    ones = np.zeros(len(values), np.int64) if winners is None else np.array(winners)
    find_bins(bins, values, ones, centres, spreads)
    return bins


def drawn(n: int, n_features: int, seed: int = 0) -> Array:
    """Bins of features that lie as a normal law has it, with shape (n, D)."""
    values = np.random.default_rng(seed).normal(size=(n, n_features))
    return binned(values, np.zeros((1, n_features)), np.ones((1, n_features)))


def betted(counts: FeatureCounts, bins: Array, thinning: int = 1) -> tuple[FeatureCounts, Array]:
    now, e_values = deepcopy(counts), np.ones((N_BETS, len(bins)))
    bets = BET_TABLE.table[BET_TABLE.places[3]]
    bet_on_features(e_values, bins, bets, now.counts, now.recent, now.evidence, thinning)
    return now, e_values


def known(n: int, n_features: int, seed: int = 0) -> FeatureCounts:
    """After n samples."""
    return betted(FeatureCounts.empty(n_features, BET_TABLE), drawn(n, n_features, seed))[
        0
    ].without_evidence()


def naive(bins: Array, memory: float, share: float) -> list[float]:
    """Of one feature, from the first sample on: its R after each, by the plain recursion."""
    counts, recent, r, path = np.zeros(BINS), np.zeros(BINS), 0.0, []
    for n, one in enumerate(bins):
        usual = (counts + SMOOTHING) / (n + SMOOTHING * BINS)
        last = (recent + PRIOR * usual) / (recent.sum() + PRIOR)
        if n >= FEWEST:
            r = (1 + r) * (1 - share + share * last[one] / usual[one])
        path.append(r)
        counts[one] += 1
        recent *= math.exp(-1 / memory)
        recent[one] += 1
    return path


def test_a_bin_is_the_number_of_edges_below() -> None:
    away = np.array([[-9.0, -1.645, -1.6, 0.0, 0.3, 1.0, 99.0]] * 2)
    centres, spreads = np.array([[0.0] * 7, [5.0] * 7]), np.array([[1.0] * 7, [2.0] * 7])
    expected = [[0, 0, 1, 3, 4, 5, BINS - 1]] * 2
    assert binned(away, centres, spreads).tolist() == expected
    assert binned(5 + 2 * away, centres, spreads, [1, 1]).tolist() == expected
    assert len(EDGES) == BINS - 1


def test_the_evidence_of_one_bet_is_the_mean_of_that_of_all_features() -> None:
    bins = drawn(300, 4)
    bins[250:, 2] = 3  # sticks
    counts, e_values = betted(FeatureCounts.empty(4, BET_TABLE), bins)
    for bet, payments in zip(BET_TABLE.features, e_values, strict=True):
        paths = [naive(bins[:, d], MEMORIES[bet.memory], bet.share) for d in range(4)]
        begun = int(FEWEST)
        assert (payments[:begun] == 1).all()
        plain = payments[None, begun:] / (1 - FEE)
        assert np.expm1(path(plain, np.ones(1))) == pytest.approx(
            np.mean(paths, 0)[begun:], rel=1e-9
        )
        ends = [path[-1] for path in paths]
        assert counts.evidence[bet.memory].tolist() == pytest.approx(ends, rel=1e-9)


@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(1, 900), max_size=5), thinning=st.integers(1, 9))
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], thinning: int) -> None:
    bins = drawn(900, 3)
    whole, e_values = betted(FeatureCounts.empty(3, BET_TABLE), bins, thinning)
    counts, parts = FeatureCounts.empty(3, BET_TABLE), []
    for rows in np.split(bins, sorted(cuts)):
        counts, part = betted(counts, rows, thinning)
        parts.append(part)
    assert np.concatenate(parts, 1) == pytest.approx(e_values, rel=1e-9)
    for name in ("counts", "recent", "evidence"):
        assert getattr(counts, name) == pytest.approx(getattr(whole, name), rel=1e-9)


@pytest.mark.parametrize("n_features", [1, 10, 100])
def test_while_nothing_changes_it_loses(n_features: int) -> None:
    _, e_values = betted(known(1000, n_features), drawn(3000, n_features, 1))
    assert (np.log(e_values).sum(1) < 0).all()
    assert (e_values.mean(1) < 1.01).all()


def test_a_feature_that_sticks_wins_among_fifty_and_is_blamed() -> None:
    counts, later = known(1000, 50), drawn(100, 50, 1)
    later[:, 7] = 3
    after, e_values = betted(counts, later)
    assert (np.log(e_values).sum(1) > 10).all()
    feature_shares = after.feature_shares(50)
    assert np.argmax(feature_shares) == 7
    assert feature_shares[7] > 0.9
    assert sum(feature_shares) == pytest.approx(1)
    # Where features are looked at twice they are blamed once.
    assert after.feature_shares(25)[7] == pytest.approx(feature_shares[7] + feature_shares[32])
    assert FeatureCounts.empty(3, BET_TABLE).feature_shares(3) == []


def test_one_sample_in_so_many_is_betted_on_and_all_are_counted() -> None:
    counts, e_values = betted(known(1000, 5), drawn(100, 5, 1), thinning=10)
    assert np.flatnonzero((e_values != 1).any(0)).tolist() == list(range(0, 100, 10))
    assert counts.counts.sum(1).tolist() == [1100] * 5
    # Ten samples more among the last ones.
    mass = [sum(math.exp(-i / memory) for i in range(1000)) for memory in MEMORIES]
    for one, before, memory in zip(counts.recent, mass, MEMORIES, strict=True):
        expected = before * math.exp(-10 / memory) + sum(math.exp(-i / memory) for i in range(10))
        assert one.sum(1) == pytest.approx(expected, rel=1e-6)


def test_without_features_nothing_is_betted() -> None:
    counts = FeatureCounts.empty(0, BET_TABLE)
    _, e_values = betted(counts, np.zeros((5, 0), np.uint8))
    assert (e_values == 1).all()
