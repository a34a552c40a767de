"""Tests for the core.density.factors.seeding module."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.factor_mixture import FactorMixture, log_likelihood
from core.density.factors.seeding import (
    FEWEST_COPIES,
    FEWEST_SAMPLES,
    INITIAL_LOADING,
    PRIOR_SAMPLES,
    are_copies,
    principal,
    seed_analysers,
)
from core.density.mixture import Moments

pytestmark = pytest.mark.usefixtures("both_ways")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clusters(sizes: list[int], d: int = 12, seed: int = 0, spread: float = 0.05) -> Tensor:
    """Clusters at random places in the unit cube, one after the other."""
    generator = seeded(seed)
    parts = [
        torch.rand(d, generator=generator) + spread * torch.randn(n, d, generator=generator)
        for n in sizes
    ]
    return torch.cat(parts)


def nearest(means: Tensor, x: Tensor) -> float:
    """Smallest over all components and samples of the largest difference in any feature."""
    return (means[:, None] - x).abs().amax(-1).min().item()


def variances(loadings: Tensor, noise: Tensor) -> Tensor:
    """Of each feature, with shape (K, D)."""
    return noise + loadings.square().sum(-1)


# What is found ----------------------------------------------------------------------------


def test_distant_clusters_are_found_with_their_sizes_and_means() -> None:
    x = clusters([50, 100, 200], spread=0.02)
    mass, (means, _, _) = seed_analysers(x, 3, 2, seeded())
    order = mass.argsort()
    assert mass[order].tolist() == [50, 100, 200]
    expected = torch.stack([part.mean(0) for part in x.split([50, 100, 200])])
    torch.testing.assert_close(means[order], expected)


@pytest.mark.parametrize(("n", "d"), [(2000, 10), (300, 400)], ids=["many samples", "few"])
def test_the_directions_of_a_cluster_become_its_factors(n: int, d: int) -> None:
    generator = seeded(1)
    truth = torch.randn(d, 2, generator=generator)
    x = torch.randn(n, 2, generator=generator) @ truth.T + 5
    x = x + 0.1 * torch.randn(n, d, generator=generator)
    mass, (means, loadings, noise) = seed_analysers(x, 1, 2, generator)
    assert mass.tolist() == [n]
    torch.testing.assert_close(means[0], x.mean(0))
    # The same plane: what the true directions leave unexplained is next to nothing.
    basis, _ = torch.linalg.qr(loadings[0])
    left = truth - basis @ (basis.T @ truth)
    assert float(left.norm()) < 0.05 * float(truth.norm())
    expected = x.var(0, correction=0)
    # Half of what varies is believed to be noise, by `PRIOR_SAMPLES` samples.
    believed = (PRIOR_SAMPLES / 2) / (n + PRIOR_SAMPLES)
    assert float((variances(loadings, noise)[0] / expected - 1).abs().max()) < 0.01 + 2 * believed


def test_more_factors_than_the_samples_show_are_small_but_not_zero() -> None:
    x = clusters([4], d=9)
    _, (_, loadings, _) = seed_analysers(x, 1, 4, seeded())
    lengths = loadings[0].norm(dim=0)
    assert bool((lengths > 0).all())
    sparks = lengths[3:]  # four samples span three directions
    usual = float(x.var(0, correction=0).sum().sqrt())
    assert float(sparks.max()) < 3 * INITIAL_LOADING * usual
    assert float(lengths[:3].min()) > float(sparks.max())


@pytest.mark.parametrize("seed", range(4))
def test_seeds_are_a_better_start_than_one_gaussian_per_feature(seed: int) -> None:
    generator = seeded(seed)
    x = torch.cat(
        [
            torch.randn(300, 2, generator=generator) @ torch.randn(2, 16, generator=generator)
            + 2 * torch.randn(16, generator=generator)
            for _ in range(3)
        ]
    )
    mass, (means, loadings, noise) = seed_analysers(x, 3, 4, generator)
    mixture = FactorMixture((mass / mass.sum()).log(), means, loadings, noise.clamp_min(0.05))
    one = FactorMixture(torch.zeros(1), x.mean(0)[None], torch.zeros(1, 16, 0), x.var(0)[None])
    gain = log_likelihood(mixture, x).mean() - log_likelihood(one, x).mean()
    assert float(gain) > 5


# What always holds ------------------------------------------------------------------------


@given(
    n=st.integers(1, 80),
    k=st.integers(1, 12),
    d=st.sampled_from([1, 2, 6, 30]),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(
        ["spread", "copies", "same", "grid", "sparse", "outlier", "line", "constant"]
    ),
    beside=st.sampled_from([0, 0, 1, 3]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_masses_add_up_to_the_samples_and_nothing_is_infinite_or_negative(
    n: int, k: int, d: int, seed: int, kind: str, beside: int
) -> None:
    generator = seeded(seed)
    normal = torch.randn(n, d, generator=generator)
    x = {
        "spread": normal,
        "copies": normal[: max(1, n // 4)].repeat(8, 1)[:n],
        "same": torch.rand(1, d, generator=generator).repeat(n, 1),
        "grid": torch.randint(0, 2, (n, d), generator=generator).float(),
        "sparse": (normal > 0.5).float() * (torch.rand(d, generator=generator) < 0.2),
        "outlier": torch.cat([normal[1:], torch.full((1, d), 1000.0)]),
        "line": normal[:, :1] * torch.linspace(-1, 1, d),
        "constant": normal.index_fill(1, torch.arange(0, d, 2), 20.0),
    }[kind]
    n_factors = d // 2
    there = torch.randn(beside, d, generator=generator) if beside else None
    mass, (means, loadings, noise) = seed_analysers(x, k, n_factors, generator, there)
    found = len(mass)
    assert found <= min(k, len(x))
    if beside:
        # What is near to a mean that there was is left to it.
        assert float(mass.sum()) <= len(x)
        assert bool((mass >= FEWEST_SAMPLES).all())
    else:
        assert found >= 1
        assert float(mass.sum()) == len(x)
        assert bool((mass >= min(FEWEST_SAMPLES, float(mass.max()))).all())
    assert means.shape == (found, d)
    assert loadings.shape == (found, d, n_factors)
    assert noise.shape == (found, d)
    assert all(bool(part.isfinite().all()) for part in (means, loadings, noise))
    assert bool((noise >= 0).all())
    # No more varies than varies in all, but for the belief about a handful of samples.
    usual = x.var(0, correction=0)
    low, high = x.amin(0) - 1e-3, x.amax(0) + 1e-3
    assert bool(((means >= low) & (means <= high)).all())
    spread = (high - low).square()
    assert bool((variances(loadings, noise) <= spread + usual).all())


def test_the_same_generator_gives_the_same_components_bit_for_bit() -> None:
    x = clusters([30, 30, 30, 9])

    def once() -> list[Tensor]:
        mass, parameters = seed_analysers(x, 6, 5, seeded(4))
        return [mass, *parameters]

    one = once()
    torch.rand(3)  # the generator of everybody else is not touched
    assert all(torch.equal(a, b) for a, b in zip(one, once(), strict=True))


def test_samples_are_left_as_they_were() -> None:
    x = clusters([30, 30])
    copy = x.clone()
    seed_analysers(x, 3, 2, seeded())
    assert torch.equal(x, copy)


# Beside others ----------------------------------------------------------------------------


def test_new_components_go_where_there_are_none() -> None:
    x = clusters([100, 60, 80], spread=0.02)
    first, second, third = x.split([100, 60, 80])
    there = first.mean(0, keepdim=True)
    mass, (means, _, _) = seed_analysers(x, 2, 2, seeded(), there)
    order = mass.argsort()
    assert mass[order].tolist() == [60, 80]
    expected = torch.stack([second.mean(0), third.mean(0)])
    torch.testing.assert_close(means[order], expected)


def test_where_everything_belongs_to_others_nothing_new_is_placed() -> None:
    x = clusters([8], spread=0.02)
    mass, (means, loadings, noise) = seed_analysers(x, 2, 3, seeded(), x.mean(0, keepdim=True))
    assert (len(mass), len(means), len(noise)) == (0, 0, 0)
    assert loadings.shape == (0, 12, 3)


# Few samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 9])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_handful_of_samples_are_one_component_that_is_their_mean(n: int, k: int) -> None:
    x = clusters([1] * n)
    mass, (means, _, noise) = seed_analysers(x, k, 4, seeded())
    assert mass.tolist() == [n]
    torch.testing.assert_close(means[0], x.mean(0))
    assert bool((noise > 0).all())
    assert nearest(means, x) > 0.01


def test_a_single_sample_is_the_one_component_and_left_to_the_caller() -> None:
    x = clusters([1])
    mass, (means, loadings, noise) = seed_analysers(x, 3, 4, seeded())
    assert mass.tolist() == [1]
    torch.testing.assert_close(means, x)
    assert float(loadings.abs().max()) == float(noise.max()) == 0


def test_samples_that_are_all_the_same_make_one_component() -> None:
    mass, (means, loadings, noise) = seed_analysers(torch.full((90, 4), 0.3), 5, 2, seeded())
    assert mass.tolist() == [90]
    torch.testing.assert_close(means, torch.full((1, 4), 0.3))
    assert float(loadings.abs().max()) == pytest.approx(0, abs=1e-6)
    assert float(noise.max()) == pytest.approx(0, abs=1e-6)


# Nothing is stored ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_no_mean_is_a_sample_even_where_samples_stand_alone(seed: int) -> None:
    # Fifteen samples far from everything, each of which would be a component of its own.
    x = torch.cat([clusters([200], seed=seed), 3 * clusters([1] * 15, seed=seed + 50)])
    mass, (means, _, _) = seed_analysers(x, 20, 4, seeded(seed))
    assert nearest(means, x) > 0.02
    assert float(mass.min()) >= FEWEST_SAMPLES
    beside = x[:50].mean(0, keepdim=True)
    _, (means, _, _) = seed_analysers(x, 20, 4, seeded(seed), beside)
    assert nearest(torch.cat([means, beside]), x) > 0.02


@pytest.mark.parametrize("copies", [2, 5, FEWEST_SAMPLES, FEWEST_COPIES - 1])
def test_no_mean_is_a_sample_that_was_sent_several_times(copies: int) -> None:
    odd = torch.full((1, 12), 2.0)
    x = torch.cat([clusters([60]), odd.repeat(copies, 1)])
    _, (means, _, _) = seed_analysers(x, 8, 4, seeded())
    assert nearest(means, odd) > 0.02


def test_what_many_samples_have_in_common_may_be_a_component() -> None:
    common = torch.full((1, 12), 2.0)
    x = torch.cat([clusters([60]), common.repeat(2 * FEWEST_COPIES, 1)])
    _, (means, _, _) = seed_analysers(x, 8, 4, seeded())
    assert nearest(means, common) < 1e-3


def test_who_is_a_copy_is_told_by_mass_and_by_spread() -> None:
    mass = torch.tensor([1.0, 1.0, 0.9, 0.9, 0.0]) * FEWEST_COPIES
    mean, variance = torch.tensor([[0.5]]), torch.tensor([0.0, 0.1, 0.0, 0.1, 0.0])[:, None]
    sums = Moments(mass, mass[:, None] * mean, mass[:, None] * (mean.square() + variance))
    assert are_copies(sums).tolist() == [False, False, True, False, True]


@pytest.mark.parametrize("n", [30, 12])
def test_directions_are_found_in_what_hardly_varies(n: int) -> None:
    """Sparse yes-or-no features and copies, on which a solver in single precision gives up."""
    for seed in range(60):
        generator = seeded(seed)
        sparse = torch.randint(0, 2, (n, 16), generator=generator).float()
        sparse = sparse * (torch.rand(16, generator=generator) < 0.2)
        copies = torch.rand(1, 16, generator=generator).repeat(n, 1)
        for x in (sparse, copies):
            centred = x - x.mean(0)
            values, directions = principal(centred, 4)
            assert bool(values.isfinite().all())
            assert bool(directions.isfinite().all())
            total = centred.square().sum() / n
            assert float(values.sum()) <= float(total) * 1.001 + 1e-12
