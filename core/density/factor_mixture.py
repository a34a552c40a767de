"""Mixtures of factor analysers, as pure functions on tensors.

A component is a Gaussian whose covariance is a few *factors* and diagonal *noise*:

    x = mu + A z + e,    z ~ N(0, I_L),  e ~ N(0, diag(psi)),    Sigma = A A^T + diag(psi)

so that it knows which features vary together, at L + 2 numbers a feature. Nothing here
forms a D x D matrix. With L(A) = I + A^T psi^-1 A = C C^T, the Woodbury identity and the
determinant lemma (Ghahramani & Hinton 1996) turn the log density into that of the diagonal
part plus half the squared norm of u = C^-1 A^T psi^-1 (x - mu):

    log N(x) = log N(x; mu, diag(psi)) - log |C| + |u|^2 / 2,    E[z | x] = C^-T u

u of all components at once is one matrix product, because C^-1 A^T psi^-1 can be laid side
by side (docs/method.md).

Rules of this module: functions return new tensors and edit none; no randomness; no policy
(how many components, when to learn) lives here.

Throughout: N samples, D features, K components, L factors; log values are in nats.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from core.density.blocks import one_by_one, rows_of
from core.density.mixture import LOG_2PI

NEGLIGIBLE = 1e-3
"""A responsibility below it teaches its component nothing. In hundreds of dimensions all but one
or two of a sample are, so that an M-step's sums cost what one or two components cost."""

MEAN_RIDGE = 1e-3
"""Samples at zero that a mean is drawn towards, so that its equations can be solved."""


class FactorMixture(NamedTuple):
    """Parameters of a mixture. A value: functions return new ones, none edits one."""

    log_weights: Tensor  # (K,)  exp() sums to one
    means: Tensor  # (K, D)
    loadings: Tensor  # (K, D, L)
    noise: Tensor  # (K, D)  variances, positive

    @property
    def n_components(self) -> int:
        """K."""
        return self.means.shape[0]


class WhitenedForm(NamedTuple):
    """A mixture as scoring wants it: three matrix products for a batch."""

    constant: Tensor  # (K,)
    linear: Tensor  # (K, D)
    quadratic: Tensor  # (K, D)
    whitener: Tensor  # (K * L, D)  C^-1 A^T psi^-1 of every component
    whitened_mean: Tensor  # (K * L,)
    spread: Tensor  # (K, L, L)  C^-1, lower triangular: the posterior covariance is its square

    @property
    def n_components(self) -> int:
        """K."""
        return self.spread.shape[0]

    @property
    def n_factors(self) -> int:
        """L."""
        return self.spread.shape[1]


class FactorMoments(NamedTuple):
    """Weighted sums over samples, per component: the sufficient statistics of EM.

    The latent vector is [z, 1]: loadings and mean are solved for together.
    """

    mass: Tensor  # (K,)  sum of responsibilities
    second: Tensor  # (K, D)  responsibilities times x^2
    cross: Tensor  # (K, D, L + 1)  responsibilities times x E[z, 1 | x]^T
    latent: Tensor  # (K, L + 1, L + 1)  responsibilities times E[[z, 1] [z, 1]^T | x]

    def __add__(self, other: FactorMoments) -> FactorMoments:  # type: ignore[override]
        return FactorMoments(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> FactorMoments:
        """Every sum times a number."""
        return FactorMoments(*(part * factor for part in self))

    def select(self, rows: Tensor) -> FactorMoments:
        """The statistics of some components, by index or mask."""
        return FactorMoments(*(part[rows] for part in self))

    @property
    def spread_of_all(self) -> Tensor:
        """Variance of each feature over all samples behind the sums, with shape (D,)."""
        total = self.mass.sum()
        mean = self.cross[..., -1].sum(0) / total
        return (self.second.sum(0) / total - mean.square()).clamp_min(0)


def no_moments(k: int, n_factors: int, like: Tensor) -> FactorMoments:
    """Sums over nothing, for k components.

    Arguments:
        like: Samples of the type and on the device that are wanted, with shape (N, D).
    """
    d = like.shape[1]
    return FactorMoments(
        like.new_zeros(k),
        like.new_zeros(k, d),
        like.new_zeros(k, d, n_factors + 1),
        like.new_zeros(k, n_factors + 1, n_factors + 1),
    )


def whitened_form(mixture: FactorMixture) -> WhitenedForm:
    """What turns samples into log-joint values and factors."""
    log_weights, means, loadings, noise = mixture
    k, d, n_factors = loadings.shape
    precision = noise.reciprocal()
    weighted = loadings * precision[..., None]
    identity = torch.eye(n_factors, dtype=means.dtype, device=means.device)
    inner = identity + loadings.transpose(1, 2) @ weighted
    root, failed = torch.linalg.cholesky_ex(inner, check_errors=means.dtype == torch.float64)
    if bool(failed.any()):
        # Huge factors that all but coincide: single precision cannot tell them apart.
        precise = whitened_form(FactorMixture(*(part.double() for part in mixture)))
        return WhitenedForm(*(part.to(means.dtype) for part in precise))
    spread = torch.linalg.solve_triangular(root, identity.expand_as(root), upper=False)
    whitener = spread @ weighted.transpose(1, 2)  # (K, L, D)
    linear = means * precision
    # log |Sigma| = log |psi| + 2 log |C|
    constant = (
        log_weights
        - root.diagonal(dim1=1, dim2=2).log().sum(-1)
        - 0.5 * (noise.log().sum(-1) + d * LOG_2PI + (means * linear).sum(-1))
    )
    return WhitenedForm(
        constant,
        linear,
        -0.5 * precision,
        whitener.reshape(k * n_factors, d),
        (whitener @ means[..., None]).reshape(k * n_factors),
        spread,
    )


def log_joint(form: WhitenedForm, x: Tensor, x_squared: Tensor | None = None) -> Tensor:
    """Log of weight times density for every sample and component, with shape (N, K).

    Arguments:
        x: Samples, with shape (N, D).
        x_squared: Their squares, where the caller has them already.

    Example:
        >>> zero = torch.zeros
        >>> mixture = FactorMixture(zero(1), zero(1, 2), zero(1, 2, 1), torch.ones(1, 2))
        >>> log_joint(whitened_form(mixture), zero(1, 2))
        tensor([[-1.8379]])
    """
    squared = x.square() if x_squared is None else x_squared
    if len(x) > (rows := rows_of(x)):
        blocks = zip(torch.split(x, rows), torch.split(squared, rows), strict=True)
        return torch.cat([log_joint(form, *block) for block in blocks])
    joint = torch.addmm(form.constant, x, form.linear.T).addmm_(squared, form.quadratic.T)
    return joint.add_(_explained(form, whitened(form, x)))


def whitened(form: WhitenedForm, x: Tensor) -> Tensor:
    """u of every sample and component, with shape (N, K, L)."""
    u = torch.addmm(form.whitened_mean, x, form.whitener.T, beta=-1)
    return u.reshape(len(x), form.n_components, form.n_factors)


def _explained(form: WhitenedForm, u: Tensor) -> Tensor:
    """What the factors add to the log density, with shape (N, K)."""
    if not form.n_factors:
        return u.new_zeros(u.shape[:2])
    norms: Tensor = torch.linalg.vector_norm(u, dim=-1)
    return 0.5 * norms.square()


def e_step(
    form: WhitenedForm, x: Tensor, x_squared: Tensor | None = None
) -> tuple[FactorMoments, Tensor]:
    """Expected sufficient statistics of samples.

    Arguments:
        x: Samples, with shape (N, D).
        x_squared: Their squares, where the caller has them already.

    Returns:
        The moments, with a mass of N in all, and the responsibilities, with shape (N, K).
    """
    squared = x.square() if x_squared is None else x_squared
    shares = shared_out(log_joint(form, x, squared))
    return moments(form, shares, x, squared), shares


def shared_out(joint: Tensor) -> Tensor:
    """Responsibilities without negligible ones, with shape (N, K); rows sum to one.

    Arguments:
        joint: Log-joint values, with shape (N, K).
    """
    shares = torch.softmax(joint, -1)
    # The largest is never negligible, even where thousands share a sample.
    least = shares.amax(-1, keepdim=True).clamp_max(NEGLIGIBLE)
    shares = torch.where(shares < least, 0.0, shares)
    return shares / shares.sum(-1, keepdim=True)


def moments(form: WhitenedForm, shares: Tensor, x: Tensor, x_squared: Tensor) -> FactorMoments:
    """Expected sufficient statistics of samples that were shared out, (N, K), already."""
    by = _moments_one_by_one if one_by_one(x) else _moments_at_once
    return by(form, shares, x, x_squared)


def _moments_at_once(
    form: WhitenedForm, shares: Tensor, x: Tensor, x_squared: Tensor
) -> FactorMoments:
    """The same in a few large products, for all samples under all components."""
    n, k, n_factors = len(x), form.n_components, form.n_factors
    latent = x.new_ones(n, k, n_factors + 1)
    # E[z] = C^-T u
    latent[..., :n_factors] = (whitened(form, x).transpose(0, 1) @ form.spread).transpose(0, 1)
    weighted = latent * shares[..., None]
    cross = (weighted.view(n, -1).T @ x).view(k, n_factors + 1, -1)
    second = latent.permute(1, 2, 0) @ weighted.transpose(0, 1)
    mass = shares.sum(0)
    covariance = form.spread.transpose(1, 2) @ form.spread
    second[:, :n_factors, :n_factors] += mass[:, None, None] * covariance
    # In one piece, as it comes from a checkpoint.
    return FactorMoments(mass, shares.T @ x_squared, cross.transpose(1, 2).contiguous(), second)


def _moments_one_by_one(
    form: WhitenedForm, shares: Tensor, x: Tensor, x_squared: Tensor
) -> FactorMoments:
    """The same component by component, each of the samples that it answers for."""
    k, n_factors, d = form.n_components, form.n_factors, x.shape[1]
    whitener = form.whitener.view(k, n_factors, d)
    offset = form.whitened_mean.view(k, n_factors)
    sums = no_moments(k, n_factors, x)
    mass = shares.sum(0)
    torch.matmul(shares.T, x_squared, out=sums.second)
    # Sorted by component once, each component's samples lie side by side.
    which, rows = (shares.T > 0).nonzero(as_tuple=True)
    ends = which.bincount(minlength=k).cumsum(0).tolist()
    samples, weights = x[rows], shares[rows, which][:, None]
    latent = x.new_ones(len(rows), n_factors + 1)
    mine = [slice(*both) for both in pairwise((0, *ends))]
    filled = [one for one in range(k) if mine[one].start < mine[one].stop]
    for one in filled:
        u = torch.addmm(offset[one], samples[mine[one]], whitener[one].T, beta=-1)
        latent[mine[one], :n_factors] = u @ form.spread[one]  # E[z] = C^-T u
    weighted = latent * weights
    for one in filled:
        own = weighted[mine[one]]
        torch.mm(samples[mine[one]].T, own, out=sums.cross[one])
        torch.mm(latent[mine[one]].T, own, out=sums.latent[one])
    covariance = form.spread.transpose(1, 2) @ form.spread
    sums.latent[:, :n_factors, :n_factors] += mass[:, None, None] * covariance
    return FactorMoments(mass, sums.second, sums.cross, sums.latent)


def m_step(
    sums: FactorMoments, prior: Tensor, ridge: float, shrink: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Means, loadings and raw noise, with shapes (K, D), (K, D, L) and (K, D).

    Arguments:
        sums: Moments; a component of little mass is drawn towards the prior.
        prior: Noise expected of a component about which nothing is known, with shape (D,).
        ridge: Samples' worth of belief that a loading is zero.
        shrink: Samples' worth of belief in `prior`.
    """
    mass, second, cross, latent = sums
    n_factors = latent.shape[-1] - 1
    ridges = latent.new_full((n_factors + 1,), ridge)
    ridges[-1] = MEAN_RIDGE
    solved = cross @ _inverse(latent + ridges.diag())
    # E |x - [A, mu] [z, 1]|^2 per feature, for any [A, mu], not only the optimal one.
    residual = second + torch.linalg.vecdot(solved, solved @ latent - 2 * cross)
    noise = (residual.clamp_min(0) + shrink * prior) / (mass[:, None] + shrink)
    return solved[..., -1], solved[..., :-1], noise


def _inverse(definite: Tensor) -> Tensor:
    """Of symmetric matrices (K, M, M), positive by their ridge; in double, for they are small."""
    root, _ = torch.linalg.cholesky_ex(definite.double())
    return torch.cholesky_inverse(root).to(definite)


def sample(
    mixture: FactorMixture, components: Tensor, generator: torch.Generator, noise: float
) -> Tensor:
    """Draw one sample from each of the named components, with shape (N, D).

    Arguments:
        mixture: With raw noise.
        components: With shape (N,), int64, on the mixture's device.
        generator: On the CPU, so that samples do not depend on the device.
        noise: Times its deviation; at 0 only what the factors explain is drawn.
    """
    n, (_, d, n_factors) = len(components), mixture.loadings.shape
    means = mixture.means
    latent = torch.randn(n, n_factors, generator=generator, dtype=means.dtype).to(means.device)
    x = means[components]
    if n_factors:
        # By component, so that loadings are not copied for every sample.
        order = components.argsort(stable=True)
        counts = components.bincount(minlength=mixture.n_components).tolist()
        for one, rows in enumerate(torch.split(order, counts)):
            if len(rows):
                x[rows] = torch.addmm(x[rows], latent[rows], mixture.loadings[one].T)
    if noise:
        standard = torch.randn(n, d, generator=generator, dtype=means.dtype).to(means.device)
        x = x + standard * (mixture.noise[components].sqrt() * noise)
    return x


def expected_moments(mass: Tensor, parameters: tuple[Tensor, Tensor, Tensor]) -> FactorMoments:
    """The moments of what components would generate: analytic replay.

    An M-step on them, without prior and ridge, gives the parameters back.

    Arguments:
        mass: Samples that each stands for, with shape (K,).
        parameters: Means, loadings and raw noise, as `m_step` returns them.
    """
    means, loadings, noise = parameters
    latent = torch.eye(loadings.shape[-1] + 1, dtype=means.dtype, device=means.device)
    second = means.square() + noise + loadings.square().sum(-1)
    solved = torch.cat([loadings, means[..., None]], -1)
    return FactorMoments(
        mass, mass[:, None] * second, mass[:, None, None] * solved, mass[:, None, None] * latent
    )


def log_likelihood(mixture: FactorMixture, x: Tensor) -> Tensor:
    """Log density of each sample under the whole mixture, with shape (N,)."""
    return log_joint(whitened_form(mixture), x).logsumexp(-1)


def covariances(mixture: FactorMixture) -> Tensor:
    """Sigma of every component, with shape (K, D, D): for few features only."""
    low_rank = mixture.loadings @ mixture.loadings.transpose(1, 2)
    return low_rank + torch.diag_embed(mixture.noise)


def n_factors_of(n_features: int, most: int) -> int:
    """L for D features: at most half of them, or noise would have nothing left to explain."""
    return min(most, n_features // 2)
