"""Tests for benchmarks.classification.measures: numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from benchmarks.classification.measures import NOBODY, accuracy, kappa, tenths


def classes(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def test_kappa_of_a_table_worked_by_hand() -> None:
    # Right 20 + 15 of 50; chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5.
    named = np.repeat(classes(0, 0, 1, 1), (20, 5, 10, 15))
    true = np.repeat(classes(0, 1, 0, 1), (20, 5, 10, 15))
    assert accuracy(named, true) == pytest.approx(0.7)
    assert kappa(named, true) == pytest.approx(0.4)


def test_who_names_one_class_only_has_no_kappa_and_an_accuracy() -> None:
    true = classes(0, 0, 0, 1)
    assert kappa(classes(0, 0, 0, 0), true) == pytest.approx(0)
    assert accuracy(classes(0, 0, 0, 0), true) == 0.75
    assert math.isnan(kappa(classes(1, 1), classes(1, 1)))
    assert math.isnan(accuracy(classes(), classes()))
    assert math.isnan(kappa(classes(), classes()))


def test_no_answer_is_wrong() -> None:
    assert accuracy(classes(NOBODY, 1), classes(0, 1)) == 0.5
    # Chance: of the three answers that occur only 1 agrees, 0.5 * 0.5.
    assert kappa(classes(NOBODY, 1), classes(0, 1)) == pytest.approx((0.5 - 0.25) / 0.75)


def test_tenths_by_hand() -> None:
    true = np.zeros(20, dtype=np.int64)
    named = true.copy()
    named[[4, 5, 19]] = 1
    assert tenths(named, true) == (1, 1, 0, 1, 1, 1, 1, 1, 1, 0.5)
    assert tenths(named[:3], true[:3]) == (1, 1, 1)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_kappa_is_that_of_scikit_learn_and_tenths_make_up_the_accuracy(
    pairs: list[tuple[int, int]],
) -> None:
    named, true = (classes(*part) for part in zip(*pairs, strict=True))
    if len(np.unique(np.concatenate([named, true]))) > 1:
        assert kappa(named, true) == pytest.approx(cohen_kappa_score(named, true), abs=1e-12)
    sizes = [len(part) for part in np.array_split(true, min(10, len(true)))]
    assert np.average(tenths(named, true), weights=sizes) == pytest.approx(accuracy(named, true))
