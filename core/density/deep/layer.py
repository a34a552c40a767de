"""One layer's forward pass: a mixture at every position of a map.

The same components serve all positions. What a layer hands to the next is the posterior
of its components at each position: a map with K channels.

Throughout: N samples, P positions, K components, d entries of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.density.deep.folding import Folding
from core.density.density import Scored
from core.density.mixture import NaturalForm, log_joint


class LayerScored(NamedTuple):
    """A layer's scores of samples."""

    patches: Tensor  # (N * P, d) what it saw
    joint: Tensor  # (N * P, K) log weight + log density of every component
    responsibilities: Tensor  # (N, P * K) the map for the layer above
    log_likelihood: Tensor  # (N, P) nats


def score_layer(folding: Folding, form: NaturalForm, x: Tensor) -> LayerScored:
    """Score maps, with shape (N, D).

    Arguments:
        folding: Cuts the map.
        form: The layer's mixture.
    """
    patches = folding.patches(x)
    return layer_scored(folding, patches, log_joint(form, patches))


def layer_scored(folding: Folding, patches: Tensor, joint: Tensor) -> LayerScored:
    """What follows from log-joint values.

    Arguments:
        folding: Cut the maps.
        patches: With shape (N * P, d).
        joint: With shape (N * P, K).
    """
    posterior = joint.softmax(-1)
    # log sum exp = the largest term, less the log of its share: no second pass of exponentials.
    log_likelihood = joint.amax(-1) - posterior.amax(-1).log()
    # Written out, since -1 does not go with no samples at all.
    positions, n_components = folding.positions, joint.shape[1]
    n = len(joint) // positions
    return LayerScored(
        patches,
        joint,
        posterior.reshape(n, positions * n_components),
        log_likelihood.reshape(n, positions),
    )


def image_log_likelihood(log_likelihoods: Sequence[Tensor]) -> Tensor:
    """One number per image, with shape (N,): the sum over layers of the mean over positions.

    Arguments:
        log_likelihoods: Per layer, with shape (N, P).
    """
    return torch.stack([values.mean(-1) for values in log_likelihoods]).sum(0)


def score_stack(layers: Sequence[tuple[Folding, NaturalForm]], x: Tensor) -> Scored:
    """One forward pass through all layers: the last's log-joint, the image's log-likelihood.

    Arguments:
        layers: From the image upwards; the last has one position.
        x: Images, with shape (N, D).
    """
    log_likelihoods = []
    for folding, form in layers:
        scored = score_layer(folding, form, x)
        x = scored.responsibilities
        log_likelihoods.append(scored.log_likelihood)
    return Scored(scored.joint, image_log_likelihood(log_likelihoods))
