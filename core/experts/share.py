"""Whom to believe: fixed share among experts.

Herbster and Warmuth, Tracking the Best Expert, 1998. Throughout: E experts, N samples, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array, compiled

SHARE = 0.01
"""Part of every weight that goes round after a sample."""

DOUBT = 0.01
"""Part of every opinion that is even over classes: no expert is ruled out by one surprise."""


def shared(weights: Tensor, likelihoods: Tensor) -> Tensor:
    """Weights after N samples, with shape (E,); they sum to one.

    One sample after the other: it does not matter how a stream is cut into batches.

    Arguments:
        weights: Before, with shape (E,), float64.
        likelihoods: What each expert gave the label that came, in stream order, with shape (E, N),
            float64, above 0.
    """
    believed = weights.numpy().copy()
    _share(believed, np.ascontiguousarray(likelihoods.numpy()), SHARE)
    return torch.from_numpy(believed)


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
