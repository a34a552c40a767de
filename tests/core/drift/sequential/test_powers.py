"""Tests for core.drift.sequential.powers: what the mathematical library says, several at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.powers import find_logarithms, find_powers

numbers = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=40)


def logarithms(values: Array) -> Array:
    logs = np.empty(len(values))
    find_logarithms(logs, values)
    return logs


@settings(deadline=None)
@given(values=numbers)
def test_logarithms_are_those_of_the_library(values: list[float]) -> None:
    given = np.array(values)
    logs = logarithms(given)
    assert given.tolist() == values
    with np.errstate(divide="ignore"):
        assert logs == pytest.approx(np.log2(given), abs=1e-11, rel=1e-12)


@settings(deadline=None)
@given(values=numbers, exponent=st.floats(0.01, 100))
def test_powers_are_those_of_the_library(values: list[float], exponent: float) -> None:
    powers = np.empty(len(values))
    find_powers(powers, logarithms(np.array(values)), exponent)
    assert powers == pytest.approx(np.array(values) ** exponent, rel=1e-9, abs=1e-200)


def test_nothing_stays_nothing_and_all_stays_all() -> None:
    """Or what bets pay over all ranks would not come to one."""
    powers = np.empty(2)
    for exponent in (0.01, 0.12, 7.0):
        find_powers(powers, logarithms(np.array([0.0, 1.0])), exponent)
        assert powers[0] < 1e-300
        assert powers[1] == 1


def test_powers_rise_with_the_numbers() -> None:
    """Where ranks lie close, or a bet would pay less than nothing."""
    values = np.arange(1, 200_001) / 200_000
    powers = np.empty(len(values))
    find_powers(powers, logarithms(values), 0.12)
    assert (np.diff(powers) > 0).all()
