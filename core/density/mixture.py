"""Mixtures of diagonal Gaussians, as pure functions on tensors.

Throughout: N samples, D features, K components; log values are in nats. Nothing
here forms an (N, K, D) tensor: every kernel is a matrix product.

Rules of this module: functions return new tensors and edit none; no randomness
without a generator; no policy (how many components, when to learn) lives here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


class Mixture(NamedTuple):
    """Parameters of a mixture. A value: functions return new ones, none edits one."""

    log_weights: Tensor  # (K,)  exp() sums to one
    means: Tensor  # (K, D)
    precision_root: Tensor  # (K, D)  1 / standard deviation, positive

    @property
    def n_components(self) -> int:
        """K."""
        return self.means.shape[0]


class NaturalForm(NamedTuple):
    """A mixture as the coefficients of [1, x, x^2]: what scoring a sample needs.

    `log_joint` is linear in these, so that scoring is two matrix products and the
    expected score of an uncertain sample is the score of its expected moments.
    """

    constant: Tensor  # (K,)
    linear: Tensor  # (K, D)
    quadratic: Tensor  # (K, D)


class Moments(NamedTuple):
    """Weighted sums over samples, per component: the sufficient statistics of EM."""

    mass: Tensor  # (K,)    sum of responsibilities
    first: Tensor  # (K, D)  responsibilities times x
    second: Tensor  # (K, D)  responsibilities times x^2

    def __add__(self, other: Moments) -> Moments:  # type: ignore[override]
        return Moments(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: Tensor | float) -> Moments:
        """Every sum times `factor`, a number or one per component with shape (K,)."""
        per_row = factor[:, None] if isinstance(factor, Tensor) and factor.ndim else factor
        return Moments(self.mass * factor, self.first * per_row, self.second * per_row)


def natural_form(mixture: Mixture) -> NaturalForm:
    """The coefficients that turn [1, x, x^2] into log-joint values."""
    return natural_form_and_peaks(mixture)[0]


def natural_form_and_peaks(mixture: Mixture) -> tuple[NaturalForm, Tensor]:
    """The same, and the log density of each component at its mean, without its weight, (K,)."""
    log_weights, means, precision_root = mixture
    precision = precision_root.square()
    weighted = means * precision
    log_roots = precision_root.log().sum(-1)
    normaliser = means.shape[-1] * LOG_2PI
    constant = log_weights + log_roots - 0.5 * (normaliser + (means * weighted).sum(-1))
    form = NaturalForm(constant, weighted, -0.5 * precision)
    return form, log_roots - 0.5 * normaliser


def log_joint(mixture: Mixture | NaturalForm, x: Tensor, x_squared: Tensor | None = None) -> Tensor:
    """Log of weight times density, for every sample and component.

    Arguments:
        mixture: The mixture; its natural form spares the conversion.
        x: Samples, with shape (N, D), on the mixture's device.
        x_squared: Their squares, where the caller has them already; or the expected
            squares E[x^2], which gives the expected log-joint under an uncertain x.

    Returns:
        Log-joint values, with shape (N, K).

    Example:
        >>> standard = Mixture(torch.zeros(1), torch.zeros(1, 2), torch.ones(1, 2))
        >>> log_joint(standard, torch.zeros(1, 2))
        tensor([[-1.8379]])
    """
    form = natural_form(mixture) if isinstance(mixture, Mixture) else mixture
    squared = x.square() if x_squared is None else x_squared
    # Expanding the square needs N x K memory; subtracting first would need N x K x D.
    linear = torch.addmm(form.constant, x, form.linear.T)
    return linear.addmm_(squared, form.quadratic.T)


def log_likelihood(mixture: Mixture | NaturalForm, x: Tensor) -> Tensor:
    """Log density of each sample under the whole mixture, with shape (N,)."""
    return log_sum_exp(log_joint(mixture, x))


def log_sum_exp(values: Tensor) -> Tensor:
    """`logsumexp` over the last dimension, shape (N, K) -> (N,).

    On a CPU `log_softmax` is vectorised where `logsumexp` is not, and the first
    column of the one gives the other at half the cost.
    """
    reference = values.amax(-1, keepdim=True)
    return reference[..., 0] - (values.log_softmax(-1).amax(-1))


def responsibilities(joint: Tensor, temperature: float = 1.0) -> Tensor:
    """Posterior of every component, with shape (N, K); rows sum to one.

    Arguments:
        joint: Log-joint values, with shape (N, K).
        temperature: Above 1, evens the posterior out: in many dimensions the plain one
            saturates to a single component, which tells a classifier too little.
    """
    return torch.softmax(joint if temperature == 1.0 else joint / temperature, -1)


def moments(weights: Tensor, x: Tensor, x_squared: Tensor | None = None) -> Moments:
    """Sums of `weights` (N, K) times [1, x, x^2]: the E-step's sufficient statistics."""
    squared = x.square() if x_squared is None else x_squared
    transposed = weights.T
    return Moments(weights.sum(0), transposed @ x, transposed @ squared)


def means_and_variances(sums: Moments, floor: float) -> tuple[Tensor, Tensor]:
    """The M-step: means and raw variances, both with shape (K, D).

    Arguments:
        sums: Moments with a positive mass for every component.
        floor: Smallest variance returned; rounding may take one below zero otherwise.
    """
    mass = sums.mass[:, None]
    means = sums.first / mass
    return means, (sums.second / mass - means.square()).clamp_min(floor)


def sample(
    means: Tensor, deviations: Tensor, components: Tensor, generator: torch.Generator
) -> Tensor:
    """Draw one sample from each of the named components.

    The paper prints x = Sigma z + mu; a sample of N(mu, Sigma) is x = A z + mu with
    A A^T = Sigma, for a diagonal Sigma the standard deviation (docs/method-paper.md, defect 2).

    Arguments:
        means: With shape (K, D).
        deviations: Standard deviations, with shape (K, D), not negative.
        components: Component per sample, with shape (N,), int64.
        generator: Source of randomness, on the CPU, so that samples do not depend on the device.

    Returns:
        Samples, with shape (N, D).
    """
    shape = (components.shape[0], means.shape[1])
    noise = torch.randn(shape, generator=generator, dtype=means.dtype)
    noise = noise.to(means.device)
    return means[components] + noise * deviations[components]
