"""Whom to believe: fixed share among experts.

Herbster and Warmuth, Tracking the Best Expert, 1998. Throughout: E experts, N samples, C classes.
"""

from __future__ import annotations

from torch import Tensor

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
    # A few numbers at a time: lists are faster than tensors.
    believed: list[float] = weights.tolist()
    kept, given = 1 - SHARE, SHARE / len(believed)
    for said in likelihoods.T.tolist():
        believed = [old * one for old, one in zip(believed, said, strict=True)]
        part = kept / sum(believed)
        believed = [one * part + given for one in believed]
    return weights.new_tensor(believed)
