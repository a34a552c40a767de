"""Tests for core.memory.unknown_rates: as many unknown samples are of known classes as labels
say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.memory.unknown_rates import BLOCK, UnknownRates


def rates_of(
    share: float,
    labelled: float,
    unlabelled: float,
    *,
    n: int = 20_000,
    size: int = 100,
    seed: int = 0,
) -> UnknownRates:
    """After a stream of which a share has labels, by how often each kind is unknown."""
    generator = torch.Generator().manual_seed(seed)
    rates = UnknownRates()
    for part in torch.rand(n, 2, generator=generator).split(size):
        with_label = part[:, 0] < share
        unknown = part[:, 1] < torch.where(with_label, labelled, unlabelled)
        kinds = (with_label, with_label & unknown, ~with_label, ~with_label & unknown)
        rates = rates.updated(*(int(kind.sum()) for kind in kinds))
    return rates


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_where_both_kinds_are_as_often_unknown_all_are_of_known_classes(
    share: float, size: int
) -> None:
    assert rates_of(share, 0.05, 0.05, size=size).known_share > 0.75


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_new_class_without_labels_is_told_from_what_labels_explain(
    share: float, size: int
) -> None:
    assert 0.03 < rates_of(share, 0.01, 0.11, size=size).known_share < 0.2


def test_where_no_label_comes_or_all_come_nothing_is_said() -> None:
    assert UnknownRates().known_share == 0
    assert rates_of(0.0, 0.5, 0.1).known_share == 0
    assert rates_of(1.0, 0.1, 0.5).known_share == 0


def test_labels_of_long_before_say_nothing_of_what_comes_now() -> None:
    rates = rates_of(1.0, 0.0, 0.0, n=5000)  # all with a label, none unknown
    for _ in range(3):
        rates = rates.updated(20, 4, 80, 16)
    assert rates.known_share == 1


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.floats(0, 1), st.integers(0, 300), st.floats(0, 1)),
        max_size=20,
    )
)
def test_it_is_a_share_whatever_comes_and_a_block_is_bounded(
    batches: list[tuple[int, float, int, float]],
) -> None:
    rates = UnknownRates()
    for labelled, first, unlabelled, second in batches:
        rates = rates.updated(labelled, int(labelled * first), unlabelled, int(unlabelled * second))
        assert 0 <= rates.known_share <= 1
        assert rates.block[0] + rates.block[2] < BLOCK
