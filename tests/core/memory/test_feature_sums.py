"""Tests for core.memory.feature_sums: the loop says what plain operations say."""

from __future__ import annotations

import pytest
import torch

from core.memory.feature_sums import COLUMNS, absolute_sums, centred_sums, totals


@pytest.mark.parametrize("n", [0, 1, 7, 300])
@pytest.mark.parametrize("d", [1, COLUMNS, COLUMNS + 1, 784])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_loop_says_what_plain_operations_say(n: int, d: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(n * d)
    x = scale * torch.randn(n, d, generator=generator)
    origin = scale * torch.randn(d, generator=generator, dtype=torch.float64)
    away = x.double() - origin
    found = (totals(x), *centred_sums(x, origin), *absolute_sums(x, origin))
    powers = away.abs().sum(0), away.square().sum(0), away.pow(4).sum(0)
    wanted = (x.double().sum(0), away.sum(0), powers[1], *powers)
    for one, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, want, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 100, 511])
def test_on_a_device_the_same_bits_come_of_plain_operations(n: int) -> None:
    """Numbers of another type are added up as on a device."""
    x = torch.randn(70, n, generator=torch.Generator().manual_seed(n)).T
    origin = torch.randn(70, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(totals(x), totals(x.double()))
    for sums in (centred_sums, absolute_sums):
        assert torch.equal(sums(x, origin), sums(x.double(), origin))


def test_digits_that_a_large_offset_leaves_are_kept() -> None:
    x = torch.tensor([[1e6 - 0.5], [1e6 + 0.5]])
    origin = torch.tensor([1e6]).double()
    assert centred_sums(x, origin)[1].tolist() == [0.5]
    assert absolute_sums(x, origin)[1].tolist() == [0.5]
