"""Tests for the benchmarks.comparison.lesson module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.comparison.cell import pixels
from benchmarks.comparison.lesson import BATCH, Recipe, Trace, floored, lesson
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT
from core.events import BatchLearned

RECIPE = Recipe("flat", "digits", SLT.parse("D2-2-2-2-2a"), 0, True)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def test_a_lesson_is_learned_once_and_read_afterwards(digits: Dataset, folder: Path) -> None:
    said: list[str] = []
    first = lesson(RECIPE, digits, folder, said.append)
    second = lesson(RECIPE, digits, folder, said.append)
    assert said == ["digits D2-2-2-2-2a: a model of preset flat learns, 11 epochs"]
    assert second.trace == first.trace
    x = pixels(digits.test_x)
    assert torch.equal(first.snapshot.classify(x).codes, second.snapshot.classify(x).codes)
    labels = torch.tensor([int(label) for label in first.snapshot.classes])
    right = labels[first.snapshot.classify(x).codes] == torch.from_numpy(digits.test_y)
    assert right.double().mean() > 0.9


def test_a_trace_tells_of_every_batch(digits: Dataset, folder: Path) -> None:
    found = lesson(RECIPE, digits, folder, lambda text: None).trace
    sizes = [len(RECIPE.slt.rows(digits.train_y, task)) * RECIPE.epochs for task in range(5)]
    batches = [-(-size // BATCH) for size in sizes]
    assert [found.sub_task.count(task) for task in range(5)] == batches
    for values in (
        found.inlier_rate,
        found.set_aside,
        found.log_likelihood,
        *found.ratios.values(),
    ):
        assert len(values) == len(found)
    # There is a rate where there is a reference, and none in a sub-task's first batches.
    rates = [rate for rate in found.inlier_rate if rate is not None]
    assert found.inlier_rate[0] is None
    assert len(rates) > len(found) / 2
    assert all(0 <= rate <= 1 for rate in rates)
    # A boundary is where the threshold is passed for long enough, a batch later if need be.
    passed = [
        batch + 1
        for batch in range(len(found))
        if max(values[batch] for values in found.ratios.values()) >= 1
    ]
    assert set(found.boundaries) <= set(passed)
    assert {batch for batch in passed if batch + 1 not in passed} == set(found.boundaries)
    assert len(found.boundaries) == 4


def test_samples_are_drawn_on_the_way_where_all_classes_come_at_once(
    digits: Dataset, folder: Path
) -> None:
    whole = lesson(replace(RECIPE, slt=SLT.parse("D10")), digits, folder, lambda text: None).trace
    pairs = lesson(RECIPE, digits, folder, lambda text: None).trace
    assert pairs.sampled == pairs.sampled_floored == []
    assert 15 < len(whole.sampled) == len(whole.sampled_floored) < 30
    # Wider samples are less likely ones.
    drawn = zip(whole.sampled, whole.sampled_floored, strict=True)
    assert all(raw[1] > floored[1] for raw, floored in drawn)


@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_a_floored_density_draws_what_it_scores(preset: str, digits: Dataset, folder: Path) -> None:
    recipe = replace(RECIPE, preset=preset, slt=SLT.parse("0,1"))
    served = lesson(recipe, digits, folder, lambda text: None).snapshot.model
    exact = floored(served.density)
    assert exact is not None
    generator = torch.Generator().manual_seed(0)
    components = torch.zeros(4000, dtype=torch.int64)
    x = exact.sample(components, generator)
    # One component alone: twice its exponent is chi-square with D degrees of freedom.
    joint = exact.score(x).joint[:, 0]
    spread = 2 * (exact.score(x.mean(0, keepdim=True)).joint[0, 0] - joint)
    n_features = exact.n_features
    assert float(spread.mean()) == pytest.approx(n_features, abs=0.06 * n_features)
    raw = served.density.sample(components, torch.Generator().manual_seed(0))
    assert float(raw.var(0).sum()) < float(x.var(0).sum())


def test_anything_that_matters_is_learned_anew(digits: Dataset, folder: Path) -> None:
    base = RECIPE.configuration(digits)
    other_data = replace(digits, train_y=digits.train_y[::-1].copy())
    others = [
        replace(RECIPE, seed=1).configuration(digits),
        replace(RECIPE, preset="paper").configuration(digits),
        replace(RECIPE, slt=SLT.parse("D5-5a")).configuration(digits),
        RECIPE.configuration(other_data),
    ]
    assert all(other != base for other in others)


def test_a_damaged_file_is_learned_anew(digits: Dataset, tmp_path: Path) -> None:
    short = replace(RECIPE, slt=SLT.parse("0,1"))
    said: list[str] = []
    lesson(short, digits, tmp_path, said.append)
    path = tmp_path / short.file
    path.write_bytes(path.read_bytes()[:-1])
    lesson(short, digits, tmp_path, said.append)
    assert len(said) == 2


def test_the_paper_has_its_own_pace_on_all_classes_at_once_and_only_there() -> None:
    whole = Recipe("paper", "mnist", SLT.parse("D10"), 0, False)
    assert (whole.epochs, whole.engine.pace, whole.engine.detector) == (50, "published", "none")
    for other in (
        replace(whole, slt=SLT.parse("D5-5a")),
        replace(whole, preset="flat"),
        replace(whole, quick=True),
    ):
        assert other.epochs == 1
        assert other.engine.detector == "sequential"


def test_a_signal_that_speaks_late_is_zero_before() -> None:
    trace = Trace()
    for batch, statistics in enumerate(({}, {"a": 2.0}, {"a": 1.0, "b": 3.0}, {"b": 6.0})):
        trace.add(0, scored(batch, statistics))
    assert trace.ratios == {"a": [0, 0.5, 0.25, 0], "b": [0, 0, 0.75, 1.5]}


def scored(batch: int, statistics: dict[str, float]) -> BatchLearned:
    """An event of which only the statistics matter."""
    return BatchLearned(
        batch_index=batch,
        sample_index=batch * BATCH,
        samples=BATCH,
        labelled=BATCH,
        sub_task=0,
        inlier_rate=0.8,
        inlier_rate_mean=0.8,
        log_likelihood_mean=1.0,
        statistic=0.0,
        threshold=4.0,
        statistics=statistics,
        thresholds=dict.fromkeys(statistics, 4.0),
        armed=True,
        prequential_accuracy=None,
        prequential_accuracy_mean=None,
        model_version=1,
        replayed=0,
        components=1,
        classes=1,
    )
