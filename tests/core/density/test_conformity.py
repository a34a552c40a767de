"""Tests for the core.density.conformity module, against covariances written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from core.density.conformity import SOFTNESS, size
from core.density.diagonal.density import DiagonalDensity
from core.density.factor_mixture import FactorMixture, covariances
from core.density.factors.density import FactorDensity
from core.density.mixture import Mixture

pytestmark = pytest.mark.usefixtures("both_ways")

K, D, L = 3, 5, 2


def factors(seed: int = 0, n_factors: int = L) -> FactorMixture:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return FactorMixture(
        normal(K).log_softmax(0), normal(K, D), normal(K, D, n_factors), normal(K, D).exp()
    )


def samples(n: int = 40) -> Tensor:
    return 2 * torch.randn(n, D, generator=torch.Generator().manual_seed(9))


def squared_distances(x: Tensor, means: Tensor, sigmas: Tensor) -> Tensor:
    """Mahalanobis, with shape (N, K)."""
    apart = x[:, None] - means
    return torch.einsum("nkd,kde,nke->nk", apart, sigmas.inverse(), apart)


@pytest.mark.parametrize("n_factors", [0, L])
def test_traits_of_factor_analysers_are_those_of_their_covariances(n_factors: int) -> None:
    mixture, x = factors(n_factors=n_factors), samples()
    density = FactorDensity.whole(mixture, 1e-6)
    scored = density.score(x)
    closeness, log_likelihood, size_, stretch, rest = density.conformity(x, scored).T
    distances = squared_distances(x, mixture.means, covariances(mixture))
    expected = (mixture.log_weights - distances / (2 * SOFTNESS)).logsumexp(1)
    torch.testing.assert_close(closeness, expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(log_likelihood, scored.log_likelihood)
    assert torch.equal(size_, size(x))

    best = scored.joint.argmax(1)
    loadings, sigma = mixture.loadings[best], covariances(mixture)[best]
    apart = x - mixture.means[best]
    latent = torch.einsum("ndl,nde,ne->nl", loadings, sigma.inverse(), apart)  # E[z | x]
    torch.testing.assert_close(stretch, latent.square().sum(1), rtol=1e-3, atol=1e-4)
    outside = apart - torch.einsum("ndl,nl->nd", loadings, latent)
    torch.testing.assert_close(rest, outside.square().sum(1).log1p(), rtol=1e-3, atol=1e-4)


def test_closeness_of_diagonal_components_is_that_of_factor_analysers_without_factors() -> None:
    mixture, x = factors(n_factors=0), samples()
    plain = Mixture(mixture.log_weights, mixture.means, mixture.noise.rsqrt())
    diagonal = DiagonalDensity(plain, mixture.noise.sqrt())
    with_factors = FactorDensity.whole(mixture, 1e-6)
    found = diagonal.conformity(x, diagonal.score(x))
    expected = with_factors.conformity(x, with_factors.score(x))[:, :3]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_tight_component_gives_no_higher_marks_than_a_wide_one() -> None:
    means, deviations = torch.tensor([[0.0], [100.0]]), torch.tensor([[0.01], [10.0]])
    mixture = Mixture(torch.full((2,), 0.5).log(), means, 1 / deviations)
    density = DiagonalDensity(mixture, deviations)
    x = means + 2 * deviations
    conformity = density.conformity(x, density.score(x))
    assert float(conformity[0, 0]) == pytest.approx(float(conformity[1, 0]), rel=1e-3)
    assert float(conformity[0, 1] - conformity[1, 1]) > 6


@pytest.mark.parametrize("n_factors", [0, 2])
def test_other_traits_are_the_same_where_nobody_looks_at_closeness(n_factors: int) -> None:
    density, x = FactorDensity.whole(factors(n_factors=n_factors), 1e-6), samples()
    scored = density.score(x)
    whole, others = density.conformity(x, scored), density.conformity(x, scored, closeness=False)
    assert torch.equal(whole[:, 1:], others[:, 1:])
