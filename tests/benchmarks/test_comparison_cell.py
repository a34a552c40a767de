"""Tests for the benchmarks.comparison.cell module."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison import cell as cells
from benchmarks.comparison.cell import Cell, Outcome, configuration_of, make_fresh, measure
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT
from clients.http.errors import InputError
from tests.benchmarks.comparison_parts import (
    Diary,
    Finder,
    NearestMean,
    an_outcome,
    make_nearest_mean,
)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def measured(digits: Dataset, slt: str, seed: int = 0) -> tuple[Outcome, NearestMean, Diary]:
    cell, diary = Cell("nearest-mean", "digits", SLT.parse(slt), seed), Diary()
    system = make_fresh(cell, digits, make_nearest_mean, True)
    assert isinstance(system, NearestMean)
    return measure(cell, system, digits, True, diary), system, diary


def test_accuracy_is_that_on_all_classes_after_the_last_sub_task(digits: Dataset) -> None:
    outcome, _, _ = measured(digits, "D5-5a")
    x, y = digits.train_x / 255, digits.train_y
    means = np.stack([x[y == label].mean(0) for label in range(10)])
    distances = ((digits.test_x[:, None] / 255 - means) ** 2).sum(-1)
    by_hand = np.mean(distances.argmin(-1) == digits.test_y)
    assert outcome.accuracy == pytest.approx(by_hand)
    assert outcome.joint[-1] == outcome.accuracy
    # After the first half, the other half cannot be known.
    (first, none), (_, second) = outcome.matrix
    assert none == 0
    assert min(first, second) > 0.8
    assert 0.4 < outcome.joint[0] < 0.52


def test_labels_are_codes_to_the_system_and_labels_again_in_the_result(digits: Dataset) -> None:
    outcome, system, _ = measured(digits, "7,3/5,9")
    assert [set(y.tolist()) for y in system.taught] == [{0, 2}, {1, 3}]  # 3 5 7 9, in order
    assert outcome.accuracy > 0.85


def test_the_order_of_samples_depends_on_the_seed_alone(digits: Dataset) -> None:
    taught = [measured(digits, "D5-5a", seed)[1].taught for seed in (0, 0, 1)]
    assert all(torch.equal(a, b) for a, b in zip(taught[0], taught[1], strict=True))
    assert not torch.equal(taught[0][0], taught[2][0])


def test_a_listener_is_told_all_samples_and_sub_tasks(digits: Dataset) -> None:
    outcome, _, diary = measured(digits, "D2-2-2-2-2a")
    assert diary.samples == outcome.samples == len(digits.train_x)
    assert diary.sub_tasks == [(index, 5) for index in range(5)]


def test_a_small_data_set_is_repeated_for_systems_that_find_boundaries(digits: Dataset) -> None:
    cell, system = Cell("finder", "digits", SLT.parse("0,1/2"), 0), Finder(64, 3, [1, 2])
    outcome = measure(cell, system, digits, True, Diary())
    chosen = np.isin(digits.train_y, [0, 1, 2]).sum()
    assert outcome.samples == cells.REPEATS["digits"] * chosen
    assert outcome.configuration["repeats"] == cells.REPEATS["digits"]
    assert outcome.boundaries == (1, 3)
    assert (outcome.found, outcome.false) == (1, 2)


@given(finds=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_every_boundary_found_is_true_or_false_and_none_is_both(finds: list[int]) -> None:
    counts = tuple(np.cumsum(finds).tolist())
    outcome = an_outcome(0.5, len(finds), boundaries=counts)
    assert outcome.found is not None
    assert outcome.false is not None
    assert outcome.found + outcome.false == sum(finds)
    assert outcome.found == sum(n > 0 for n in finds[1:])


def test_an_outcome_survives_json() -> None:
    outcome = an_outcome(0.75, 3, boundaries=(0, 1, 2), told=False)
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_whatever_decides_the_result_is_in_the_configuration(digits: Dataset) -> None:
    cell = Cell("nearest-mean", "digits", SLT.parse("D5-5a"), 0)
    system = NearestMean(64, 10)
    base = configuration_of(cell, system, digits, True)
    x = digits.train_x.copy()
    x[0, 0] += 1
    more_passes = NearestMean(64, 10)
    more_passes.epochs = "2 passes"
    others = [
        configuration_of(replace(cell, seed=1), system, digits, True),
        configuration_of(replace(cell, slt=SLT.parse("D5-5b")), system, digits, True),
        configuration_of(cell, system, digits, False),
        configuration_of(cell, system, replace(digits, train_x=x), True),
        configuration_of(cell, Finder(64, 10, []), digits, True),
        configuration_of(cell, more_passes, digits, True),
    ]
    assert all(other != base for other in others)
    assert configuration_of(cell, NearestMean(64, 10), digits, True) == base


def test_data_without_images_are_refused() -> None:
    digits = load_dataset("digits")
    cell = Cell("nearest-mean", "digits", SLT.parse("D10"), 0)
    with pytest.raises(InputError, match="does not hold images"):
        make_fresh(cell, replace(digits, image_shape=None), make_nearest_mean, True)


def test_every_cell_has_a_file_of_its_own() -> None:
    slts = [SLT.parse(text) for text in ("D10", "0,1/2", "0/1,2", "0,1,2")]
    paths = {
        Cell(system, data, slt, seed).path
        for system in ("flat", "mfa")
        for data in ("mnist", "digits")
        for slt in slts
        for seed in (0, 1)
    }
    assert len(paths) == 2 * 2 * 4 * 2
    assert all(len(path.parts) == 3 for path in paths)
