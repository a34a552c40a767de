"""Tests for core.learners.per_class.relabelling: what components are called, and by whom."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.owned import NO_CLASS
from core.learners.per_class.relabelling import (
    LATELY,
    MOST,
    RENAMED,
    coming,
    heard,
    lately,
    owners_by_name,
    renamed,
)

OWNER = torch.tensor([0, 1, NO_CLASS])
VOTES = torch.tensor([[300.0, 0.0], [0.0, 4.0], [2.0, 3.0]])
BOTH = torch.tensor([True, True])


def on(component: int, n: int) -> Tensor:
    """Responsibilities of n samples that all fall on one component."""
    return torch.nn.functional.one_hot(torch.full((n,), component), len(OWNER)).float()


def of(code: int, n: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.full((n,), code), 2).float()


# Heard ------------------------------------------------------------------------------------


def test_labels_that_go_on_contradicting_give_a_component_another_name() -> None:
    once = heard(VOTES, OWNER, on(0, 1), of(1, 1), BOTH)
    assert once[0].argmax() == 0
    often = heard(VOTES, OWNER, on(0, 40), of(1, 40), BOTH)
    assert often[0].argmax() == 1
    assert torch.equal(often[1:], VOTES[1:])
    back = heard(often, OWNER, on(0, 40), of(0, 40), BOTH)
    assert back[0].argmax() == 0


def test_a_stray_label_now_and_then_changes_no_name() -> None:
    votes = VOTES
    for _ in range(50):
        votes = heard(votes, OWNER, on(0, 4), torch.cat([of(0, 3), of(1, 1)]), BOTH)
        assert votes[0].argmax() == 0
    assert float(votes[0, 1] / votes[0].sum()) == pytest.approx(0.25, abs=0.02)


def test_no_more_is_remembered_than_the_last_votes() -> None:
    votes = heard(VOTES, OWNER, on(0, 500), of(0, 500), BOTH)
    assert float(votes[0].sum()) == pytest.approx(MOST, rel=1e-4)
    assert float(votes[1].sum()) == 4  # younger, and has not heard anything


def test_nothing_is_held_against_a_class_that_does_not_come_or_against_nobody() -> None:
    only_one = torch.tensor([False, True])
    shares = torch.full((100, 3), 1 / 3)
    votes = heard(VOTES, OWNER, shares, of(1, 100), only_one)
    assert torch.equal(votes[[0, 2]], VOTES[[0, 2]])
    assert not torch.equal(votes[1], VOTES[1])


@given(cuts=st.lists(st.integers(1, 59), max_size=5).map(sorted), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(60, 3, generator=generator).softmax(-1)
    codes = torch.randint(2, (60,), generator=generator)
    classes = torch.nn.functional.one_hot(codes, 2).float()
    whole, votes = heard(VOTES, OWNER, shares, classes, BOTH), VOTES
    for rows in torch.arange(60).tensor_split(cuts):
        if len(rows):
            votes = heard(votes, OWNER, shares[rows], classes[rows], BOTH)
    torch.testing.assert_close(votes, whole, rtol=1e-4, atol=1e-4)


def test_a_class_comes_while_it_sends_a_part_of_its_share() -> None:
    recent = torch.zeros(3)
    assert coming(recent).tolist() == [False] * 3
    for _ in range(30):
        recent = lately(recent, torch.tensor([0, 2] * 50))
    assert recent.tolist() == pytest.approx([LATELY / 2, 0, LATELY / 2], rel=0.01)
    assert coming(recent).tolist() == [True, False, True]
    for batch in range(30):
        recent = lately(recent, torch.tensor([0] * 100))
        assert coming(recent).tolist() == [True, False, batch < 5], batch


def test_samples_without_a_label_take_no_share() -> None:
    recent = torch.zeros(1)
    for _ in range(30):
        recent = lately(recent, torch.tensor([0] * 5 + [NO_CLASS] * 95))
    assert coming(recent).tolist() == [True]


def test_a_stream_in_small_batches_has_sent_as_much_lately() -> None:
    large = small = torch.zeros(1)
    for _ in range(10):
        large = lately(large, torch.tensor([0] * 30 + [NO_CLASS] * 70))
        for _ in range(10):
            small = lately(small, torch.tensor([0] * 3 + [NO_CLASS] * 7))
    assert float(small) == pytest.approx(float(large), rel=1e-5)


# Renamed ----------------------------------------------------------------------------------


def test_classes_that_changed_places_are_found_from_a_few_samples_of_each() -> None:
    votes = torch.tensor([[90.0, 0], [80, 0], [0, 70], [0, 60]])
    shares = torch.eye(4)[[0] * 20 + [2] * 20]
    codes = torch.tensor([1] * 20 + [0] * 20)
    now = renamed(votes, shares, codes, torch.tensor([True, True]))
    # Also those on which nothing has fallen since.
    assert now.argmax(-1).tolist() == [1, 1, 0, 0]
    assert now.sum(-1).tolist() == pytest.approx([RENAMED] * 4)


def test_what_is_called_as_before_keeps_its_name() -> None:
    votes = torch.tensor([[90.0, 0], [0, 70]])
    shares, codes = torch.eye(2)[[0] * 20], torch.tensor([0] * 20)
    now = renamed(votes, shares, codes, torch.tensor([True, True]))
    assert now.argmax(-1).tolist() == [0, 1]
    # The other has not been heard of: two samples of loyalty, and nothing else.
    assert now[1].tolist() == [0, RENAMED]


def test_a_class_that_the_sub_task_did_not_show_is_left_alone() -> None:
    votes = torch.tensor([[90.0, 0], [0, 70]])
    shares, codes = torch.eye(2)[[0] * 20], torch.tensor([1] * 20)
    now = renamed(votes, shares, codes, torch.tensor([False, True]))
    assert torch.equal(now[0], votes[0])


def test_components_without_votes_get_none() -> None:
    votes = torch.tensor([[0.0, 0], [0, 70]])
    shares, codes = torch.eye(2)[[1] * 20], torch.tensor([0] * 20)
    now = renamed(votes, shares, codes, torch.tensor([True, True]))
    assert now[0].tolist() == [0, 0]
    assert int(now[1].argmax()) == 0


def test_components_belong_to_the_class_by_which_they_are_called() -> None:
    votes = torch.tensor([[1.0, 9, 0], [5, 0, 0], [0, 0, 3], [0, 3, 0]])
    owner = torch.tensor([0, 0, 1, NO_CLASS])
    none, last = torch.tensor([], dtype=torch.int64), torch.tensor([2])
    assert owners_by_name(votes, owner, none).tolist() == [1, 0, 2, NO_CLASS]
    # A pooled class has no components of its own.
    assert owners_by_name(votes, owner, last).tolist() == [1, 0, NO_CLASS, NO_CLASS]
    assert owners_by_name(votes[:, :0], owner, none).tolist() == owner.tolist()
