"""Tests for core.density.deep.folding: patches of a map, and a map of patches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.density.deep.folding import Folding

pytestmark = pytest.mark.usefixtures("both_ways")

relaxed = settings(deadline=None, max_examples=60)


@st.composite
def foldings(draw: st.DrawFn) -> Folding:
    height, width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    return Folding(
        height,
        width,
        draw(st.integers(1, 3)),
        draw(st.integers(1, height)),
        draw(st.integers(1, width)),
        draw(st.integers(1, 3)),
    )


def maps(folding: Folding, n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, folding.map_size, generator=generator, dtype=torch.float64)


@relaxed
@given(folding=foldings(), n=st.integers(0, 3), seed=st.integers(0, 99))
def test_patches_are_what_torch_unfolds(folding: Folding, n: int, seed: int) -> None:
    x = maps(folding, n, seed)
    grid = x.reshape(n, folding.height, folding.width, folding.channels)
    unfolded = grid.unfold(1, folding.filter_height, folding.stride)
    unfolded = unfolded.unfold(2, folding.filter_width, folding.stride)  # (n, H', W', C, f, f)
    assert unfolded.shape[1:3] == (folding.rows, folding.columns)
    expected = unfolded.permute(0, 1, 2, 4, 5, 3).reshape(-1, folding.patch_size)
    assert torch.equal(folding.patches(x), expected)


@relaxed
@given(folding=foldings(), seed=st.integers(0, 99))
def test_gathering_is_the_transpose_of_cutting(folding: Folding, seed: int) -> None:
    x = maps(folding, 2, seed)
    patches = folding.patches(maps(folding, 2, seed + 100))
    there = (folding.patches(x) * patches).sum()
    back = (x * folding.gather(patches)).sum()
    torch.testing.assert_close(there, back)


@relaxed
@given(folding=foldings(), seed=st.integers(0, 99))
def test_patches_of_a_map_assemble_to_that_map_and_to_zero_where_none_lies(
    folding: Folding, seed: int
) -> None:
    x = maps(folding, 2, seed)
    back = folding.assemble(folding.patches(x))
    reached = folding.gather(torch.ones_like(folding.patches(x)))[0] > 0
    torch.testing.assert_close(back[:, reached], x[:, reached])
    assert bool((back[:, ~reached] == 0).all())


def test_a_stride_that_does_not_fit_leaves_the_last_pixels_out() -> None:
    folding = Folding(4, 4, 1, 1, 1, 2)
    assembled = folding.assemble(torch.ones(folding.positions, 1))
    assert assembled.reshape(4, 4).nonzero().tolist() == [[0, 0], [0, 2], [2, 0], [2, 2]]


def test_overlapping_patches_that_disagree_are_averaged() -> None:
    folding = Folding(1, 3, 1, 1, 2, 1)
    assembled = folding.assemble(torch.tensor([[1.0, 2.0], [4.0, 8.0]]))
    assert assembled.tolist() == [[1.0, 3.0, 8.0]]
