"""Tests for the core.density.reach module: the distance to a share of a mixture."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density import blocks
from core.density.reach import AVERAGED, FARTHEST, SHARES, reaches


def by_steps(log_densities: list[float], masses: list[float]) -> list[float]:
    """One component after the other, the likeliest first."""
    ordered = sorted(zip(log_densities, masses, strict=True), reverse=True)
    found = []
    for share, averaged in zip(SHARES, AVERAGED, strict=True):
        left, total, last = share, 0.0, 0.0
        for density, mass in ordered:
            taken = min(left, mass)
            total, last, left = total + taken * density, density, left - taken
            if left <= 1e-9:
                break
        found.append(total / share if averaged else last)
    return found


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 60), st.integers(0, 10_000), st.floats(0.05, 8))
def test_components_are_added_up_until_the_share_is_reached(
    k: int, seed: int, unevenness: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logs = unevenness * torch.randn(k, generator=generator, dtype=torch.float64)
    masses = logs.softmax(0)
    densities = 50 * torch.randn(7, k, generator=generator, dtype=torch.float64)
    found = reaches(densities, masses)
    expected = [by_steps(row, masses.tolist()) for row in densities.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 60), st.integers(0, 10_000), st.floats(0.05, 8), st.booleans())
def test_loops_on_a_cpu_say_what_a_device_says(
    k: int, seed: int, unevenness: float, equal: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    masses = (unevenness * torch.randn(k, generator=generator)).softmax(0)
    densities = 50 * torch.randn(7, k, generator=generator)
    if equal:  # as far as far can be, or nowhere
        densities[::2] = densities.sign()[::2] * torch.tensor([1e38])
        densities[1] = -torch.inf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ALL_AT_ONCE", True)
        expected = reaches(densities.clamp(-FARTHEST, FARTHEST), masses)
    torch.testing.assert_close(reaches(densities, masses), expected, rtol=1e-4, atol=1e-3)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 40), st.integers(0, 10_000))
def test_components_in_another_order_and_split_say_the_same(k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    masses = torch.rand(k, generator=generator, dtype=torch.float64) + 0.01
    masses /= masses.sum()
    densities = 20 * torch.randn(5, k, generator=generator, dtype=torch.float64)
    order = torch.randperm(k, generator=generator)
    plain = reaches(densities, masses)
    torch.testing.assert_close(reaches(densities[:, order], masses[order]), plain)
    halves = torch.cat([masses, masses]) / 2
    torch.testing.assert_close(reaches(torch.cat([densities, densities], 1), halves), plain)


@pytest.mark.parametrize("value", [-3.0, 0.0, 1e30])
def test_a_mixture_of_equals_is_one_component(value: float) -> None:
    found = reaches(torch.full((2, 9), value), torch.full((9,), 1 / 9))
    torch.testing.assert_close(found, torch.full((2, 3), value))


def test_a_small_group_alone_is_far_from_any_share_that_is_larger() -> None:
    """A sample in a component of 2 % is as likely as one in a component of 49 %."""
    masses: Tensor = torch.tensor([0.02, 0.49, 0.49])
    small, large = reaches(torch.tensor([[0.0, -90.0, -90.0], [-90.0, 0.0, -90.0]]), masses)
    assert large.tolist() == [0.0, 0.0, 0.0]
    assert small.tolist() == pytest.approx([-90, -72, -90], rel=1e-5)
