"""Sharpening: an image climbs the likelihood that the upper layers give it.

Patches that are drawn one by one do not quite fit where they overlap, and their mean is
blurred. A few steps up the gradient of what a layer above says of the whole bring them into
agreement (the published DCGMM's sampling). The gradient runs back through the layers between
in closed form: through a posterior, a linear map and the folding.

Throughout: N samples, D entries of a map, P positions, K components.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core.density.deep.folding import Folding
from core.density.deep.layer import score_layer
from core.density.mixture import NaturalForm


def climb(
    x: Tensor, layers: Sequence[tuple[Folding, NaturalForm]], steps: int, rate: float
) -> Tensor:
    """Maps after some steps of gradient ascent, with shape (N, D).

    Arguments:
        x: Maps, with shape (N, D).
        layers: From the one that takes these maps up to the target, both included.
        steps: How many; 0 gives x itself.
        rate: Of a step.
    """
    for _ in range(steps):
        x = torch.add(x, likelihood_gradient(x, layers), alpha=rate)
    return x


def likelihood_gradient(x: Tensor, layers: Sequence[tuple[Folding, NaturalForm]]) -> Tensor:
    """Derivative of the last layer's mean log-likelihood over its positions, for every sample.

    Arguments:
        x: Maps, with shape (N, D).
        layers: From the one that takes these maps up to the target.

    Returns:
        With shape (N, D).
    """
    seen = []
    for folding, form in layers:
        scored = score_layer(folding, form, x)
        seen.append(scored)
        x = scored.responsibilities

    # d log sum exp / d joint is the posterior.
    n, positions = seen[-1].log_likelihood.shape
    upward = seen[-1].responsibilities.reshape(n * positions, -1) / positions
    for depth in reversed(range(len(layers))):
        folding, form = layers[depth]
        # d joint / d patch = linear + 2 quadratic * patch, for every component.
        by_patch = (upward @ form.quadratic).mul_(2 * seen[depth].patches)
        by_map = folding.gather(by_patch.addmm_(upward, form.linear))
        if depth:
            posterior = seen[depth - 1].joint.softmax(-1)
            by_posterior = by_map.reshape(posterior.shape)
            mean = (posterior * by_posterior).sum(-1, keepdim=True)
            upward = posterior * (by_posterior - mean)
    return by_map
