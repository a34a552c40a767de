"""Which votes name components that unlabelled samples brought."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from core.density.owned import NO_CLASS
from core.learners.per_class.relabelling import (
    LATELY,
    LEAST_EXPECTED,
    expected,
    lately,
    nameless,
    naming,
)


def one_component(votes: list[float], expected_votes: list[float], owner: int = NO_CLASS) -> bool:
    """Whether the votes that fell on a component name it."""
    cast, awaited = torch.tensor([votes]), torch.tensor([expected_votes])
    named = naming(torch.tensor([owner]), cast, awaited)
    assert torch.equal(named, cast) or not bool(named.any())
    return bool(named.any())


def test_strays_of_every_class_name_nothing() -> None:
    assert not one_component([2.0, 1.5, 0.3], [30.0, 30.0, 30.0])


def test_a_class_whose_labels_fall_there_as_often_names_it() -> None:
    assert one_component([0.4, 28.0, 0.3], [30.0, 30.0, 30.0])


def test_a_class_that_few_labels_name_is_asked_for_as_few() -> None:
    assert one_component([2.0, 1.5, 1.0], [30.0, 30.0, 0.4])


def test_few_votes_name_where_few_are_expected() -> None:
    assert one_component([0.01, 0.0], [LEAST_EXPECTED / 3, LEAST_EXPECTED / 3])
    assert one_component([0.01, 0.0], [0.0, 0.0])


def test_what_a_class_owns_is_its_own() -> None:
    assert one_component([0.1, 0.0], [30.0, 30.0], owner=0)


def test_only_components_that_nothing_names_are_nameless() -> None:
    owner = torch.tensor([NO_CLASS, NO_CLASS, 0])
    votes = torch.tensor([[1.0, 0.5], [30.0, 0.0], [0.0, 0.0]])
    awaited = torch.full((3, 2), 30.0)
    assert nameless(owner, naming(owner, votes, awaited)).tolist() == [0]


@given(share=st.floats(0.05, 0.95), component=st.floats(0.02, 1.0), n=st.integers(200, 2000))
def test_samples_of_one_kind_bring_as_many_votes_as_are_expected(
    share: float, component: float, n: int
) -> None:
    """Labels or none, one in so many falls on a component: votes are what was expected, nearly."""
    generator = torch.Generator().manual_seed(n)
    recent, votes, awaited = torch.zeros(2), 0.0, torch.zeros(1, 2)
    for _ in range(20):
        labelled = torch.rand(n, generator=generator) < share
        codes = torch.where(labelled, torch.randint(2, (n,), generator=generator), -1)
        recent = lately(recent, codes)
        falls = torch.full((n, 1), component)
        votes += float(falls[labelled].sum())
        awaited = awaited + expected(falls[~labelled], recent)
    assert 0.7 < float(awaited.sum()) / votes < 1.3


def test_nothing_is_expected_where_no_label_comes() -> None:
    recent = lately(torch.tensor([200.0, 100.0]), torch.full((int(20 * LATELY),), -1))
    assert float(expected(torch.ones(50, 1), recent).sum()) < 0.01
