"""Stochastic gradient ascent on the (annealed) max-component log-likelihood, in closed form.

    L(x) = max_k sum_l g_kl s_l(x),    s_l(x) = log pi_l + log N_l(x)

with g the neighbourhood (core.density.diagonal.annealing; the identity once annealing is over).
For the winner k* of a sample, dL/ds_l = g_k*l: the weight of component l for that
sample. Every derivative is a sum over samples of such a weight times 1, x or x^2, so
that a gradient needs the moments of an E-step and nothing else: matrix products, no
(N, K, D) tensor, no tape.

Rules of this module: functions return new tensors and edit none; no randomness.

Throughout: N samples, D features, K components.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from core.density.mixture import Mixture, moments


class Parameters(NamedTuple):
    """The parameters of gradient ascent: a mixture whose weights are free to take any value."""

    logits: Tensor  # (K,)  softmax gives the weights
    means: Tensor  # (K, D)
    precision_root: Tensor  # (K, D)  1 / standard deviation, positive

    @property
    def mixture(self) -> Mixture:
        """The same as a mixture."""
        return Mixture(self.logits.log_softmax(-1), self.means, self.precision_root)


class Rates(NamedTuple):
    """Learning rates, each times the common one; 0 leaves a parameter as it is."""

    logits: float = 0.5
    means: float = 1.0
    precision_root: float = 0.1


def winners(joint: Tensor, neighbourhood: Tensor | None) -> tuple[Tensor, Tensor]:
    """The best component of every sample, and the objective there.

    Arguments:
        joint: Log-joint values, with shape (N, K).
        neighbourhood: Weights (K, K), symmetric; None once annealing is over.

    Returns:
        The annealed max-component log-likelihood in nats and the winner, both with shape (N,).
    """
    smooth = joint if neighbourhood is None else joint @ neighbourhood
    best = smooth.max(-1)
    return best.values, best.indices


def gradient(
    parameters: Parameters,
    x: Tensor,
    winner: Tensor,
    neighbourhood: Tensor | None,
    x_squared: Tensor | None = None,
    precisions: bool = True,
) -> Parameters:
    """Derivative of the objective's mean over the samples.

    Arguments:
        x: Samples, with shape (N, D).
        winner: Their winners, with shape (N,).
        neighbourhood: As in `winners`.
        x_squared: Squares of x, where the caller has them already.
        precisions: Whether that of the precisions is wanted; it is most of the work.

    Returns:
        One derivative per parameter, in the parameters' shapes; zeros for precisions that are
        not wanted.
    """
    logits, means, precision_root = parameters
    n_components = means.shape[0]
    if neighbourhood is None:
        weights = torch.nn.functional.one_hot(winner, n_components).to(x.dtype)
    else:
        weights = neighbourhood[winner]
    weights = weights / x.shape[0]
    if not precisions:
        mass, first = weights.sum(0), weights.T @ x
        residual = torch.addcmul(first, mass[:, None], means, value=-1)
        none = precision_root.new_zeros(()).expand_as(precision_root)
        return Parameters(
            mass - logits.softmax(-1), residual.mul_(precision_root).mul_(precision_root), none
        )
    mass, first, second = moments(weights, x, x_squared)
    mass_ = mass[:, None]
    # Means over samples of weight * (x - mu) and of weight * (x - mu)^2.
    residual = torch.addcmul(first, mass_, means, value=-1)
    spread = torch.addcmul(second, means, first + residual, value=-1)
    return Parameters(
        mass - logits.softmax(-1),
        precision_root.square() * residual,
        torch.addcmul(mass_ / precision_root, precision_root, spread, value=-1),
    )


def ascend(
    parameters: Parameters,
    derivative: Parameters,
    rates: Rates,
    rate: float,
    precision_range: tuple[float, Tensor],
) -> Parameters:
    """One step uphill.

    Arguments:
        derivative: What `gradient` gave.
        rates: Per parameter.
        rate: Common to all.
        precision_range: Where the roots of the precisions are kept: a least value above 0,
            below which one step could turn them negative, and the largest, with shape (D,),
            without which a feature that never varies would take its precision to infinity.
    """
    logits, means, precision_root = parameters
    if rates.logits:
        logits = logits + rate * rates.logits * derivative.logits
    if rates.means:
        means = torch.add(means, derivative.means, alpha=rate * rates.means)
    if rates.precision_root:
        least, most = precision_range
        moved = torch.add(
            precision_root, derivative.precision_root, alpha=rate * rates.precision_root
        )
        precision_root = moved.clamp_(min=least).minimum(most)
    return Parameters(logits, means, precision_root)
