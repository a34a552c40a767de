"""Tests for core.memory.tallies: the loops say what plain operations on tensors say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from core.memory.reliability import BINS, EDGES, PRIOR, bins_of
from core.memory.tallies import (
    add_answers,
    as_before,
    expected_hits,
    follow,
    mean_shares,
    shares_of,
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
    bins, answers = np.zeros((3, BINS)), rng.random((n_classes, 5))
    place = bins_of(torch.from_numpy(confidence)).numpy()
    none = ~labelled
    rows = np.stack([none, none * unnamed, none], 1) * weight
    wanted = answers.copy()
    np.add.at(wanted[:, :3], codes, rows)
    for code, lies in zip(codes[labelled], unnamed[labelled], strict=True):
        wanted[code, 3:] = wanted[code, 3:] * 0.99 + weight * np.array([1, lies])
    add_answers(
        confidence,
        EDGES_ARRAY,
        codes,
        unnamed,
        labelled,
        counted,
        hits,
        weight,
        0.99,
        bins,
        answers,
    )
    np.testing.assert_allclose(answers, wanted, rtol=1e-12)
    for found, which in zip(bins, (np.ones(n, bool), counted, counted & hits), strict=True):
        assert found.tolist() == np.bincount(place[which], minlength=BINS).tolist()


@given(SEEDS, st.floats(-2, 2))
def test_a_offset_is_added_to_the_log_odds_of_every_bin(seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.random(BINS) * 500
    hits = counts * rng.random(BINS)
    shares = (hits + PRIOR * hits.sum() / counts.sum()) / (counts + PRIOR)
    log_odds = np.log(shares / (1 - shares))
    np.testing.assert_allclose(shares_of(counts, hits, PRIOR, 0.0), shares, rtol=1e-12)
    found = shares_of(counts, hits, PRIOR, offset)
    np.testing.assert_allclose(np.log(found / (1 - found)), log_odds + offset, rtol=1e-9, atol=1e-9)
    for always in (0.0, 1.0):
        assert shares_of(counts, always * counts, PRIOR, offset) == pytest.approx(always)


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
    offsets = np.array([[0.3, 0.02, 0.5], [0.1, 0.04, 0.5]])
    assert expected_hits(recent, counts, shares, PRIOR, offsets) == pytest.approx(wanted, rel=1e-12)


@given(SEEDS, st.integers(2, 12))
def test_classes_that_come_as_before_may_have_moved(seed: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    usual = 50 + 50 * rng.random(n_classes)
    learned, answers = 4 * usual, np.zeros((n_classes, 5))
    answers[:, 0] = 500 * usual / usual.sum()
    answers[:, 1] = 0.95 * answers[:, 0]
    assert as_before(answers, usual, learned, 10.0, 0.5, 2.0) == (True, True, 0.0)
    # All by the class that came least often: a new one.
    one = int(usual.argmin())
    answers[:, :2] = 0
    answers[one, :2] = 500, 475
    possible, spread, beyond = as_before(answers, usual, learned, 10.0, 0.5, 2.0)
    shares = usual / usual.sum()
    noise = np.sqrt(shares * (1 - shares) / (2 * np.pi) * (1 / usual.sum() + 1 / 500)).sum()
    assert not possible
    assert not spread
    assert beyond == pytest.approx(1 - shares[one] - noise)


@given(SEEDS, st.integers(1, 5000))
def test_a_offset_is_the_most_probable_one(seed: int, n: int) -> None:
    """There the log-posterior has no slope, and its curvature is the inverse of the variance."""
    rng = np.random.default_rng(seed)
    counts = rng.random(BINS) * 500 + 50
    hits = counts * (0.05 + 0.9 * rng.random(BINS))
    came = np.bincount(rng.integers(BINS, size=n), minlength=BINS).astype(float)
    right = np.floor(came * rng.random(BINS))
    offsets = np.array([[0.3, 0.02, 0.25], [-0.1, 0.1, 0.75]])
    variances, kept, staying = np.array([0.05, 0.2]), 0.9, 0.95
    before = offsets.copy()
    follow(came, right, counts, hits, PRIOR, offsets, variances, kept, staying)
    log_odds = torch.from_numpy(shares_of(counts, hits, PRIOR, 0.0)).logit()
    came_, right_ = torch.from_numpy(came), torch.from_numpy(right)

    def log_likelihood(offset: torch.Tensor) -> torch.Tensor:
        moved = log_odds + offset
        return right_ @ logsigmoid(moved) + (came_ - right_) @ logsigmoid(-moved)

    logs = []
    for found, (offset, variance, weight), rest in zip(offsets, before, variances, strict=True):
        mean, spread = offset * kept, variance * kept**2 + rest * (1 - kept**2)
        at = torch.tensor(found[0], dtype=torch.float64, requires_grad=True)
        posterior = log_likelihood(at) - (at - mean) ** 2 / (2 * spread)
        (slope,) = torch.autograd.grad(posterior, at, create_graph=True)
        (curve,) = torch.autograd.grad(slope, at)
        assert abs(float(slope.detach())) < 1e-5
        assert found[1] == pytest.approx(-1 / float(curve), rel=1e-6)
        logs.append(
            math.log(weight) + float(log_likelihood(torch.tensor(mean, dtype=torch.float64)))
        )
    weights = (
        torch.softmax(torch.tensor(logs, dtype=torch.float64), 0) * staying + (1 - staying) / 2
    )
    np.testing.assert_allclose(offsets[:, 2], weights.numpy(), rtol=1e-5)


@given(SEEDS, st.sampled_from([0.0, 1.0]), st.integers(1, 5000))
def test_filters_bear_that_everything_turns_out_otherwise(seed: int, always: float, n: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.floor(rng.random(BINS) * 500)
    came = np.bincount(rng.integers(BINS, size=n), minlength=BINS).astype(float)
    offsets, variances = np.array([[0.0, 1e-6, 0.5], [0.0, 0.2, 0.5]]), np.array([1e-6, 0.2])
    for _ in range(5):
        right = (1 - always) * came
        follow(came, right, counts, always * counts, PRIOR, offsets, variances, 0.9, 0.95)
        assert np.isfinite(offsets).all()
        assert np.abs(offsets[:, 0]).max() < 30
        assert offsets[:, 1:].min() > 0
        assert offsets[:, 2].sum() == pytest.approx(1)
    shares = mean_shares(counts, always * counts, PRIOR, offsets)
    assert ((shares >= 0) & (shares <= 1)).all()
