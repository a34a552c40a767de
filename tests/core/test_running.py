"""Tests for the core.running module."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.running import FORGETTING, FREAK, UNIT, Running


def fed(values: np.ndarray, size: int, start: Running | None = None) -> Running:
    """The statistics after `values` in batches of `size`."""
    running = start or Running()
    for begin in range(0, len(values), size):
        part = values[begin : begin + size]
        running = running.updated(len(part), float(part.mean()), float(part.var()))
    return running


@pytest.mark.parametrize("size", [1, 7, 100, 3000])
def test_at_first_it_is_a_plain_mean_and_variance_however_the_stream_is_cut(size: int) -> None:
    values = np.random.default_rng(0).normal(5, 3, 3000)
    running = fed(values, size)
    assert running.weight == 3000
    assert running.mean == pytest.approx(values.mean(), rel=1e-9)
    assert running.variance == pytest.approx(values.var(), rel=1e-9)
    assert running.deviation == pytest.approx(values.std(), rel=1e-9)


def test_once_many_are_known_the_newest_hundred_weigh_a_hundredth() -> None:
    known = Running(weight=1e6, mean=0.0, variance=0.0)
    assert known.updated(UNIT, mean=1.0).mean == pytest.approx(FORGETTING)
    # Cut into single samples, they weigh the same.
    one_by_one = known
    for _ in range(UNIT):
        one_by_one = one_by_one.updated(1, mean=1.0)
    assert one_by_one.mean == pytest.approx(FORGETTING, rel=1e-9)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60),
    st.data(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_two_streams_pooled_are_one_stream(values: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    all_values = np.array(values)
    pooled = fed(all_values[:cut], 4).pooled(fed(all_values[cut:], 4))
    assert pooled.weight == len(values)
    assert pooled.mean == pytest.approx(all_values.mean(), rel=1e-6, abs=1e-6)
    assert pooled.variance == pytest.approx(all_values.var(), rel=1e-5, abs=1e-4)


def test_pooling_with_nothing_changes_nothing() -> None:
    known = Running(10.0, 2.0, 3.0)
    assert known.pooled(Running()) == known
    assert Running().pooled(known) == known


def test_of_two_that_weigh_nothing_the_later_estimate_stands() -> None:
    assert Running().pooled(Running(0.0, 2.0, 3.0)) == Running(0.0, 2.0, 3.0)


def test_a_number_far_below_the_rest_is_counted_as_the_lowest_that_says_something() -> None:
    known = Running(weight=1000.0, mean=10.0, variance=4.0)
    assert known.lowest == 10 - FREAK * 2
    # Equal numbers have no deviation, but the statistics can still move.
    assert Running(1000.0, 10.0, 0.0).lowest == 10 - FREAK


def test_while_little_is_known_no_number_is_too_low() -> None:
    assert Running().lowest == -math.inf
    assert Running(UNIT - 1, 0.0, 1.0).lowest == -math.inf
    assert math.isfinite(Running(UNIT, 0.0, 1.0).lowest)


def test_rounding_cannot_give_an_imaginary_deviation() -> None:
    assert Running(3.0, 0.0, -1e-12).deviation == 0.0
