"""Tests for the core.experts.share module: whom to believe."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.experts.share import SHARE, shared
from tests.core.experts.made import cut, sizes


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_weights_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    said = torch.rand(4, 30, generator=generator, dtype=torch.float64) + 0.01
    start = torch.full((4,), 0.25, dtype=torch.float64)
    pieces = start
    for part in cut(30, parts):
        pieces = shared(pieces, said[:, part])
    assert torch.equal(pieces, shared(start, said))
    assert float(pieces.sum()) == pytest.approx(1)
    assert float(pieces.min()) >= SHARE / 4


def test_whoever_becomes_the_best_is_believed_soon() -> None:
    right, wrong = torch.full((1000,), 0.99), torch.full((1000,), 0.01)
    weights = shared(torch.tensor([0.5, 0.5]).double(), torch.stack([right, wrong]).double())
    assert float(weights[0]) > 0.98
    weights = shared(weights, torch.stack([wrong, right])[:, :5].double())
    assert float(weights[1]) > 0.98
