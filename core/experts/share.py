"""Whom to believe: the best expert for the time being, and the best mix of several.

*Fixed share* (Herbster and Warmuth, Tracking the Best Expert, 1998) soon gives nearly all weight to
whoever is best, and is late for none. Experts that err on different samples are better together
than the best of them is alone. Their weights come from *Soft-Bayes* (Orseau, Lattimore and Legg,
Soft-Bayes: Prod for Mixtures of Experts with Log-Loss, 2017), which goes a part of Bayes' way after
every sample, and so comes near the best mix that stays.

Throughout: E experts, N samples, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array, compiled

SHARE = 0.01
"""Part of every weight that goes round after a sample."""

RATE = 0.2
"""Part of Bayes' way that weights of a mix go after a sample."""

MIX_SHARE = 0.001
"""Part of every weight of a mix that goes round then."""

DOUBT = 0.01
"""Part of every opinion that is even over classes: no expert is ruled out by one surprise."""


def shared(weights: Tensor, likelihoods: Tensor) -> Tensor:
    """Weights by fixed share after N samples, with shape (E,); they sum to one.

    One sample after the other: it does not matter how a stream is cut into batches.

    Arguments:
        weights: Before, with shape (E,), float64.
        likelihoods: What each expert gave the label that came, in stream order, with shape (E, N),
            float64, above 0.
    """
    believed = weights.numpy().copy()
    _share(believed, np.ascontiguousarray(likelihoods.numpy()), SHARE)
    return torch.from_numpy(believed)


def mixed(weights: Tensor, likelihoods: Tensor) -> Tensor:
    """Weights by Soft-Bayes after N samples: arguments and result are as of `shared`."""
    believed = weights.numpy().copy()
    _mix(believed, np.ascontiguousarray(likelihoods.numpy()), RATE, MIX_SHARE)
    return torch.from_numpy(believed)


@compiled
def _mix(believed: Array, likelihoods: Array, rate: float, part: float) -> None:
    """Weigh E experts by N samples, in place, from likelihoods with shape (E, N)."""
    given = part / len(believed)
    for i in range(likelihoods.shape[1]):
        total = 0.0
        for expert in range(len(believed)):
            total += believed[expert] * likelihoods[expert, i]
        for expert in range(len(believed)):
            step = 1 - rate + rate * likelihoods[expert, i] / total
            believed[expert] = (1 - part) * believed[expert] * step + given


@compiled
def _share(believed: Array, likelihoods: Array, part: float) -> None:
    """Weigh E experts by N samples, in place, from likelihoods with shape (E, N)."""
    given = part / len(believed)
    for i in range(likelihoods.shape[1]):
        total = 0.0
        for expert in range(len(believed)):
            believed[expert] *= likelihoods[expert, i]
            total += believed[expert]
        kept = (1 - part) / total
        for expert in range(len(believed)):
            believed[expert] = believed[expert] * kept + given
