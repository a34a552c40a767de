"""Drawn samples beside test samples: what is pure, near, varied, and what cannot be told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.evaluation.sample_quality import SampleQuality, sample_quality
from clients.http.answers import Label, Samples

RNG = np.random.default_rng(0)
PLACES = {"a": 0.0, "b": 20.0}


def real(n: int, scale: float = 1.0) -> tuple[np.ndarray, list[Label]]:
    parts = [RNG.normal(place, 1.0, size=(n, 3)) * scale for place in PLACES.values()]
    return np.concatenate(parts), [label for label in PLACES for _ in range(n)]


def drawn(label: str, centre: float, n: int = 40, spread: float = 1.0, short: int = 0) -> Samples:
    x = RNG.normal(centre, spread, size=(n, 3)).astype(np.float32)
    flags = np.arange(n) < short
    ones = np.ones(n, dtype=np.float32)
    return Samples(1, x, [label] * n, ones, ones, flags)


def measured(samples: dict[Label, Samples], n: int = 60) -> SampleQuality:
    x, y = real(n)
    found = sample_quality(samples, x, y, images=False)
    assert found is not None
    return found


def test_samples_as_the_data_are_pure_precise_and_cover_them():
    found = measured({label: drawn(label, place, 60) for label, place in PLACES.items()})
    assert (found.purity, found.purity_of_test_samples, found.accepted) == (1.0, 1.0, 1.0)
    assert found.precision > 0.8
    assert found.recall > 0.8
    assert found.density == pytest.approx(1.0, abs=0.3)
    assert found.coverage > 0.8


def test_samples_of_the_other_class_are_impure_though_they_are_precise():
    found = measured({"a": drawn("a", PLACES["b"]), "b": drawn("b", PLACES["b"])})
    assert [one.purity for one in found.classes] == [0.0, 1.0]
    assert found.purity == 0.5
    assert found.precision > 0.8
    assert found.coverage < 0.6


def test_one_sample_again_and_again_covers_next_to_nothing():
    found = measured({label: drawn(label, place, spread=0.0) for label, place in PLACES.items()})
    assert found.precision == 1.0
    assert found.recall == 0.0
    assert found.coverage < 0.7


def test_samples_far_from_all_data_are_near_none():
    found = measured({label: drawn(label, place + 500) for label, place in PLACES.items()})
    assert (found.precision, found.recall, found.density, found.coverage) == (0, 0, 0, 0)


def test_what_the_model_did_not_find_sure_enough_is_not_accepted():
    found = measured({"a": drawn("a", 0.0, 40, short=10), "b": drawn("b", 20.0, 40)})
    assert [one.accepted for one in found.classes] == [0.75, 1.0]
    assert found.accepted == 0.875


def test_too_few_test_samples_tell_only_what_is_accepted():
    x, y = real(4)
    found = sample_quality({"a": drawn("a", 0.0, short=4)}, x, y, images=False)
    assert found is not None
    assert found.accepted == 0.9
    assert math.isnan(found.purity + found.coverage + found.classes[0].purity)


def test_pixels_of_one_byte_are_drawn_in_0_to_1():
    pixels = RNG.integers(0, 256, size=(40, 4)).astype(np.uint8)
    ones = np.ones(40, dtype=np.float32)
    samples = Samples(1, pixels.astype(np.float32) / 255, ["a"] * 40, ones, ones, ones == 0)
    found = sample_quality({"a": samples}, pixels, ["a"] * 40, images=True)
    assert found is not None
    assert (found.precision, found.recall, found.coverage) == (1, 1, 1)


def test_without_samples_nothing_is_told():
    x, y = real(4)
    assert sample_quality({}, x, y, images=False) is None


@given(st.floats(1e-3, 1e3), st.integers(0, 2))
def test_units_of_a_table_change_nothing(factor: float, feature: int):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    y: list[Label] = ["a"] * 40
    fake = rng.normal(size=(30, 3)).astype(np.float32)
    ones = np.ones(30, dtype=np.float32)

    def told(scale: float) -> SampleQuality | None:
        own, other = x.copy(), fake.astype(np.float64)
        own[:, feature] *= scale
        other[:, feature] *= scale
        samples = Samples(1, other, ["a"] * 30, ones, ones, ones == 0)
        return sample_quality({"a": samples}, own, y, images=False)

    one, other = told(1.0), told(factor)
    assert one is not None
    assert other is not None
    for name in ("precision", "recall", "density", "coverage"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=0.03)
