"""Tests for the core.drift.sequential.thinning module: how long a stream stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from core.drift.sequential.thinning import LONGEST, thinning_interval


def drawn(n: int, cells: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, cells, (1, n))


@pytest.mark.parametrize("cells", [2, 7, 100, 2000])
def test_independent_samples_are_all_looked_at(cells: int) -> None:
    strides = [thinning_interval(drawn(1000, cells, seed)) for seed in range(200)]
    assert set(strides) == {1}


@pytest.mark.parametrize("length", [3, 10, 25])
def test_samples_in_runs_are_looked_at_about_once_a_run(length: int) -> None:
    cells = drawn(4000 // length, 20).repeat(length, 1)
    assert length <= thinning_interval(cells) <= 2 * length + 2


def test_a_row_that_stays_is_enough() -> None:
    fast, slow = drawn(2000), drawn(200, seed=1).repeat(10, 1)
    assert thinning_interval(np.vstack([fast, slow, fast])) == thinning_interval(slow) >= 10


def test_where_samples_far_apart_are_alike_none_is_looked_at() -> None:
    assert thinning_interval(drawn(20).repeat(4 * LONGEST, 1)) == 0


def test_what_never_changes_says_nothing_of_that() -> None:
    assert thinning_interval(np.zeros((1, 1000), np.int64)) == 1
    assert thinning_interval(np.zeros((0, 1000), np.int64)) == 1
    rare = np.zeros((1, 1000), np.int64)
    rare[0, 500] = 3
    assert thinning_interval(rare) == 1


def test_too_few_samples_tell_nothing() -> None:
    assert thinning_interval(drawn(10).repeat(10, 1)) == 1


def test_small_numbers_without_a_sign_will_do() -> None:
    cells = drawn(300, 7).repeat(10, 1)
    assert thinning_interval(cells.astype(np.uint8)) == thinning_interval(cells)
