"""The same mixture with fewer components: what it looks like from further away, in closed form.

Two components become one Gaussian of the same mean and covariance. Which two: those whose
union costs least by Runnalls' bound on the Kullback-Leibler divergence (Runnalls 2007),

    B(i, j) = 1/2 ((w_i + w_j) log |S_ij| - w_i log |S_i| - w_j log |S_j|).

Nothing is drawn, and no sample is needed: this is the paper's hierarchy of resolutions, taken
from one trained mixture.

With few features covariances are kept whole. With many, where D x D matrices are too dear,
components are joined by Ward's criterion and keep a few factors
(`core.density.factor_merging`).

Throughout: D features, K components, L factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from core.density.analysers import Analysers
from core.density.components import NO_CLASS
from core.density.factor_merging import merged
from core.density.factors import FactorMixture, covariances
from core.density.merging import ward

MOST_WHOLE = 64
"""Features up to which covariances are kept whole."""

FIRST = 32
"""Components that Ward's criterion leaves before Runnalls' is asked, which costs more."""

MOST_FACTORS = 5
"""Factors of a joined component where there are more features: whoever looks from further away
sees fewer details, and pays less."""

CHUNK = 2048
"""Pairs whose determinants are worked out at a time."""


def coarsened(mixture: FactorMixture, sizes: Sequence[int], floor: float) -> list[FactorMixture]:
    """A mixture of at most so many components for every size, each from the one before.

    Arguments:
        mixture: With noise of at least `floor`.
        sizes: Descending, each at least 1.
        floor: Smallest noise variance, above 0.

    Returns:
        Mixtures whose means and variances of each feature, over all components, are those of
        `mixture`; all with the same L.
    """
    if mixture.means.shape[1] <= MOST_WHOLE:
        return _whole(mixture, sizes, floor)
    found = []
    for size in sizes:
        mixture = _by_factors(mixture, size, floor)
        found.append(mixture)
    return found


def _by_factors(mixture: FactorMixture, size: int, floor: float) -> FactorMixture:
    log_weights, means, loadings, noise = mixture
    owner = torch.full((len(means),), NO_CLASS, device=means.device)
    old = Analysers(
        log_weights.softmax(0), means, loadings, noise, owner, means.new_zeros(len(means), 0)
    )
    new = merged(old, size, floor, min(MOST_FACTORS, loadings.shape[-1]))
    return FactorMixture(new.mass.log(), new.means, new.loadings, new.noise.clamp_min(floor))


class _Gaussians:
    """Weights (K,), means (K, D) and covariances (K, D, D), in double precision."""

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        self.weights, self.means, self.covariances = weights, means, covariances

    def joined(self, shares: Tensor) -> _Gaussians:
        """As `ward` says, by shares (K old, K new) of zero and one."""
        weights = shares.T @ self.weights
        parts = shares * self.weights[:, None] / weights
        means = parts.T @ self.means
        second = self.covariances + self.means[:, :, None] * self.means[:, None, :]
        moments = torch.tensordot(parts.T, second, 1)
        return _Gaussians(weights, means, moments - means[:, :, None] * means[:, None, :])

    def pairs(self, i: Tensor, j: Tensor) -> _Gaussians:
        """The union of each component of `i` with that of `j`, with shape (M,) each."""
        weights = self.weights[i] + self.weights[j]
        a, b = self.weights[i] / weights, self.weights[j] / weights
        away = self.means[i] - self.means[j]
        between = (a * b)[:, None, None] * away[:, :, None] * away[:, None, :]
        within = a[:, None, None] * self.covariances[i] + b[:, None, None] * self.covariances[j]
        means = a[:, None] * self.means[i] + b[:, None] * self.means[j]
        return _Gaussians(weights, means, within + between)

    @property
    def sizes(self) -> Tensor:
        """Weight times half the log determinant, with shape (K,)."""
        roots, _ = torch.linalg.cholesky_ex(self.covariances)
        found: Tensor = self.weights * roots.diagonal(dim1=1, dim2=2).log().sum(-1)
        return found.nan_to_num(nan=0.0)


def _whole(mixture: FactorMixture, sizes: Sequence[int], floor: float) -> list[FactorMixture]:
    precise = FactorMixture(*(part.double().cpu() for part in mixture))
    all_ = _Gaussians(precise.log_weights.softmax(0), precise.means, covariances(precise))
    k = len(all_.weights)
    if k > FIRST:
        together = all_.joined(torch.ones(k, 1, dtype=torch.float64)).covariances[0]
        values, vectors = torch.linalg.eigh(together)
        flat = all_.means @ (vectors * values.clamp_min(floor).rsqrt())
        all_ = all_.joined(ward(all_.weights, flat, FIRST))
    found = []
    for weights, means, whole in _runnalls(all_, sizes):
        # What is left beside noise of half the floor has a root, because of the other half.
        noise = torch.full_like(means, floor / 2)
        roots, failed = torch.linalg.cholesky_ex(whole - torch.diag_embed(noise))
        if bool(failed.any()):  # features so large that half the floor is rounded away
            roots, noise = torch.zeros_like(whole), whole.diagonal(dim1=1, dim2=2)
        parts = (weights.log(), means, roots, noise)
        found.append(FactorMixture(*(part.to(mixture.means) for part in parts)))
    return found


def _runnalls(old: _Gaussians, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Weights, means and covariances for every size: greedily, the cheapest union first."""
    weights, means, whole = old.weights.clone(), old.means.clone(), old.covariances.clone()
    now = _Gaussians(weights, means, whole)
    k, volumes = len(weights), now.sizes
    cost = weights.new_full((k, k), math.inf)
    left, right = torch.triu_indices(k, k, 1)
    for i, j in zip(left.split(CHUNK), right.split(CHUNK), strict=True):
        cost[i, j] = now.pairs(i, j).sizes - volumes[i] - volumes[j]
    alive = torch.ones(k, dtype=torch.bool)
    found = []
    for size in sizes:
        while int(alive.sum()) > size:
            keep, gone = divmod(int(cost.argmin()), k)
            one = now.pairs(torch.tensor([keep]), torch.tensor([gone]))
            weights[keep], means[keep], whole[keep] = (
                one.weights[0],
                one.means[0],
                one.covariances[0],
            )
            volumes[keep] = one.sizes[0]
            alive[gone] = False
            cost[gone], cost[:, gone] = math.inf, math.inf
            others = alive.nonzero()[:, 0]
            others = others[others != keep]
            here = torch.full_like(others, keep)
            fresh = now.pairs(here, others).sizes - volumes[keep] - volumes[others]
            cost[torch.minimum(here, others), torch.maximum(here, others)] = fresh
        found.append((weights[alive], means[alive], whole[alive]))
    return found
