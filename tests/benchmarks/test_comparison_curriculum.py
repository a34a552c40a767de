"""Tests for the benchmarks.comparison.curriculum module."""

from __future__ import annotations

import pytest

from benchmarks.comparison.curriculum import DATA, baseline_of, slt_named, slts_of
from clients.data.tasks import PAPER_SLTS
from clients.http.errors import InputError


@pytest.mark.parametrize("data", DATA)
def test_every_slt_has_a_baseline_of_the_same_classes_in_one_sub_task(data: str) -> None:
    by_name = {slt.name: slt for slt in slts_of(data)}
    assert list(by_name)[: len(PAPER_SLTS)] == list(PAPER_SLTS)
    for name, slt in by_name.items():
        baseline = by_name[baseline_of(name) or ""]
        assert baseline.n_boundaries == 0
        assert set(baseline.classes) == set(slt.classes)


def test_devanagari_gives_its_24_classes_one_at_a_time_and_ten_letters_in_pairs() -> None:
    one_by_one, letters = (
        slt_named("devanagari", name) for name in ("D24x1", "d2-2-2-2-2a-LETTERS")
    )
    assert one_by_one.sub_tasks == tuple((label,) for label in range(24))
    assert [len(classes) for classes in letters.sub_tasks] == [2] * 5
    assert letters.classes == tuple(range(10, 20))


def test_an_slt_of_one_data_set_is_none_of_another() -> None:
    with pytest.raises(InputError, match="no SLT called 'D24x1'"):
        slt_named("mnist", "D24x1")


def test_an_slt_may_be_written_out_and_then_has_no_baseline() -> None:
    slt = slt_named("mnist", "3,1/2")
    assert slt.sub_tasks == ((3, 1), (2,))
    assert baseline_of(slt.name) is None
