"""The paper's linear classifier, as it learns: softmax regression on responsibilities.

Its gradients never reach the mixture. Weights start at zero and stay so that their rows
sum to zero, without which the control signal is noise (docs/method-paper.md).

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.density.mixture import responsibilities


def grown(weight: Tensor, bias: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Weight (K, C) and bias (C,) with room for more classes.

    Zeros say nothing for or against a new class, and keep the rows' sums at zero.
    """
    more = n_classes - bias.shape[0]
    return (
        torch.cat([weight, weight.new_zeros(len(weight), more)], 1),
        torch.cat([bias, bias.new_zeros(more)]),
    )


def descend(
    weight: Tensor, bias: Tensor, joint: Tensor, codes: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    """One step down the mean cross-entropy of the labelled samples: weight and bias.

    Arguments:
        weight: With shape (K, C).
        bias: With shape (C,).
        joint: Log-joint values, with shape (N, K).
        codes: Class per sample, with shape (N,); -1 for unlabelled.
        rate: Of the bias; each row of the weights learns K times as fast, because it sees
            a share of 1/K of the inputs.
    """
    labelled = codes != UNLABELLED
    if not bias.shape[0] or not bool(labelled.any()):
        return weight, bias
    inputs = responsibilities(joint[labelled])
    error = torch.softmax(inputs @ weight + bias, -1)
    rows = torch.arange(len(error), device=error.device)
    error[rows, codes[labelled]] -= 1  # d cross-entropy / d logits
    rate = rate / len(error)
    return weight - rate * len(weight) * (inputs.T @ error), bias - rate * error.sum(0)
