"""A log-likelihood as a sum over features: it shows which features make a sample unlikely.

A component whose noise is diagonal gives every feature a term of its own. What a component
expects of these terms, of samples of its own, is known in closed form, so that a term can be
called low without any data to compare it with.

    log p(x) = sum_d term_d(x) + rest(x)

For a diagonal component `rest` is its log weight and what the other components add, which is
from 0 to log K. For a factor analyser it has the factors, too: with z = E[z | x] Bayes' rule,
log p(x) = log p(x | z) + log p(z) - log p(z | x), gives one term per feature of
r = x - mu - A z, and -|z|^2 / 2 - log |C| beside them (docs/method.md).

Throughout: N samples, D features, K components, L factors; log values are in nats.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from core.density.factor_mixture import FactorMixture, WhitenedForm
from core.density.mixture import LOG_2PI, Mixture


class FeatureTerms(NamedTuple):
    """Samples as their most probable component sees them, feature by feature."""

    components: Tensor  # (N,) int64, the one with the largest log-joint
    terms: Tensor  # (N, D) nats
    expected: Tensor  # (N, D) mean of the terms over samples of that component
    centres: Tensor  # (N, D) mean of that component
    rest: Tensor  # (N,) what the terms leave of the log-likelihood


def diagonal_terms(
    mixture: Mixture, deviations: Tensor, components: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Terms, and what is expected of them, both with shape (N, D).

    Arguments:
        mixture: With the variances that score.
        deviations: Those that draw: what its samples vary by, with shape (K, D).
        components: Of each sample, with shape (N,), int64.
        x: Samples, with shape (N, D).
    """
    root = mixture.precision_root
    constant = root.log() - 0.5 * LOG_2PI  # (K, D)
    distance = (x - mixture.means[components]) * root[components]
    terms = constant[components] - 0.5 * distance.square()
    expected = constant - 0.5 * (deviations * root).square()
    return terms, expected[components]


def factor_terms(
    mixture: FactorMixture, form: WhitenedForm, floor: float, components: Tensor, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Terms and what is expected of them, both (N, D), and the factors' own part, (N,).

    Arguments:
        mixture: With raw noise.
        form: The same with noise raised to the floor: what scores.
        floor: Of the noise.
        components: Of each sample, with shape (N,), int64.
        x: Samples, with shape (N, D).
    """
    k, n_factors, d = form.n_components, form.n_factors, x.shape[1]
    whitener = form.whitener.view(k, n_factors, d)
    terms, expected = torch.empty_like(x), torch.empty_like(x)
    factors = x.new_empty(len(x))
    order = components.argsort(stable=True)
    counts = components.bincount(minlength=k).tolist()
    for one, rows in enumerate(torch.split(order, counts)):
        if not len(rows):
            continue
        loadings, raw = mixture.loadings[one], mixture.noise[one]  # (D, L), (D,)
        noise = raw.clamp_min(floor)
        posterior = form.spread[one].T @ whitener[one]  # (L, D): E[z | x] = posterior (x - mu)
        away = x[rows] - mixture.means[one]
        z = away @ posterior.T
        residual = away - z @ loadings.T
        constant = -0.5 * (LOG_2PI + noise.log())
        terms[rows] = constant - 0.5 * residual.square() / noise
        factors[rows] = -0.5 * z.square().sum(-1) + form.spread[one].diagonal().log().sum()
        # Of its own samples, x - mu = A z + e: r = A (I - posterior A) z + (e - A posterior e).
        unexplained = loadings - loadings @ (posterior @ loadings)  # (D, L)
        mixed = (posterior * raw) @ posterior.T  # (L, L), of posterior e
        own = (loadings * posterior.T).sum(-1)  # (D,), what e_d explains of itself
        variance = (
            unexplained.square().sum(-1)
            + raw * (1 - 2 * own)
            + torch.linalg.vecdot(loadings @ mixed, loadings)
        )
        expected[rows] = constant - 0.5 * variance.clamp_min(0) / noise
    return terms, expected, factors
