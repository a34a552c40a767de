"""Tests for core.memory.feature_drift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.memory.course import Course
from core.memory.feature_drift import (
    FEWEST,
    MOST_FEATURES,
    MOST_TOLD,
    WINDOW,
    feature_drift,
)

Array = np.ndarray[Any, Any]


def course_of(x: Array, batch: int = 100) -> Course:
    course = Course()
    for start in range(0, len(x), batch):
        rows = torch.from_numpy(x[start : start + batch].astype(np.float32))
        course = course.observed(rows, start + len(rows))
    return course


def told_of(x: Array, batch: int = 100) -> dict[str, Any]:
    told = feature_drift(course_of(x, batch))
    assert told is not None
    return told


def noise(seed: int, n: int = 12_000, d: int = 8) -> Array:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_a_feature_that_creeps_is_named_with_what_it_was() -> None:
    x = noise(0)
    x[:, 5] = 40 + 2 * x[:, 5] + np.linspace(0, 3, len(x))
    told = told_of(x)
    first, *others = told["features"]
    assert (first["feature"], first["drifts"], told["drifting"]) == (5, True, 1)
    assert not any(row["drifts"] for row in others)
    assert len(told["features"]) == 8
    n = told["samples"]
    assert n + told["reference_samples"] == len(x)
    assert first["mean"] == pytest.approx(x[-n:, 5].mean(), rel=1e-4)
    assert first["reference_mean"] == pytest.approx(x[:-n, 5].mean(), rel=1e-4)
    assert first["reference_deviation"] == pytest.approx(x[:-n, 5].std(), rel=0.01)
    change = (first["mean"] - first["reference_mean"]) / first["reference_deviation"]
    assert first["change"] == pytest.approx(change, rel=1e-3)
    assert first["change"] > 0
    assert first["p_value"] < 1e-6
    course = first["course"]
    assert course[0] == pytest.approx(40.0, abs=0.4)
    assert course[-1] == pytest.approx(43.0, abs=0.4)
    assert np.corrcoef(course, range(len(course)))[0, 1] > 0.98


@pytest.mark.parametrize("dependence", [0.0, 0.9, 0.99])
def test_what_stays_is_seldom_said_to_drift(dependence: float) -> None:
    looks = false = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        steps = rng.normal(size=(10_000, 6)) * math.sqrt(1 - dependence**2)
        x, value = np.empty_like(steps), rng.normal(size=6)
        for i, step in enumerate(steps):
            value = dependence * value + step
            x[i] = value
        course = Course()
        for start in range(0, len(x), 100):
            course = course.observed(torch.from_numpy(x[start : start + 100]), start + 100)
            if start % 500 == 0 and start >= 2000:
                told = feature_drift(course)
                assert told is not None
                looks, false = looks + 1, false + bool(told["drifting"])
    assert looks == 160
    assert false <= 0.05 * looks


def test_of_many_samples_a_change_that_is_evident_and_small_is_no_drift() -> None:
    x = noise(3, 100_000, 3)
    x[-15_000:, 1] += 0.15
    first = told_of(x, 1000)["features"][0]
    assert (first["feature"], first["drifts"]) == (1, False)
    assert first["p_value"] < 0.001


def test_of_a_few_large_batches_a_step_is_no_dependence() -> None:
    x = noise(7, 2000, 4)
    x[1000:, 3] += 1
    told = told_of(x, 500)
    assert (told["features"][0]["feature"], told["drifting"]) == (3, 1)


def test_the_more_features_the_more_evidence_is_asked_for() -> None:
    x = noise(8, 6000, 50)
    x[-1000:, 0] += 0.2
    alone, among = told_of(x[:, :1])["features"][0], told_of(x)["features"][0]
    assert alone["feature"] == among["feature"] == 0
    assert 0 < among["p_value"] < 0.5
    assert among["p_value"] == pytest.approx(50 * alone["p_value"], rel=1e-3)


def test_units_make_no_difference_to_what_drifts() -> None:
    x = noise(4)
    x[:, 2] += np.linspace(0, 2, len(x))
    by, to = 10.0 ** np.arange(-4, 4), np.arange(8.0) * 10.0 ** np.arange(-4, 4)
    plain, other = told_of(x), told_of(x * by + to)
    assert other["drifting"] == plain["drifting"] == 1
    for one, same in zip(plain["features"][:1], other["features"][:1], strict=True):
        assert one["feature"] == same["feature"]
        assert same["change"] == pytest.approx(one["change"], rel=1e-2)


def test_what_cannot_be_told_yet_is_none() -> None:
    assert feature_drift(Course()) == {
        "samples": 0,
        "reference_samples": 0,
        "features": [],
        "drifting": None,
    }
    few = told_of(noise(5, int(WINDOW + FEWEST) - 100, 12))
    assert few["drifting"] is None
    assert few["reference_samples"] < FEWEST
    assert [row["feature"] for row in few["features"]] == [*range(MOST_TOLD)]
    for row in few["features"]:
        assert (row["reference_mean"], row["change"], row["p_value"]) == (None, None, None)
        assert row["drifts"] is False
    enough = told_of(noise(5, int(WINDOW + FEWEST), 12))
    assert enough["drifting"] == 0
    assert feature_drift(course_of(noise(6, 100, MOST_FEATURES + 1))) is None


def test_no_mean_of_fewer_than_ten_samples_is_told() -> None:
    x, course = noise(9, 75, 2), Course()
    for n, row in enumerate(x, 1):
        course = course.observed(torch.from_numpy(row[None].astype(np.float32)), n)
        told = feature_drift(course)
        assert told is not None
        assert bool(told["features"]) == (n >= 10)
        for feature in told["features"]:
            # The second block begins with sample 51.
            blocks = [x[:50], x[50:n]] if n >= 60 else [x[: min(n, 50)]]
            expected = [block[:, feature["feature"]].mean() for block in blocks]
            assert feature["course"] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.0, 1e-30, 1e30]),
    st.integers(0, 99),
)
def test_whatever_comes_every_number_is_one(sizes: list[int], scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    course, n = Course(), 0
    for size in sizes:
        rows = rng.normal(size=(size, 3)) * [1.0, scale, 0.0] + [0.0, 0.0, 7.0]
        course, n = course.observed(torch.from_numpy(rows).float(), n + size), n + size
    told = feature_drift(course)
    assert told is not None
    assert told["samples"] + told["reference_samples"] == n
    for row in told["features"]:
        known = [value for value in row.values() if isinstance(value, float)]
        assert all(map(math.isfinite, [*known, *row["course"]]))
        assert row["p_value"] is None or 0 <= row["p_value"] <= 1
        if row["feature"] == 2:
            assert row["mean"] == 7.0
            assert not row["drifts"]
