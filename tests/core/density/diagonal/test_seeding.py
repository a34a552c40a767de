"""Tests for the core.density.diagonal.seeding module."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.diagonal.seeding import (
    FEWEST_COPIES,
    FEWEST_SAMPLES,
    k_means_plus_plus,
    next_to_samples,
    seed_components,
)
from core.density.mixture import Moments

pytestmark = pytest.mark.usefixtures("both_ways")

FLOOR = 0.05


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def means(sums: Moments) -> Tensor:
    return sums.first / sums.mass[:, None]


def nearest(sums: Moments, x: Tensor) -> float:
    """Smallest over all components and samples of the largest difference in any feature."""
    return (means(sums)[:, None] - x).abs().amax(-1).min().item()


def clusters(sizes: list[int], d: int = 12, seed: int = 0, spread: float = 0.05) -> Tensor:
    """Clusters at random places in the unit cube, one after the other."""
    generator = seeded(seed)
    parts = [
        torch.rand(d, generator=generator) + spread * torch.randn(n, d, generator=generator)
        for n in sizes
    ]
    return torch.cat(parts)


# k-means++ --------------------------------------------------------------------------------


def test_one_start_falls_into_each_of_some_distant_clusters() -> None:
    x = clusters([100, 100, 100, 100], spread=0.01)
    for seed in range(20):
        picks = k_means_plus_plus(x, 4, seeded(seed))
        assert sorted((picks // 100).tolist()) == [0, 1, 2, 3]


def test_as_many_starts_as_samples_are_all_of_them() -> None:
    x = clusters([10])
    assert sorted(k_means_plus_plus(x, 10, seeded()).tolist()) == list(range(10))


def test_starts_are_found_where_all_samples_are_the_same() -> None:
    assert len(k_means_plus_plus(torch.ones(8, 3), 4, seeded())) == 4


# Components -------------------------------------------------------------------------------


def test_distant_clusters_are_found_with_their_sizes_means_and_variances() -> None:
    x = clusters([50, 100, 200], spread=0.02)
    sums = seed_components(x, 3, FLOOR, seeded())
    order = sums.mass.argsort()
    assert sums.mass[order].tolist() == pytest.approx([50, 100, 200], abs=1e-3)
    parts = x.split([50, 100, 200])
    expected = torch.stack([part.mean(0) for part in parts])
    torch.testing.assert_close(means(sums)[order], expected, atol=1e-4, rtol=0)
    variances = (sums.second / sums.mass[:, None] - means(sums).square())[order]
    expected = torch.stack([part.var(0, correction=0) for part in parts])
    torch.testing.assert_close(variances, expected, atol=1e-4, rtol=0)


@given(
    n=st.integers(1, 80),
    k=st.integers(1, 12),
    d=st.sampled_from([1, 2, 30]),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["spread", "copies", "same", "grid", "outlier"]),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_masses_add_up_to_the_samples_and_nothing_is_infinite(
    n: int, k: int, d: int, seed: int, kind: str
) -> None:
    generator = seeded(seed)
    x = {
        "spread": torch.randn(n, d, generator=generator),
        "copies": torch.randn(max(1, n // 4), d, generator=generator).repeat(8, 1)[
            torch.randperm(8 * max(1, n // 4), generator=generator)
        ][:n],
        "same": torch.full((n, d), 0.7),
        "grid": torch.randint(0, 2, (n, d), generator=generator).float(),
        "outlier": torch.cat(
            [torch.randn(n - 1, d, generator=generator), torch.full((1, d), 1000.0)]
        ),
    }[kind]
    sums = seed_components(x, k, FLOOR, generator)
    assert 1 <= len(sums.mass) <= min(k, n)
    assert float(sums.mass.sum()) == pytest.approx(n, rel=1e-5)
    for part in sums:
        assert part.isfinite().all()
    assert (sums.mass > 0).all()
    spread = sums.second / sums.mass[:, None] - means(sums).square()
    assert (spread >= -1e-4 * x.square().max().clamp_min(1)).all()


def test_the_same_generator_gives_the_same_components_bit_for_bit() -> None:
    x = clusters([30, 30, 30, 9])
    one, again = (seed_components(x, 6, FLOOR, seeded(4)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))


# Nothing is stored ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_no_component_is_a_sample_even_where_samples_stand_alone(seed: int) -> None:
    # Fifteen samples far from everything, each of which would be a component of its own.
    x = torch.cat([clusters([200], seed=seed), 3 * clusters([1] * 15, seed=seed + 50)])
    sums = seed_components(x, 20, FLOOR, seeded(seed))
    assert nearest(sums, x) > 0.02
    assert float(sums.mass.min()) >= FEWEST_SAMPLES


@pytest.mark.parametrize("copies", [2, 3, 5, int(FEWEST_COPIES) - 1])
def test_no_component_is_a_sample_that_was_sent_several_times(copies: int) -> None:
    odd = torch.full((1, 12), 2.0)
    x = torch.cat([clusters([60]), odd.repeat(copies, 1)])
    assert nearest(seed_components(x, 8, FLOOR, seeded()), odd) > 0.02


def test_what_many_samples_have_in_common_may_be_a_component() -> None:
    common = torch.full((1, 12), 2.0)
    x = torch.cat([clusters([60]), common.repeat(3 * int(FEWEST_COPIES), 1)])
    assert nearest(seed_components(x, 8, FLOOR, seeded()), common) < 1e-3


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_handful_of_samples_make_one_component_that_is_their_mean(n: int, k: int) -> None:
    x = clusters([1] * n, seed=n)
    sums = seed_components(x, k, FLOOR, seeded())
    assert len(sums.mass) == 1
    torch.testing.assert_close(means(sums)[0], x.mean(0))
    assert nearest(sums, x) > 0.02


def test_a_single_sample_is_the_one_component_and_left_to_the_caller() -> None:
    x = clusters([1])
    torch.testing.assert_close(means(seed_components(x, 3, FLOOR, seeded())), x)


def test_samples_that_are_all_the_same_make_one_component() -> None:
    sums = seed_components(torch.full((9, 4), 0.3), 5, FLOOR, seeded())
    assert sums.mass.tolist() == pytest.approx([9])
    torch.testing.assert_close(means(sums), torch.full((1, 4), 0.3))


def test_who_is_next_to_a_sample_is_told_by_mass_and_by_spread() -> None:
    mass = torch.tensor([2.9, 3.1, 9.0, 9.0, 11.0])
    mean, variance = torch.tensor([[0.5]]), torch.tensor([0.1, 0.1, 0.0, 0.1, 0.0])[:, None]
    sums = Moments(mass, mass[:, None] * mean, mass[:, None] * (mean.square() + variance))
    assert next_to_samples(sums).tolist() == [True, False, True, False, False]


def test_a_component_that_nobody_chose_is_next_to_a_sample() -> None:
    assert next_to_samples(Moments(torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 2))).all()
