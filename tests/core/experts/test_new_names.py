"""Tests for the core.experts.new_names module."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.experts.new_names import NO_OTHER, PER_CLASS, NewNames
from tests.core.experts.made import cut, sizes
from tests.core.states import assert_identical

OLD, OTHER, NEW = 0, 1, 2
C = 3


def stream(n: int, seed: int, label: int, taken: float) -> tuple[Tensor, Tensor]:
    """For which class samples of two are taken, and which labels they have.

    Arguments:
        n: Of both together.
        label: Of one; the other is `OTHER`, and taken for what it is.
        taken: Share of the one's that is taken for `OLD`; the rest are taken for what they are.
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(n, generator=generator) < 0.5
    mistaken = torch.rand(n, generator=generator) < taken
    codes = torch.where(first, label, OTHER)
    return torch.where(first & mistaken, OLD, codes), codes


def renamed(names: NewNames) -> list[int]:
    """Classes that go by another name, ascending."""
    return sorted({old for old in names.replaces.tolist() if old != NO_OTHER})


def after(*parts: tuple[Tensor, Tensor]) -> NewNames:
    """What is counted of one stream after the other."""
    names = NewNames.start(C)
    for called, codes in parts:
        names = names.counted(called, codes)
    return names


BEFORE = stream(400, 0, OLD, 1.0)
RENAMED = stream(400, 1, NEW, 1.0)


def test_a_class_whose_samples_come_by_another_label_goes_by_another_name() -> None:
    assert renamed(after(BEFORE)) == []
    assert after(BEFORE, RENAMED).replaces.tolist() == [NO_OTHER, NO_OTHER, OLD]


def test_it_takes_about_as_many_samples_as_say_that_the_old_label_stays_away() -> None:
    called, codes = RENAMED
    names, heard = after(BEFORE), 0
    for i in range(len(codes)):
        names = names.counted(called[i : i + 1], codes[i : i + 1])
        heard += int(codes[i] == NEW)
        if renamed(names):
            break
    # came of the old name falls to a third of came of the new one: 1 - x = 3 x.
    assert PER_CLASS < heard < 2 * PER_CLASS


@pytest.mark.parametrize("taken", [0.0, 0.2, 0.35])
def test_a_class_that_stays_away_and_overlaps_others_keeps_its_name(taken: float) -> None:
    assert renamed(after(BEFORE, stream(4000, 1, NEW, taken))) == []


@pytest.mark.parametrize("taken", [0.3, 0.45, 0.6])
def test_a_new_class_that_looks_like_one_that_stays_away_is_a_class_of_its_own(
    taken: float,
) -> None:
    """Until others know it, they take all of it for what they know."""
    known = after(stream(4000, 0, OLD, 1.0))
    unheard, heard = stream(60, 1, NEW, 1.0), stream(800, 2, NEW, taken)
    names = known.counted(*unheard).counted(*heard)
    assert renamed(names) == []


def test_a_class_that_is_often_mistaken_may_go_by_another_name_all_the_same() -> None:
    """Of its own samples as few were taken for it."""
    called, codes = stream(4000, 0, OLD, 1.0)
    mistaken = (codes == OLD) & (torch.arange(4000) % 4 == 0)
    before = torch.where(mistaken, OTHER, called), codes
    called, codes = stream(400, 1, NEW, 1.0)
    mistaken = (codes == NEW) & (torch.arange(400) % 4 == 0)
    assert renamed(after(before, (torch.where(mistaken, OTHER, called), codes))) == [OLD]


def test_what_an_earlier_release_has_counted_is_gone_on_with() -> None:
    names = after(BEFORE, RENAMED)
    none = torch.zeros(0, dtype=torch.float64)
    old = replace(names, heard=none, tried=none, own=none)
    assert renamed(old.counted(*stream(600, 2, NEW, 0.3))) == [OLD]
    assert renamed(old.counted(*stream(600, 2, NEW, 0.0))) == []
    assert old.of_classes(torch.tensor([OLD, NEW])).heard.shape == (2,)


def test_a_class_keeps_its_name_while_its_own_label_comes() -> None:
    called, codes = stream(2000, 1, NEW, 1.0)
    codes = torch.where((codes == NEW) & (torch.arange(2000) % 5 < 2), OLD, codes)
    assert renamed(after(BEFORE, (called, codes))) == []


@pytest.mark.parametrize(("taken", "still"), [(0.3, True), (0.0, False)])
def test_a_new_name_is_one_until_hardly_any_of_its_samples_are_mistaken(
    taken: float, still: bool
) -> None:
    names = after(BEFORE, RENAMED, stream(600, 2, NEW, taken))
    assert (renamed(names) == [OLD]) is still


def test_a_label_that_comes_again_is_the_name_of_its_class_again() -> None:
    assert renamed(after(BEFORE, RENAMED, stream(200, 2, OLD, 1.0))) == []


def test_two_new_names_of_one_class_are_seen_as_well_as_one() -> None:
    called, codes = stream(1200, 1, NEW, 1.0)
    odd = (codes == NEW) & (torch.arange(1200) % 2 == 1)
    names = NewNames.start(C + 1).counted(*BEFORE)
    names = names.counted(called, torch.where(odd, C, codes))
    assert names.replaces.tolist() == [NO_OTHER, NO_OTHER, OLD, OLD]


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(0, 99), st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_it_does_not_matter_how_a_stream_is_cut(parts: list[int], seed: int, taken: float) -> None:
    called, codes = stream(200, seed, NEW, taken)
    whole, pieces = after((called, codes)), NewNames.start(C)
    for part in cut(200, parts):
        pieces = pieces.counted(called[part], codes[part])
    assert_identical(pieces, whole)


@given(st.permutations(range(C)), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_classes_in_another_order_are_the_same_classes(order: list[int], seed: int) -> None:
    columns, place = torch.tensor(order), torch.tensor(order).argsort()
    more = stream(300, seed, NEW, 1.0)
    names = after(BEFORE, RENAMED).of_classes(columns)
    moved = names.counted(place[more[0]], place[more[1]])
    assert_identical(moved, after(BEFORE, RENAMED, more).of_classes(columns))
    assert renamed(names) == [int(place[OLD])]


def test_of_a_class_that_is_left_out_nothing_is_kept() -> None:
    names = after(BEFORE, RENAMED).of_classes(torch.tensor([OTHER, NEW]))
    assert names.taken_for.tolist() == [NO_OTHER, NO_OTHER]
    assert renamed(names) == []
    assert not names.share.any()


def test_room_for_more_classes_changes_nothing() -> None:
    names = after(BEFORE, RENAMED)
    assert names.grown(C) is names
    grown = names.grown(C + 2)
    assert renamed(grown) == [OLD]
    assert grown.taken_for.tolist() == [*names.taken_for.tolist(), NO_OTHER, NO_OTHER]


def test_a_boundary_keeps_new_names_and_no_share_of_what_was_yet_to_be_learned() -> None:
    names = after(BEFORE, RENAMED).in_new_sub_task()
    assert renamed(names) == [OLD]
    called, codes = stream(40, 1, NEW, 1.0)
    some = after(BEFORE, (called, codes))
    assert some.share[NEW] > 0
    assert renamed(some) == []
    begun = some.in_new_sub_task()
    assert begun.share[NEW] == 0
    assert begun.taken_for[NEW] == NO_OTHER
    assert torch.equal(begun.came, some.came)


def test_a_later_name_is_remembered_until_the_old_one_comes_again() -> None:
    learned = stream(400, 2, NEW, 0.0)
    names = after(BEFORE, RENAMED, learned)
    assert renamed(names) == []
    assert names.later.tolist() == [NEW, NO_OTHER, NO_OTHER]
    assert names.right(4).nonzero().tolist() == [[0, 0], [0, NEW], [1, 1], [2, 2], [3, 3]]
    moved = names.of_classes(torch.tensor([NEW, -1, OLD]))
    assert moved.later.tolist() == [NO_OTHER, NO_OTHER, 0]
    assert names.of_classes(torch.tensor([OLD, OTHER])).later.tolist() == [NO_OTHER] * 2
    again = after(BEFORE, RENAMED, learned, stream(400, 3, OLD, 1.0))
    assert again.later.tolist() == [NO_OTHER] * 3
