"""Which votes name components that unlabelled samples brought."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.density.owned import NO_CLASS
from core.learners.per_class.relabelling import (
    LEAST_EXPECTED,
    faded,
    nameless,
    naming,
    updated_baseline,
)


def one_component(votes: list[float], expected_votes: list[float], owner: int = NO_CLASS) -> bool:
    """Whether the votes that fell on a component name it."""
    cast, vote_baseline = torch.tensor([votes]), torch.tensor([[100.0, *expected_votes]])
    named = naming(torch.tensor([owner]), cast, vote_baseline)
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
    vote_baseline = torch.full((3, 3), 30.0)
    assert nameless(owner, naming(owner, votes, vote_baseline)).tolist() == [0]


# A ratio of smooth sums: what differs is whether batches are of one sample or of many.
@settings(max_examples=25, deadline=None)
@given(
    share=st.floats(0.05, 0.9),
    component=st.floats(0.05, 1.0),
    size=st.sampled_from([1, 2, 3, 7, 20, 60, 200]),
    seed=st.integers(0, 99),
)
def test_where_samples_of_one_kind_fall_as_often_with_a_label_as_many_votes_are_expected(
    share: float, component: float, size: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    unlabelled, votes, vote_baseline = 0.0, 0.0, torch.zeros(1, 3)
    for codes in torch.randint(2, (3000 + 25 * size,), generator=generator).split(size):
        labelled = torch.rand(len(codes), generator=generator) < share
        silent, falls = float((~labelled).sum()), component * float((~labelled).sum())
        unlabelled = faded(unlabelled, silent, len(codes))
        said = torch.bincount(codes[labelled], minlength=2)
        vote_baseline = updated_baseline(
            vote_baseline, torch.tensor([falls]), said, len(codes), unlabelled
        )
        votes += component * float(labelled.sum())
    assert 0.7 < float(vote_baseline[0, 1:].sum()) / votes < 1.01


def test_where_no_label_comes_nothing_is_expected() -> None:
    vote_baseline = torch.zeros(1, 3)
    for _ in range(20):
        vote_baseline = updated_baseline(
            vote_baseline, torch.tensor([100.0]), torch.zeros(2), 100, faded(300.0, 100.0, 100)
        )
    assert vote_baseline[0, 1:].tolist() == [0, 0]
    assert vote_baseline[0, 0] > 300


def test_what_fell_long_ago_is_compared_with_nothing() -> None:
    vote_baseline, said = torch.tensor([[200.0, 0.0, 0.0]]), torch.tensor([50.0, 50.0])
    unlabelled = 200.0
    for _ in range(100):
        unlabelled = faded(unlabelled, 0.0, 100)
        vote_baseline = updated_baseline(vote_baseline, torch.zeros(1), said, 100, unlabelled)
    assert float(vote_baseline[0, 0]) < 1e-3
    later = updated_baseline(vote_baseline, torch.zeros(1), said, 100, unlabelled)
    assert float(later[0, 1:].sum() - vote_baseline[0, 1:].sum()) < 1e-3
