"""Conformity scores: a few numbers on how a sample fits a mixture, from the forward pass that
scored it.

A density alone is a poor judge of what is strange. In many dimensions simple inputs have high
density (Nalisnick et al. 2019), and a dense cluster of outliers that was learned has a higher
one than the inliers. So a sample is described by several *conformity scores*, each of which has its
usual range among inliers (as in density of states estimation, Morningstar et al. 2021); what is
usual is the business of `core.outliers.p_values`.

The first conformity score is the one of which less is stranger, whatever the others say:

    closeness = log sum_k pi_k exp(-M_k(x) / (2 t)),    M_k the squared Mahalanobis distance

the log density with every component's peak at the height of its weight, so that a tight
component gives no higher marks than a wide one; t, the softness, lets several have a say, so
that a small component far from all others gives lower marks than one among many.

Where there are classes, `core.outliers.margin` adds to it by how much one stands above the others.

Throughout: N samples, D features, K components, L factors, S conformity scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.density.factor_mixture import WhitenedForm
from core.density.mixture import LOG_2PI, log_sum_exp

BETTER: tuple[int, ...] = (1, 1, 0, 0, -1)
"""In which direction each conformity score says that a sample fits better: up (1) or down (-1).
Samples that were learned fit better than new ones. Size and stretch (0) say nothing of it: either
way is odd."""

SOFTNESS = 4.0
"""t: chosen on held-out training data of MNIST and on made-up tables (docs/notebook.md)."""


class Analyser(NamedTuple):
    """Some of a mixture's factor analysers, as they are looked at here."""

    form: WhitenedForm
    log_weights: Tensor  # (K,) up to a constant
    means: Tensor  # (K, D)
    loadings: Tensor  # (K, D, L)
    log_peaks: Tensor  # (K,) of `factor_log_peaks`

    @classmethod
    def joined(cls, parts: Sequence[Analyser]) -> Analyser:
        """All of them, in order; larger products are faster ones. There must be at least one."""
        if len(parts) == 1:
            return parts[0]
        forms, *columns = zip(*parts, strict=True)
        form = WhitenedForm(*map(torch.cat, zip(*forms, strict=True)))
        return cls(form, *map(torch.cat, columns))


def factor_log_peaks(form: WhitenedForm) -> Tensor:
    """Log density of each factor analyser at its mean, without its weight, with shape (K,)."""
    precision = -2 * form.quadratic
    d = precision.shape[1]
    # log |Sigma| = log |psi| + 2 log |C|, and `spread` is C^-1.
    factors = form.spread.diagonal(dim1=1, dim2=2).log().sum(-1)
    return factors + 0.5 * (precision.log().sum(-1) - d * LOG_2PI)


def diagonal_conformity(
    log_weights: Tensor,
    log_peaks: Tensor,
    x: Tensor,
    joint: Tensor,
    log_likelihood: Tensor,
    *,
    closeness: bool = True,
) -> Tensor:
    """Closeness, log-likelihood and size of each sample, with shape (N, 3).

    Arguments:
        log_weights: With shape (K,); their exponentials sum to one.
        log_peaks: Log density of each component at its mean, without its weight, with shape (K,).
        x: Samples, with shape (N, D).
        joint: Of `Density.score`, with shape (N, K).
        log_likelihood: With shape (N,), in whichever units.
        closeness: Whether anybody looks at it; else it is zero.
    """
    close = torch.zeros_like(log_likelihood)
    if closeness:
        half_distances = log_weights + log_peaks - joint  # M / 2
        close = log_sum_exp(log_weights - half_distances / SOFTNESS)
    return torch.stack([close, log_likelihood, size(x)], 1)


def with_fits(conformity: Tensor, stretch: Tensor, rest: Tensor) -> Tensor:
    """The conformity scores of `diagonal_conformity`, and two of the likeliest component, with
    shape (N, 5).

    Arguments:
        conformity: With shape (N, 3).
        stretch: Squared length of E[z | x], how far the factors must stretch for the sample, with
            shape (N,).
        rest: Squared length of what the factors leave unexplained, with shape (N,).
    """
    return torch.cat([conformity, stretch[:, None], rest.log1p()[:, None]], 1)


def fits(part: Analyser, own: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Stretch and squared rest of samples, each with shape (N,): see `with_fits`.

    Arguments:
        part: Components.
        own: The likeliest one of each sample, with shape (N,), int64.
        x: Samples, with shape (N, D).
    """
    form = part.form
    shape = (form.n_components, form.n_factors)
    whitener = form.whitener.view(*shape, x.shape[1])[own]
    u = torch.einsum("nld,nd->nl", whitener, x) - form.whitened_mean.view(shape)[own]
    latent = torch.einsum("nl,nlm->nm", u, form.spread[own])  # E[z] = C^-T u
    outside = x - part.means[own] - torch.einsum("ndl,nl->nd", part.loadings[own], latent)
    return latent.square().sum(-1), outside.square().sum(-1)


def size(x: Tensor) -> Tensor:
    """Log of one plus the squared length of each sample, with shape (N,)."""
    return x.square().sum(-1).log1p()
