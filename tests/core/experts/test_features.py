"""Tests for the core.experts.features module."""

from __future__ import annotations

import pytest
import torch

from core.experts.features import joint


@pytest.mark.parametrize("d", [1, 2, 7, 60])
def test_cosines_are_the_same_each_time_and_stay_bounded(d: int) -> None:
    afresh = joint.__wrapped__  # without the cache
    cosines = afresh(d)
    assert torch.equal(afresh(d).directions, cosines.directions)
    x = 1e3 * torch.randn(50, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = cosines.of(x)
    assert features.shape == (50, cosines.size)
    assert float(features.abs().max()) <= 6
    assert (features[:, -1] == 1).all()
