"""Tests for the core.density.coarsening module: the same mixture with fewer components."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.coarsening import FIRST, MOST_WHOLE, coarsened
from core.density.factors import FactorMixture, covariances

FLOOR = 0.05


def mixture(k: int, d: int, n_factors: int, seed: int = 0) -> FactorMixture:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    noise = FLOOR + 0.3 * normal(k, d).square()
    return FactorMixture(normal(k).log_softmax(0), 2 * normal(k, d), normal(k, d, n_factors), noise)


def moments(of: FactorMixture) -> tuple[Tensor, Tensor]:
    """Mean (D,) and covariance (D, D) of the whole, in double precision."""
    precise = FactorMixture(*(part.double() for part in of))
    weights = precise.log_weights.softmax(0)
    mean = weights @ precise.means
    second = covariances(precise) + precise.means[:, :, None] * precise.means[:, None, :]
    return mean, torch.tensordot(weights, second, 1) - mean[:, None] * mean


@settings(deadline=None, max_examples=25)
@given(st.integers(1, FIRST + 20), st.integers(1, 9), st.integers(0, 3), st.integers(0, 99))
def test_fewer_components_have_the_same_mean_and_covariance(
    k: int, d: int, n_factors: int, seed: int
) -> None:
    of = mixture(k, d, n_factors, seed)
    found = coarsened(of, (16, 4, 1), FLOOR)
    assert [one.n_components for one in found] == [min(size, k) for size in (16, 4, 1)]
    for one in found:
        assert float(one.log_weights.exp().sum()) == pytest.approx(1, rel=1e-4)
        assert bool((one.noise > 0).all())
        for mine, other in zip(moments(one), moments(of), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)


def test_with_many_features_the_variance_of_each_is_kept() -> None:
    of = mixture(30, MOST_WHOLE + 6, 3)
    for one in coarsened(of, (16, 4, 1), FLOOR):
        assert one.loadings.shape[-1] == 3
        for mine, other in zip(moments(one), moments(of), strict=True):
            mine, other = (part.diagonal() if part.ndim == 2 else part for part in (mine, other))
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)


def test_the_first_two_to_be_joined_are_those_whose_union_costs_least() -> None:
    """By Runnalls' bound, worked out for every pair."""
    of = mixture(6, 3, 1, seed=4)
    precise = FactorMixture(*(part.double() for part in of))
    weights, means, whole = precise.log_weights.exp(), precise.means, covariances(precise)
    costs = {}
    for i, j in itertools.combinations(range(6), 2):
        pair = torch.tensor([i, j])
        shares = weights[pair] / weights[pair].sum()
        away = means[pair] - shares @ means[pair]
        union = torch.tensordot(shares, whole[pair] + away[:, :, None] * away[:, None, :], 1)
        before = (weights[pair] * whole[pair].logdet()).sum()
        costs[i, j] = float(weights[pair].sum() * union.logdet() - before)
    i, j = min(costs, key=lambda pair: costs[pair])
    (five,) = coarsened(of, (5,), FLOOR)
    left = [one for one in range(6) if one not in (i, j)]
    kept = torch.cdist(means[left].float(), five.means).min(1).values
    assert float(kept.max()) < 1e-4
    joined = torch.cdist(means[[i, j]].float(), five.means).min(1).values
    assert float(joined.min()) > 1e-2


def test_the_same_mixture_gives_the_same_to_the_bit() -> None:
    for d in (5, MOST_WHOLE + 1):
        of = mixture(50, d, 2)
        for one, other in zip(
            coarsened(of, (16, 1), FLOOR), coarsened(of, (16, 1), FLOOR), strict=True
        ):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_features_of_any_size_do_no_harm() -> None:
    of = mixture(20, 4, 2)
    huge = of._replace(means=of.means * 1000, loadings=of.loadings * 1000, noise=of.noise * 1e6)
    flat = of._replace(means=of.means * 0, loadings=of.loadings * 0, noise=of.noise * 0 + FLOOR)
    for wild in (huge, flat):
        for one in coarsened(wild, (16, 4, 1), FLOOR):
            assert all(bool(part.isfinite().all()) for part in one)
            assert bool((one.noise > 0).all())
