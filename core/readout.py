"""From components to classes and back: what turns a density into a classifier.

A read-out does two things. Forwards, it maps the log-joint values of a sample to
class probabilities. Backwards, it maps a wanted class to a *control signal*:
weights over components that steer conditional sampling.

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from core.density.diagonal import responsibilities

CONFIDENCE = 0.95
"""o_C: what the classifier's output is asked to be for the wanted class (paper, sampling)."""


LEAST_VOTES = 1e-6
"""Labelled samples, or a share of one, below which a component stands for no class."""


def class_shares(votes: Tensor) -> Tensor:
    """p(c | k), with shape (K, C); even where no label to speak of fell on a component.

    Arguments:
        votes: Labelled samples per component and class, with shape (K, C).
    """
    total = votes.sum(-1, keepdim=True)
    shares = votes / total.clamp_min(LEAST_VOTES)
    return torch.where(total > LEAST_VOTES, shares, 1 / max(1, votes.shape[1]))


class Readout(Protocol):
    """What the model asks of a read-out."""

    @property
    def n_classes(self) -> int:
        """C; zero while no label was ever seen."""
        ...

    def class_probabilities(self, joint: Tensor) -> Tensor:
        """Probabilities (N, C) from log-joint values (N, K); rows sum to one."""
        ...

    def control_signal(self, log_weights: Tensor) -> Tensor:
        """Weights over components for every class, with shape (C, K); rows sum to one."""
        ...

    @property
    def temperature(self) -> float:
        """By how much responsibilities are tempered, at least 1; 1 where they are not."""
        ...

    def at(self, temperature: float) -> Self:
        """The same at another temperature, if it has one: the higher, the more are heard."""
        ...


@dataclass(frozen=True)
class PosteriorReadout:
    """Bayes' rule: p(c | x) = sum_k p(k | x) p(c | k), with a tempered p(k | x).

    In hundreds of dimensions p(k | x) saturates: one component takes everything and
    its neighbours' opinion is lost. A temperature of about D / 25 keeps them in the
    vote, which docs/method.md measures at half a point of accuracy.

    Arguments:
        component_classes: p(c | k), with shape (K, C); rows sum to one.
        temperature: Divides the log-joint values; 1 is plain Bayes.
    """

    component_classes: Tensor
    temperature: float

    @property
    def n_classes(self) -> int:
        return self.component_classes.shape[1]

    def class_probabilities(self, joint: Tensor) -> Tensor:
        return responsibilities(joint, self.temperature) @ self.component_classes

    def control_signal(self, log_weights: Tensor) -> Tensor:
        """Exact: p(k | c) is proportional to pi_k p(c | k) (docs/method.md)."""
        weights = log_weights.exp()[:, None]
        shares = weights * self.component_classes
        # A class that no component stands for (yet) may be anywhere.
        shares = torch.where(shares.sum(0) > 0, shares, weights)
        return (shares / shares.sum(0)).T

    def at(self, temperature: float) -> Self:
        return replace(self, temperature=temperature)


@dataclass(frozen=True)
class LinearReadout:
    """The paper's classifier: a softmax layer on the responsibilities.

    Arguments:
        weight: With shape (K, C).
        bias: With shape (C,).
        top: Components that a control signal may use; the rest get no weight.
    """

    weight: Tensor
    bias: Tensor
    top: int

    @property
    def n_classes(self) -> int:
        return self.weight.shape[1]

    def class_probabilities(self, joint: Tensor) -> Tensor:
        return torch.softmax(responsibilities(joint) @ self.weight + self.bias, -1)

    def control_signal(self, log_weights: Tensor) -> Tensor:
        """The paper's inversion, i = W (log o + k - b), with the shift k that it leaves open.

        The paper sets k = 0. Then log o has a mean far below zero, which multiplies
        whatever row sums W happens to have; k = -mean(log o) removes that. What then lies below
        zero speaks against the class, and gets next to no weight (docs/method-paper.md).
        """
        n_classes = self.n_classes
        if n_classes == 1:
            target = torch.zeros(1, 1, dtype=self.weight.dtype, device=self.weight.device)
        else:
            rest = (1 - CONFIDENCE) / (n_classes - 1)
            wanted = torch.full((n_classes, n_classes), rest).fill_diagonal_(CONFIDENCE)
            target = wanted.log().to(self.weight)
            target = target - target.mean(-1, keepdim=True)
        signal = (target - self.bias) @ self.weight.T  # (C, K)
        top = min(self.top, signal.shape[1])
        strongest = signal >= signal.topk(top, -1).values[:, -1:]
        kept = torch.where(strongest, signal.clamp_min(1e-6), torch.zeros_like(signal))
        return kept / kept.sum(-1, keepdim=True)

    @property
    def temperature(self) -> float:
        return 1.0

    def at(self, temperature: float) -> Self:
        return self
