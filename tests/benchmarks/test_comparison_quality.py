"""Tests for the benchmarks.comparison.quality and quality_table modules."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.comparison import quality_table
from benchmarks.comparison.cell import pixels
from benchmarks.comparison.judge import Judge, judge_of
from benchmarks.comparison.lesson import Lesson, Recipe, lesson
from benchmarks.comparison.quality import (
    QUICK,
    Draws,
    Nearness,
    Quality,
    measure,
    nearness,
    purity,
)
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT
from core.density.diagonal.density import DiagonalDensity
from core.model.model import Model
from core.snapshot import Snapshot


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def judge(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return judge_of(digits, tuple(range(10)), tmp_path_factory.mktemp("judges"), True)


@pytest.fixture(scope="module")
def taught(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    recipe = Recipe("flat", "digits", SLT.parse("D10"), 0, True)
    return lesson(recipe, digits, tmp_path_factory.mktemp("models"), lambda text: None)


def with_means(snapshot: Snapshot, means: Tensor) -> Snapshot:
    """The same model with other means, given in the units of the data."""
    density = snapshot.model.density
    assert isinstance(density, DiagonalDensity)
    standardised = snapshot.standardiser.apply(means)
    moved = replace(density, mixture=density.mixture._replace(means=standardised))
    return replace(snapshot, model=Model(moved, snapshot.model.readout))


def test_good_samples_are_read_as_asked_and_teach(
    taught: Lesson, judge: Judge, digits: Dataset
) -> None:
    quality = measure(taught, judge, digits, QUICK)
    for draws in (quality.with_noise, quality.without_noise):
        assert draws.purity > 0.9
        assert draws.purity_of_worst_class <= draws.purity
        assert draws.realism > 0.75
    assert quality.judge_accuracy == judge.accuracy
    assert Quality.from_dict(json.loads(json.dumps(quality.to_dict()))) == quality


def test_samples_of_the_wrong_class_are_not_pure(taught: Lesson, judge: Judge) -> None:
    shifted = tuple((label + 1) % 10 for label in judge.classes)
    shares = purity(taught.snapshot, replace(judge, classes=shifted), 20, 0, noise=True)
    assert max(shares) < 0.3


def test_a_component_that_is_a_training_image_is_found(taught: Lesson, digits: Dataset) -> None:
    images = pixels(digits.train_x)
    honest = nearness(taught.snapshot, images)
    assert honest is not None
    means = taught.snapshot.standardiser.invert(taught.snapshot.model.density.tensors()["means"])
    means = means.clone()
    means[3], means[7] = images[100], images[1400] + honest.tolerance / 2 / 8
    planted = nearness(with_means(taught.snapshot, means), images)
    assert planted is not None
    assert planted.stored == honest.stored + 2
    assert planted.smallest < 1e-5 < honest.smallest


def test_the_smallest_distance_is_that_of_the_plain_formula(
    taught: Lesson, digits: Dataset
) -> None:
    images = pixels(digits.train_x[:300])
    found = nearness(taught.snapshot, images)
    means = taught.snapshot.standardiser.invert(taught.snapshot.model.density.tensors()["means"])
    distances = (means[:, None].double() - images.double()).square().sum(-1).sqrt()
    assert found is not None
    assert found.smallest == pytest.approx(float(distances.min()), rel=1e-5)
    assert found.components == len(means)


def test_components_of_patches_are_not_compared_with_images(taught: Lesson) -> None:
    assert nearness(taught.snapshot, torch.zeros(5, 63)) is None


def test_the_table_shows_what_is_missing_and_counts_what_is_stored() -> None:
    draws = Draws(0.9, 0.8, 0.7)
    quality = Quality(draws, Draws(1, 1, 0.6), Nearness(100, 0.5, 0.1, 0), 0.99)
    stored = replace(quality, nearness=Nearness(100, 0.0, 0.1, 3))
    found = {("mnist", "flat"): {0: quality, 1: stored}, ("mnist", "mfa"): {}}
    page = quality_table.markdown(found, "Title", "note", 2)
    assert "| mnist, flat | 90.00 ± 0.00 | 100.00 ± 0.00 |" in page
    assert "| 0.00 | 3 of 200 | 2 of 2 |" in page
    assert "| mnist, mfa | missing |" in page
    assert "99.0 % on mnist" in page
    assert len(quality_table.json_values(found)) == 2


def test_what_is_no_image_leaves_the_cell_empty() -> None:
    quality = Quality(Draws(1, 1, 1), Draws(1, 1, 1), None, 1)
    cells = quality_table.row(("mnist", "dcgmm"), {0: quality}, 1)
    assert cells[-3:] == ("", "", "1 of 1")


def test_what_was_measured_is_repeated_with_the_same_seed(taught: Lesson, judge: Judge) -> None:
    first, second = (purity(taught.snapshot, judge, 30, 4, noise=True) for _ in range(2))
    assert first == second
