"""Tests for the core.density.grouping module."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.density.grouping import Grouping

pytestmark = pytest.mark.usefixtures("both_ways")


@given(
    which=st.lists(st.integers(0, 4), max_size=30),
    shape=st.sampled_from([(), (1,), (3,), (2, 2)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_rows_are_added_to_their_groups(
    which: list[int], shape: tuple[int, ...], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(5, *shape, generator=generator)
    rows = torch.randn(len(which), *shape, generator=generator)
    expected = base.clone()
    for group, row in zip(which, rows, strict=True):
        expected[group] += row
    before = base.clone()
    grouping = Grouping(torch.tensor(which, dtype=torch.int64), 5)
    torch.testing.assert_close(grouping.added(base, rows), expected)
    torch.testing.assert_close(base + grouping.summed(rows), expected)
    assert torch.equal(base, before)


def test_a_row_below_the_first_group_is_a_member_of_none() -> None:
    assert Grouping(torch.tensor([1, -1, 0]), 2).members.tolist() == [[0, 1], [0, 0], [1, 0]]
