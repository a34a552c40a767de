"""Tests for core.memory.tallies: the loops say what plain operations on tensors say."""

from __future__ import annotations

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


@given(SEEDS)
def test_the_expected_accuracy_is_the_mean_of_the_bins_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    recent, counts = rng.random(BINS) * 100, rng.random(BINS) * 500
    hits = counts * rng.random(BINS)
    shares = (hits + PRIOR * hits.sum() / counts.sum()) / (counts + PRIOR)
    weights, of_one = recent / recent.sum(), shares * (1 - shares)
    wanted = (
        weights @ shares,
        (weights**2 * of_one / (counts + PRIOR)).sum(),
        weights @ of_one,
    )
    assert expected_hits(recent, counts, hits, PRIOR) == pytest.approx(wanted, rel=1e-12)


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
