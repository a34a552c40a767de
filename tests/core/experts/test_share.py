"""Tests for the core.experts.share module: whom to believe."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.experts.share import MIX_SHARE, RATE, SHARE, mixed, shared
from tests.core.experts.made import cut, sizes


@pytest.mark.parametrize(("weigh", "share"), [(shared, SHARE), (mixed, MIX_SHARE)])
@given(parts=st.lists(sizes, min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_weights_do_not_depend_on_how_a_stream_is_cut(
    weigh: Callable[[Tensor, Tensor], Tensor], share: float, parts: list[int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    said = torch.rand(4, 30, generator=generator, dtype=torch.float64) + 0.01
    start = torch.full((4,), 0.25, dtype=torch.float64)
    pieces = start
    for part in cut(30, parts):
        pieces = weigh(pieces, said[:, part])
    assert torch.equal(pieces, weigh(start, said))
    assert float(pieces.sum()) == pytest.approx(1)
    assert float(pieces.min()) >= share / 4


def test_whoever_becomes_the_best_is_believed_soon() -> None:
    right, wrong = torch.full((1000,), 0.99), torch.full((1000,), 0.01)
    weights = shared(torch.tensor([0.5, 0.5]).double(), torch.stack([right, wrong]).double())
    assert float(weights[0]) > 0.98
    weights = shared(weights, torch.stack([wrong, right])[:, :5].double())
    assert float(weights[1]) > 0.98


def test_who_errs_on_different_samples_is_mixed_and_so_better_than_whoever_is_best_just_now() -> (
    None
):
    """Each of three is sure, right on two samples of three, and wrong on the third."""
    said = torch.full((3, 3000), 0.9, dtype=torch.float64)
    said[torch.arange(3000) % 3, torch.arange(3000)] = 0.1
    start = torch.full((3,), 1 / 3, dtype=torch.float64)

    def foretold(weigh: Callable[[Tensor, Tensor], Tensor]) -> float:
        """Mean log-likelihood of labels before they are known."""
        weights, total = start, 0.0
        for i in range(3000):
            total += float(torch.log(weights @ said[:, i]))
            weights = weigh(weights, said[:, i : i + 1])
        return total / 3000

    best_mix = float(torch.log(start @ said).mean())
    assert foretold(mixed) == pytest.approx(best_mix, abs=0.05)
    assert foretold(shared) < best_mix - 0.3


def test_one_sample_moves_a_mix_a_part_of_the_way_that_bayes_goes() -> None:
    start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    said = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
    bayes = start * said[:, 0] / (start @ said[:, 0])

    found = mixed(start, said)

    expected = (1 - MIX_SHARE) * ((1 - RATE) * start + RATE * bayes) + MIX_SHARE / 3
    torch.testing.assert_close(found, expected)
