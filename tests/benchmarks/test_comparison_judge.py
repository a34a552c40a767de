"""Tests for the benchmarks.comparison.judge module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.comparison import judge as judges
from benchmarks.comparison.cell import pixels
from benchmarks.comparison.judge import Judge, judge_of
from clients.data.datasets import Dataset, load_dataset

DIGITS = tuple(range(10))


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judges")


@pytest.fixture(scope="module")
def judge(digits: Dataset, folder: Path) -> Judge:
    return judge_of(digits, DIGITS, folder, True)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts networks that are trained instead of training them."""
    asked: list[int] = []

    def train(*args: object, **options: object) -> tuple[torch.nn.Module, float]:
        asked.append(1)
        return judges.network_of((8, 8), len(DIGITS), 1), 0.1

    monkeypatch.setattr(judges, "trained_on_real", train)
    return asked


def test_a_judge_reads_real_digits(judge: Judge, digits: Dataset) -> None:
    named = judge.labels(pixels(digits.test_x)).numpy()
    share = (named == digits.test_y).mean()
    assert share == pytest.approx(judge.accuracy)
    assert share > 0.93


def test_a_judge_is_trained_once(
    judge: Judge, digits: Dataset, folder: Path, untrained: list[int]
) -> None:
    again = judge_of(digits, DIGITS, folder, True)
    assert not untrained
    assert (again.accuracy, again.name) == (judge.accuracy, judge.name)
    x = torch.rand(50, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.labels(x), judge.labels(x))


def test_other_classes_are_judged_by_another(
    judge: Judge, digits: Dataset, folder: Path, untrained: list[int]
) -> None:
    judge_of(digits, DIGITS[:9], folder, True)
    assert untrained == [1]


def test_a_damaged_file_is_no_judge(
    judge: Judge, digits: Dataset, tmp_path: Path, folder: Path, untrained: list[int]
) -> None:
    (file,) = [path for path in folder.iterdir() if judge.name in path.name]
    (tmp_path / file.name).write_bytes(file.read_bytes()[:-100])
    judge_of(digits, DIGITS, tmp_path, True)
    assert untrained == [1]


def test_a_judge_speaks_in_labels(digits: Dataset) -> None:
    network = judges.network_of((8, 8), 3, 0).eval()
    judge = Judge(network, (8, 8), (7, 3, 5), 0.0, "")
    assert set(judge.labels(torch.rand(200, 64)).tolist()) <= {3, 5, 7}


def test_what_lies_outside_the_grey_scale_is_cut_off(judge: Judge, digits: Dataset) -> None:
    x = pixels(digits.test_x[:50])
    loud = torch.where(x == 0, -5.0, torch.where(x == 1, 9.0, x))
    assert torch.equal(judge.labels(loud), judge.labels(x))


def test_training_depends_on_the_seed_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(300, 64, generator=generator), torch.arange(300) % 2
    torch.manual_seed(1)
    first = judges.train(x, y, (8, 8), 2, epochs=1, seed=0)
    torch.manual_seed(2)
    second, other = (judges.train(x, y, (8, 8), 2, epochs=1, seed=seed) for seed in (0, 1))
    weights = [
        torch.cat([one.flatten() for one in net.parameters()]) for net in (first, second, other)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
