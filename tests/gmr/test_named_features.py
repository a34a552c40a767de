"""Tests for gmr.named_features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import NonFiniteFeature
from gmr.named_features import NamedFeatures, as_number

NAMES = st.sampled_from(["a", "b", 1, 2, ("a", 1)])
NUMBERS = st.floats(-1e6, 1e6, width=32)
SAMPLES = st.lists(st.dictionaries(NAMES, NUMBERS), min_size=1, max_size=8)


@given(first=SAMPLES, later=SAMPLES, random=st.randoms(use_true_random=False))
def test_the_order_of_features_does_not_matter(
    first: list[dict[Any, float]], later: list[dict[Any, float]], random: Any
) -> None:
    def shuffled(samples: list[dict[Any, float]]) -> list[dict[Any, float]]:
        return [dict(random.sample(list(one.items()), len(one))) for one in samples]

    plain, other = NamedFeatures(), NamedFeatures()
    plain.observe(first)
    other.observe(shuffled(first))
    assert plain.names == other.names
    assert plain.rows(later).tobytes() == other.rows(shuffled(later)).tobytes()


@given(first=SAMPLES, later=SAMPLES)
def test_what_is_there_is_kept_what_lacks_is_the_mean_and_what_is_new_is_left_out(
    first: list[dict[Any, float]], later: list[dict[Any, float]]
) -> None:
    features = NamedFeatures()
    features.observe(first)
    assert set(features.names) == {name for one in first for name in one}
    rows = features.rows(later)
    assert rows.shape == (len(later), len(features.names))
    for sample, row in zip(later, rows, strict=True):
        for name, value in zip(features.names, row.tolist(), strict=True):
            known = [one[name] for one in first if name in one]
            expected = sample.get(name, np.mean(known))
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-2)


def test_what_is_missing_in_words_or_as_nan_is_missing() -> None:
    features = NamedFeatures()
    features.observe([{"a": 1.0, "b": None}, {"a": math.nan, "b": 4.0}, {"a": 3.0}])
    assert features.rows([{"a": None}, {"b": math.nan}]).tolist() == [[2.0, 4.0], [2.0, 4.0]]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e39, -1e300])
def test_what_no_float32_holds_is_refused_by_name(value: float) -> None:
    with pytest.raises(NonFiniteFeature, match="'height'"):
        as_number("height", value)
