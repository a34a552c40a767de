"""Tests for core.memory.tallies: the loops say what plain operations on tensors say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.memory.reliability import BINS, EDGES, PRIOR, bins_of
from core.memory.tallies import (
    add_answers,
    add_class_sums,
    array,
    expected_hits,
    follow,
    shares_of,
    unseen_shares,
)

SEEDS = st.integers(0, 2**32 - 1)
EDGES_ARRAY = np.array(EDGES)


@given(SEEDS, st.integers(0, 60), st.integers(1, 5), st.floats(0.1, 20))
def test_answers_are_added_to_their_bins_and_classes(
    seed: int, n: int, n_classes: int, weight: float
) -> None:
    rng = np.random.default_rng(seed)
    confidence, unnamed = rng.random(n), rng.random(n)
    confidence[: n // 2] = rng.choice(EDGES, n // 2)  # right on an edge, too
    codes = rng.integers(0, n_classes, n)
    labelled, hits = rng.random(n) < 0.5, rng.random(n) < 0.5
    counted = labelled & (rng.random(n) < 0.7)
    bins, answers = np.zeros((3, BINS)), rng.random((n_classes, 3))
    place = bins_of(torch.from_numpy(confidence)).numpy()
    rows = np.stack([np.ones(n), unnamed, ~labelled], 1) * weight
    wanted = answers.copy()
    np.add.at(wanted, codes, rows)
    add_answers(
        confidence,
        EDGES_ARRAY,
        codes,
        unnamed,
        labelled,
        counted,
        hits,
        weight,
        bins,
        answers,
    )
    np.testing.assert_allclose(answers, wanted, rtol=1e-12)
    for found, which in zip(bins, (np.ones(n, bool), counted, counted & hits), strict=True):
        assert found.tolist() == np.bincount(place[which], minlength=BINS).tolist()


@given(SEEDS, st.floats(-2, 2))
def test_a_shift_is_added_to_the_log_odds_of_every_bin(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.random(BINS) * 500
    hits = counts * rng.random(BINS)
    shares = (hits + PRIOR * hits.sum() / counts.sum()) / (counts + PRIOR)
    log_odds = np.log(shares / (1 - shares))
    np.testing.assert_allclose(shares_of(counts, hits, PRIOR, 0.0), shares, rtol=1e-12)
    found = shares_of(counts, hits, PRIOR, shift)
    np.testing.assert_allclose(np.log(found / (1 - found)), log_odds + shift, rtol=1e-9, atol=1e-9)
    for always in (0.0, 1.0):
        assert shares_of(counts, always * counts, PRIOR, shift) == pytest.approx(always)


@given(SEEDS)
def test_the_expected_accuracy_is_the_mean_of_the_bins_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    recent, counts, shares = rng.random(BINS) * 100, rng.random(BINS) * 500, rng.random(BINS)
    weights, of_one = recent / recent.sum(), shares * (1 - shares)
    wanted = (
        weights @ shares,
        (weights**2 * of_one / (counts + PRIOR)).sum() + (weights @ of_one) ** 2 * (0.03 + 0.01),
        weights @ of_one,
    )
    shifts = np.array([[0.3, 0.02, 0.5], [0.1, 0.04, 0.5]])
    assert expected_hits(recent, counts, shares, PRIOR, shifts) == pytest.approx(wanted, rel=1e-12)


@given(SEEDS, st.integers(1, 200))
def test_a_filter_steps_towards_the_most_probable_shift(seed: int, n: int) -> None:
    """Newton's method on the log-posterior of the shift, written out with tensors."""
    rng = np.random.default_rng(seed)
    counts = rng.random(BINS) * 500 + 1
    hits = counts * rng.random(BINS)
    came = np.bincount(rng.integers(BINS, size=n), minlength=BINS).astype(float)
    right = np.floor(came * rng.random(BINS))
    shifts = np.array([[0.3, 0.02, 0.25], [-0.1, 0.1, 0.75]])
    variances, kept, staying = np.array([0.05, 0.2]), 0.9, 0.95
    wanted, logs = [], []
    for (shift, variance, weight), rest in zip(shifts, variances, strict=True):
        mean, spread = shift * kept, variance * kept**2 + rest * (1 - kept**2)
        at = torch.tensor(mean, dtype=torch.float64, requires_grad=True)
        log_odds = torch.from_numpy(shares_of(counts, hits, PRIOR, 0.0)).logit() + at
        came_, right_ = torch.from_numpy(came), torch.from_numpy(right)
        likelihood = (
            right_ @ log_odds.sigmoid().log() + (came_ - right_) @ (-log_odds).sigmoid().log()
        )
        posterior = likelihood - (at - mean) ** 2 / (2 * spread)
        (slope,) = torch.autograd.grad(posterior, at, create_graph=True)
        (curve,) = torch.autograd.grad(slope, at)
        wanted.append((mean - float((slope / curve).detach()), -1 / float(curve)))
        logs.append(math.log(weight) + float(likelihood.detach()))
    follow(came, right, counts, hits, PRIOR, shifts, variances, kept, staying)
    np.testing.assert_allclose(shifts[:, :2], wanted, rtol=1e-6, atol=1e-9)
    weights = torch.softmax(torch.tensor(logs), 0) * staying + (1 - staying) / 2
    np.testing.assert_allclose(shifts[:, 2], weights.numpy(), rtol=1e-5)


def test_classes_whose_answers_lie_where_no_label_fell_are_unseen() -> None:
    # Of the first, all lie there and none should; of the second, as many as should; of the third
    # there is nothing any more; the fourth was never labelled, so all may.
    answers = np.array([[30.0, 30.0, 0.0], [60.0, 30.0, 50.0], [0.0, 0.0, 0.0], [10.0, 5.0, 9.0]])
    labelled = np.array([100.0, 50.0, 5.0, 0.0])
    assert unseen_shares(answers, labelled, 0.3) == pytest.approx((0.3, 0.3))
    assert unseen_shares(np.zeros((0, 3)), np.zeros(0), 0.3) == (0.0, 0.0)


@given(SEEDS, st.integers(0, 60), st.integers(1, 6))
def test_sums_of_classes_are_of_those_that_are_told_apart(seed: int, n: int, last: int) -> None:
    rng = np.random.default_rng(seed)
    codes, truths = rng.integers(0, 9, n), rng.integers(-1, 9, n)
    values = rng.normal(size=n)
    found, wanted = np.zeros((last + 1, 4)), np.zeros((last + 1, 4))
    add_class_sums(codes, truths, values, last, found)
    rows = np.stack([np.ones(n), np.zeros(n), values, values**2], 1)
    np.add.at(wanted, codes.clip(max=last), rows)
    np.add.at(wanted[:, 1], truths[truths >= 0].clip(max=last), 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_every_second_number_of_a_tensor_is_taken_as_it_is() -> None:
    assert array(torch.arange(6)[::2]).tolist() == [0, 2, 4]
