"""Tests for the benchmarks.comparison.campaign module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from benchmarks.comparison.campaign import Campaign
from benchmarks.comparison.cell import Cell
from benchmarks.comparison.store import Store
from clients.data.datasets import load_dataset
from clients.data.tasks import SLT
from tests.benchmarks.comparison_parts import Diary, NearestMean, make_nearest_mean

CELLS = [Cell("nearest-mean", "digits", SLT.parse("0,1/2,3"), seed) for seed in range(3)]


class Breaks(NearestMean):
    """Raises what it is given as soon as it is to learn."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(64, 4)
        self.error = error

    def learn(self, x: Tensor, y: Tensor, announce: Callable[[int], None]) -> None:
        raise self.error


def broken_at(
    seed: int, error: BaseException
) -> Callable[[str, tuple[int, int], int, int, bool], NearestMean]:
    """Makes systems of which one breaks."""

    def make(
        name: str, image: tuple[int, int], n_classes: int, of_seed: int, quick: bool
    ) -> NearestMean:
        if of_seed == seed:
            return Breaks(error)
        return make_nearest_mean(name, image, n_classes, of_seed, quick)

    return make


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    first, second = Campaign(CELLS), Campaign(CELLS)
    before, after = Diary(), Diary()
    first.run(Store(tmp_path), load_dataset, make_nearest_mean, before, quick=True)
    second.run(Store(tmp_path), load_dataset, make_nearest_mean, after, quick=True)
    assert (before.measured, before.kept) == (CELLS, [])
    assert (after.measured, after.kept, after.samples) == ([], CELLS, 0)
    assert second.outcomes == first.outcomes
    assert before.samples == sum(before.began_with)


def test_another_configuration_is_measured_again(tmp_path: Path) -> None:
    Campaign(CELLS).run(Store(tmp_path), load_dataset, make_nearest_mean, Diary(), quick=True)
    diary = Diary()
    Campaign(CELLS).run(Store(tmp_path), load_dataset, make_nearest_mean, diary, quick=False)
    assert diary.measured == CELLS


def test_an_interruption_loses_the_running_cell_and_nothing_else(tmp_path: Path) -> None:
    interrupted = Campaign(CELLS)
    make = broken_at(1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(Store(tmp_path), load_dataset, make, Diary(), quick=True)
    assert list(interrupted.outcomes) == CELLS[:1]

    # The files know nothing of how the system was made, only of its module: the same here.
    diary = Diary()
    Campaign(CELLS).run(Store(tmp_path), load_dataset, make_nearest_mean, diary, quick=True)
    assert diary.kept == CELLS[:1]
    assert diary.measured == CELLS[1:]


def test_a_system_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    campaign, diary = Campaign(CELLS), Diary()
    make = broken_at(1, ValueError("no such luck"))
    campaign.run(Store(tmp_path), load_dataset, make, diary, quick=True)
    assert list(campaign.outcomes) == [CELLS[0], CELLS[2]]
    assert campaign.failures == {CELLS[1]: "ValueError: no such luck"}
    assert diary.errors == ["no such luck"]
    assert not (tmp_path / CELLS[1].path).exists()
