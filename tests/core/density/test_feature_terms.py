"""Tests for core.density.feature_terms: a log-likelihood as a sum over features, exactly."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from core.density.density import Density
from core.density.diagonal.density import DiagonalDensity
from core.density.factor_mixture import FactorMixture, covariances
from core.density.factors.density import FactorDensity
from core.density.mixture import Mixture
from tests.core.density.deep.test_density import images, stack

FLOOR = 0.05
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
relaxed = settings(deadline=None, max_examples=40)


def diagonal(k: int, d: int, seed: int) -> DiagonalDensity:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(3, k, d, generator=generator, dtype=torch.float64)
    weights = torch.randn(k, generator=generator, dtype=torch.float64).log_softmax(0)
    root = (0.5 * normal[1]).exp()
    return DiagonalDensity(Mixture(weights, normal[0], root), 0.9 / root)


def factors(k: int, d: int, n_factors: int, seed: int) -> FactorDensity:
    generator = torch.Generator().manual_seed(seed)
    mixture = FactorMixture(
        torch.randn(k, generator=generator, dtype=torch.float64).log_softmax(0),
        torch.randn(k, d, generator=generator, dtype=torch.float64),
        torch.randn(k, d, n_factors, generator=generator, dtype=torch.float64),
        # Some below the floor, some above.
        0.2 * torch.rand(k, d, generator=generator, dtype=torch.float64),
    )
    return FactorDensity.whole(mixture, FLOOR)


def samples(n: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return 2 * torch.randn(n, d, generator=generator, dtype=torch.float64)


def check_sum(density: Density, x: Tensor) -> None:
    seen, scored = density.feature_terms(x), density.score(x)
    torch.testing.assert_close(seen.terms.sum(-1) + seen.rest, scored.log_likelihood)
    assert torch.equal(seen.components, scored.joint.argmax(-1))
    assert seen.terms.shape == seen.expected.shape == seen.centres.shape == x.shape


@relaxed
@given(k=sizes, d=sizes, seed=seeds)
def test_terms_of_diagonal_components_are_the_densities_of_their_features(
    k: int, d: int, seed: int
) -> None:
    density, x = diagonal(k, d, seed), samples(6, d, seed)
    check_sum(density, x)
    seen = density.feature_terms(x)
    mixture, winners = density.mixture, seen.components
    normal = Normal(mixture.means[winners], 1 / mixture.precision_root[winners])
    torch.testing.assert_close(seen.terms, normal.log_prob(x))
    assert torch.equal(seen.centres, mixture.means[winners])
    # What is left: the weight, and what other components add.
    added = seen.rest - mixture.log_weights[winners]
    assert bool((added >= -1e-9).all())
    assert bool((added <= math.log(k) + 1e-9).all())


@relaxed
@given(k=sizes, d=st.integers(2, 6), n_factors=st.integers(0, 3), seed=seeds)
def test_terms_of_factor_analysers_and_their_factors_make_up_the_density(
    k: int, d: int, n_factors: int, seed: int
) -> None:
    density, x = factors(k, d, n_factors, seed), samples(6, d, seed)
    check_sum(density, x)
    seen = density.feature_terms(x)
    raised = density.mixture._replace(noise=density.mixture.noise.clamp_min(FLOOR))
    whole = covariances(raised)
    for row, winner in enumerate(seen.components.tolist()):
        # The factors given the sample, from the textbook: E[z | x] = A^T Sigma^-1 (x - mu).
        loadings, mean = raised.loadings[winner], raised.means[winner]
        z = loadings.T @ torch.linalg.solve(whole[winner], x[row] - mean)
        reconstructed = mean + loadings @ z
        normal = Normal(reconstructed, raised.noise[winner].sqrt())
        torch.testing.assert_close(seen.terms[row], normal.log_prob(x[row]))
        covariance = torch.eye(n_factors, dtype=x.dtype) - loadings.T @ torch.linalg.solve(
            whole[winner], loadings
        )
        part = -0.5 * z.square().sum() + 0.5 * torch.logdet(covariance)
        density_of_row = MultivariateNormal(mean, whole[winner]).log_prob(x[row])
        torch.testing.assert_close(seen.terms[row].sum() + part, density_of_row)


def test_what_is_expected_is_the_mean_over_samples_of_the_component() -> None:
    n = 40_000
    for density in (diagonal(1, 4, 3), factors(1, 5, 2, 5)):
        x = density.sample(torch.zeros(n, dtype=torch.int64), torch.Generator().manual_seed(0))
        seen = density.feature_terms(x)
        error = seen.terms.std(0) / math.sqrt(n)
        apart = (seen.terms.mean(0) - seen.expected[0]).abs()
        assert bool((apart < 5 * error).all()), (apart / error).tolist()


def test_pixels_share_what_the_first_layer_says_of_their_patches() -> None:
    density, x = stack(depth=3), images(5)
    check_sum(density, x)
    seen = density.feature_terms(x)
    # A pixel that moves changes its own term, and those that share a patch only by another winner.
    first = density.layers[0]
    patches = first.folding.patches(x).reshape(5, first.folding.positions, -1)
    joint = first.mixture.log_weights + Normal(
        first.mixture.means, 1 / first.mixture.precision_root
    ).log_prob(patches[:, :, None]).sum(-1)
    winners = joint.argmax(-1)
    total = (joint.amax(-1) - first.mixture.log_weights[winners]).mean(-1)
    torch.testing.assert_close(seen.terms.sum(-1), total)


def test_a_feature_that_strays_has_the_lowest_term_against_what_was_expected() -> None:
    for density in (diagonal(3, 5, 1), factors(3, 5, 1, 1)):
        x = density.sample(torch.arange(3), torch.Generator().manual_seed(0))
        x[:, 2] += 30
        seen = density.feature_terms(x)
        assert (seen.expected - seen.terms).argmax(-1).tolist() == [2, 2, 2]
