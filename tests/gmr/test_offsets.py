"""Tests for gmr.offsets: columns far from zero keep their content, others every bit."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from gmr import GMRClassifier, GMROutlierDetector, river
from gmr.offsets import moved, offsets

FAR = 1.7e9  # Unix seconds


def seconds(n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples (n, 2) whose class shows in a time, and in nothing else; their labels (n,)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    x = np.stack([FAR + 40 * y + rng.normal(scale=8, size=n), rng.normal(size=n)], axis=1)
    return x, y


@pytest.mark.parametrize(
    "column",
    [
        np.linspace(-3, 3, 50),
        np.linspace(1990, 2025, 50),
        np.linspace(101_000, 102_000, 50),
        np.full(50, 5.3),
        np.where(np.arange(50) < 48, 0.0, 1e9),
        np.linspace(0, 1e12, 50),
        np.full(50, np.nan),
    ],
)
def test_usual_columns_stay_as_they_are(column: NDArray[Any]) -> None:
    assert offsets(column[:, None]) is None
    assert offsets(column[:, None].astype(np.float32) + np.float32(FAR)) is None
    assert moved(column[:, None], None).tobytes() == column.astype(np.float32).tobytes()


@pytest.mark.parametrize(
    "column",
    [
        FAR + np.linspace(0, 100, 50),
        -FAR + np.linspace(0, 100, 50),
        1e5 + np.linspace(0, 0.1, 50),
        1 + np.linspace(0, 1e-6, 50),
        np.append(FAR + np.linspace(0, 100, 50), [0.0, np.nan]),
        np.full(50, FAR),
        np.array([FAR]),
    ],
)
def test_columns_far_from_zero_keep_what_varies(column: NDArray[Any]) -> None:
    found = offsets(np.stack([column, np.zeros(len(column))], axis=1))
    assert found is not None
    assert found[1] == 0
    kept = moved(column[:, None], found[:1])[:, 0].astype(float) + found[0]
    width = np.nanquantile(column, 0.9) - np.nanquantile(column, 0.1)
    assert kept[:50] == pytest.approx(column[:50], abs=1e-4 * width + 1e-9, rel=0)


def test_a_classifier_learns_from_times_and_draws_them() -> None:
    x, y = seconds(600, 0)
    new, names = seconds(300, 1)
    whole = GMRClassifier().fit(x, y)
    assert whole.score(new, names) > 0.97
    parts = GMRClassifier()
    for rows in np.array_split(np.arange(600), 6):
        parts.partial_fit(x[rows], y[rows])
    kept = copy.deepcopy(parts)
    for model in (whole, parts, kept):
        assert model.score(new, names) > 0.97
        drawn, _ = model.sample(200, classes=[1])
        assert drawn[:, 0].mean() == pytest.approx(FAR + 40, abs=5)
        assert drawn[:, 0].std() < 20
    near = GMRClassifier().fit(x - [FAR, 0], y)
    assert near.score_samples(x - [FAR, 0]) == pytest.approx(whole.score_samples(x), abs=0.05)
    assert near.sample(3)[0].dtype == np.float32


def test_a_usual_table_is_learned_as_if_it_had_come_as_float32() -> None:
    x, y = seconds(300, 0)
    x = (x - [FAR, 0]) * [1, 1e-3] + [50, 7]
    whole = GMRClassifier().fit(x, y)
    rounded = GMRClassifier().fit(x.astype(np.float32), y)
    assert whole.predict_proba(x).tobytes() == rounded.predict_proba(x).tobytes()
    assert whole.sample(9)[0].tobytes() == rounded.sample(9)[0].tobytes()


def test_a_fit_that_fails_leaves_the_offset_of_the_model_that_is() -> None:
    x, y = seconds(300, 0)
    model = GMRClassifier().fit(x, y)
    before = model.predict_proba(x).tobytes()
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(x - FAR, y[:-1])
    with pytest.raises(ValueError, match="too large for dtype"):
        model.partial_fit(x * 1e298, y)
    assert model.predict_proba(x).tobytes() == before


@pytest.mark.parametrize("n", [200, 1000])
def test_an_outlier_detector_knows_times(n: int) -> None:
    x, _ = seconds(n, 0)
    strange = x[:100] + np.array([200, 0])
    model = GMROutlierDetector().fit(x)
    scores = model.score_samples(np.concatenate([x[:100], strange]))
    assert roc_auc_score([1] * 100 + [0] * 100, scores) > 0.99
    assert (model.predict(strange) == -1).mean() > 0.95


def test_models_for_river_know_times() -> None:
    x, y = seconds(600, 0)
    classifier, detector = river.GMRClassifier(), river.GMRAnomalyDetector()
    for (time, other), label in zip(x.tolist(), y.tolist(), strict=True):
        classifier.learn_one({"time": time, "other": other}, label)
        detector.learn_one({"time": time, "other": other})
    right = [
        copy.deepcopy(classifier).predict_one({"time": FAR + 40 * late, "other": 0.0}) == late
        for late in (0, 1)
    ]
    assert all(right)
    assert detector.score_one({"time": FAR + 500, "other": 0.0}) > 0.99
    assert detector.score_one({"time": FAR + 40, "other": 0.0}) < 0.9
    drifts, rng = river.GMRDetector(), random.Random(0)
    for index in range(4000):
        drifts.update(rng.gauss(FAR + (0 if index < 3000 else 10), 10))
    assert len(drifts.boundaries) == 1
    assert abs(drifts.boundaries[0] - 3000) < 200
