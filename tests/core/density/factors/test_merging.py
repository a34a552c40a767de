"""Tests for the core.density.factors.merging module: analytic replay of factor analysers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.factor_mixture import FactorMixture, covariances, log_likelihood, sample
from core.density.factors.components import Analysers
from core.density.factors.merging import merged

FLOOR = 0.05


def random_analysers(
    k: int, d: int, n_factors: int, seed: int, places: int = 4, owner: int = 1
) -> Analysers:
    """K components of unequal size around a few places, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means = 3 * normal(places, d)[torch.arange(k) % places] + 0.1 * normal(k, d)
    votes = torch.rand(k, 3, generator=generator, dtype=torch.float64)
    return Analysers(
        mass=torch.rand(k, generator=generator, dtype=torch.float64) * 300 + 5,
        means=means,
        loadings=normal(k, d, n_factors),
        noise=(0.3 * normal(k, d) - 1).exp(),
        owner=torch.full((k,), owner),
        votes=votes,
        vote_baseline=3 * votes.flip(1),
    )


def moments_of_all(analysers: Analysers) -> tuple[Tensor, Tensor]:
    """Mean (D,) and covariance (D, D) of the whole."""
    weights = analysers.mass / analysers.mass.sum()
    mean = weights @ analysers.means
    away = analysers.means - mean
    between = torch.einsum("k,kd,ke->de", weights, away, away)
    within = torch.einsum("k,kde->de", weights, covariances(analysers.mixture()))
    return mean, within + between


sizes = {"k": st.integers(1, 12), "d": st.integers(1, 8), "seed": st.integers(0, 1000)}


# What is kept -----------------------------------------------------------------------------


@given(most=st.integers(1, 8), n_factors=st.integers(0, 4), tiny=st.booleans(), **sizes)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_mass_mean_and_the_variance_of_every_feature_are_those_of_before(
    k: int, d: int, seed: int, most: int, n_factors: int, tiny: bool
) -> None:
    old = random_analysers(k, d, min(n_factors, d), seed)
    if tiny:
        old = replace(old, mass=torch.where(torch.arange(k) % 2 == 0, 1e-9 * old.mass, old.mass))
    new = merged(old, most, FLOOR)
    assert len(new) == min(k, most)
    assert float(new.mass.sum()) == pytest.approx(float(old.mass.sum()), rel=1e-12)
    torch.testing.assert_close(new.votes.sum(0), old.votes.sum(0))
    torch.testing.assert_close(new.vote_baseline, 3 * new.votes.flip(1))
    assert new.owner.tolist() == [1] * len(new)
    assert bool((new.noise >= 0).all())
    (mean, covariance), (old_mean, old_covariance) = moments_of_all(new), moments_of_all(old)
    torch.testing.assert_close(mean, old_mean)
    torch.testing.assert_close(covariance.diag(), old_covariance.diag())


@given(n_factors=st.integers(0, 3), **sizes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_of_the_covariances_the_part_that_stands_out_most_is_kept(
    k: int, d: int, seed: int, n_factors: int
) -> None:
    """No other L directions explain more, feature by feature in units of the usual noise."""
    old = random_analysers(k, d, min(n_factors, d), seed)
    if k == 1:
        old = Analysers.concatenated([old, old])
    new = merged(old, 1, FLOOR)
    usual = old.noise.clamp_min(FLOOR).mean(0).sqrt()
    _, covariance = moments_of_all(old)
    weights = old.mass / old.mass.sum()
    low_rank = (covariance - (weights @ old.noise).diag()) / usual / usual[:, None]
    kept = new.loadings[0] @ new.loadings[0].T / usual / usual[:, None]
    values, vectors = torch.linalg.eigh(low_rank)
    most = min(n_factors, d)
    expected = vectors[:, d - most :] * values[d - most :].clamp_min(0) @ vectors[:, d - most :].T
    torch.testing.assert_close(kept, expected, atol=1e-8, rtol=1e-6)


@given(n=st.integers(2, 6), d=st.integers(3, 8), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_components_in_one_plane_are_one_component_exactly(n: int, d: int, seed: int) -> None:
    """Where all directions of the union fit in L, nothing at all is lost."""
    generator = torch.Generator().manual_seed(seed)
    plane = torch.randn(d, 3, generator=generator, dtype=torch.float64)
    random = random_analysers(n, d, 0, seed)
    turns = torch.randn(n, 3, 3, generator=generator, dtype=torch.float64)
    shifts = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    old = replace(
        random,
        means=random.means[:1] + shifts @ plane.T,
        loadings=plane @ turns,
        noise=random.noise[:1].expand(n, d).clone(),
    )
    new = merged(old, 1, FLOOR)
    mean, covariance = moments_of_all(old)
    torch.testing.assert_close(new.means[0], mean)
    torch.testing.assert_close(covariances(new.mixture())[0], covariance)
    torch.testing.assert_close(new.noise[0], old.noise[0])


def test_few_enough_components_are_handed_back_untouched() -> None:
    old = random_analysers(5, 3, 1, 1)
    for k in (5, 6, 100):
        assert merged(old, k, FLOOR) is old


def test_a_component_that_nobody_joins_stays_bit_for_bit() -> None:
    near = random_analysers(5, 6, 2, 0, places=1)
    far = replace(near.select(torch.tensor([0])), means=near.means[:1] + 100)
    new = merged(Analysers.concatenated([near, far]), 2, FLOOR)
    for name in ("mass", "means", "loadings", "noise", "votes", "vote_baseline"):
        assert torch.equal(getattr(new, name)[1], getattr(far, name)[0]), name


def test_what_was_given_is_not_changed() -> None:
    old = random_analysers(9, 4, 2, 5)
    copies = [part.clone() for part in (old.mass, old.means, old.loadings, old.noise, old.votes)]
    merged(old, 3, FLOOR)
    parts = (old.mass, old.means, old.loadings, old.noise, old.votes)
    assert all(torch.equal(part, copy) for part, copy in zip(parts, copies, strict=True))


# How good it is ---------------------------------------------------------------------------


def test_components_of_one_place_are_merged_and_those_of_different_places_are_not() -> None:
    old = random_analysers(20, 6, 2, 0)
    new = merged(old, 4, FLOOR)
    place = torch.arange(20) % 4
    masses = sorted(float(old.mass[place == at].sum()) for at in range(4))
    assert sorted(new.mass.tolist()) == pytest.approx(masses)


def test_it_agrees_with_the_moments_of_a_huge_sample_drawn_from_the_components() -> None:
    old, generator = random_analysers(5, 4, 2, 3), torch.Generator().manual_seed(1)
    picks = torch.multinomial(old.mass, 200_000, replacement=True, generator=generator)
    x = sample(old.mixture(), picks, generator, noise=True)
    new = merged(old, 1, FLOOR)
    torch.testing.assert_close(new.means[0], x.mean(0), rtol=0, atol=0.05)
    # Six directions in four features: what two factors cannot hold is noise.
    variance = covariances(new.mixture())[0].diag()
    torch.testing.assert_close(variance, x.var(0), rtol=0.03, atol=0)


def test_merged_factors_explain_samples_better_than_a_diagonal_of_the_same_moments() -> None:
    old, generator = random_analysers(6, 10, 3, 8, places=1), torch.Generator().manual_seed(2)
    picks = torch.multinomial(old.mass, 5000, replacement=True, generator=generator)
    x = sample(old.mixture(), picks, generator, noise=True)
    new = merged(old, 1, FLOOR).mixture()
    variance = covariances(new)[0].diag()[None]
    diagonal = FactorMixture(new.log_weights, new.means, 0 * new.loadings, variance)
    gain = log_likelihood(new, x).mean() - log_likelihood(diagonal, x).mean()
    assert float(gain) > 0.3


# Edges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_factors", [0, 3])
@pytest.mark.parametrize("apart", [0.0, 1.0, 1000.0])
def test_components_without_any_noise_can_be_merged(n_factors: int, apart: float) -> None:
    """Features that never varied, as they are at the rim of images: each constant in its time."""
    places = apart * torch.arange(4.0)[:, None].expand(4, 784)
    old = Analysers.of_owner(
        torch.full((4,), 50.0),
        (places.clone(), torch.zeros(4, 784, n_factors), torch.zeros(4, 784)),
        owner=0,
        n_classes=1,
    )
    new = merged(old, 1, FLOOR)
    torch.testing.assert_close(new.means[0], places.mean(0))
    variance = new.noise[0] + new.loadings[0].square().sum(-1)
    torch.testing.assert_close(variance, places.var(0, correction=0), rtol=1e-3, atol=1e-6)
    if n_factors and apart:
        assert float(new.noise.max()) < 0.01 * float(variance.max())  # one direction says it all


def test_more_directions_than_features_are_merged_by_the_features() -> None:
    old = random_analysers(60, 5, 2, 4, places=60)
    new = merged(old, 1, FLOOR)
    (mean, covariance), (old_mean, old_covariance) = moments_of_all(new), moments_of_all(old)
    torch.testing.assert_close(mean, old_mean)
    torch.testing.assert_close(covariance.diag(), old_covariance.diag())
