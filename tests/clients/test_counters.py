"""Tests for clients.counters: columns that never fall are known, however their rows are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.counters import RISES, Counters, counting


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_columns_that_count_are_found(dtype: type) -> None:
    i = np.arange(200)
    x = np.stack([i // 2, i * 37 % 101, i * 0, i // 20, i // 100], axis=1).astype(dtype)
    counters = Counters()
    counters.add(x)
    assert counting([counters], 200) == (0,)
    assert counting([counters], 201) == ()


@given(
    st.lists(st.one_of(st.integers(-3, 40), st.just(np.nan)), min_size=1, max_size=80),
    st.booleans(),
    st.lists(st.integers(0, 80), max_size=4),
)
def test_it_is_as_one_by_one_however_the_rows_are_cut(
    numbers: list[float], ordered: bool, cuts: list[int]
) -> None:
    if ordered:
        known = iter(sorted(number for number in numbers if number == number))
        numbers = [next(known) if number == number else number for number in numbers]
    x = np.array([numbers, numbers[::-1]]).T
    counters = Counters()
    for piece in np.split(x, sorted(cuts)):
        counters.add(piece)
    for column, values in enumerate(x.T):
        known_values = values[~np.isnan(values)]
        steps = np.diff(known_values)
        assert counters.fell[column] == (steps < 0).any()
        if not counters.fell[column]:
            assert counters.n[column] == len(known_values)
            assert counters.rises[column] == (steps > 0).sum()


def test_in_each_of_several_parts() -> None:
    parts = [Counters(), Counters()]
    for offset, part in enumerate(parts):
        part.add((1e4 * offset + np.arange(RISES))[:, None])
    assert counting(parts, 2 * RISES) == (0,)
    parts[1].add(np.zeros((1, 1)))
    assert counting(parts, 2 * RISES) == ()
