"""From components to classes and back: what turns a density into a classifier.

A read-out does two things. Forwards, it maps the log-joint values of a sample to
class probabilities. Backwards, it maps a wanted class to a *control signal*:
weights over components that steer conditional sampling.

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.density.mixture import responsibilities

CONFIDENCE = 0.95
"""o_C: what the classifier's output is asked to be for the wanted class (paper, sampling)."""


FEATURES_PER_DEGREE = 12
"""Features for each degree of the temperature at which classes are compared: at least 1, which is
Bayes' rule. In hundreds of dimensions the best component of a class says less of it than
several do, as when a class is named, and the more so where no class fits (docs/method.md)."""

LEAST_VOTES = 1e-6
"""Labelled samples, or a share of one, below which a component stands for no class."""


def at_most_one(probabilities: Tensor) -> Tensor:
    """Probabilities as they are told: a sum of rounded shares may pass one in its last bits."""
    return probabilities.clamp(max=1)


def class_shares(votes: Tensor) -> Tensor:
    """p(c | k), with shape (K, C); even where no label to speak of fell on a component.

    Arguments:
        votes: Labelled samples per component and class, with shape (K, C).
    """
    total = votes.sum(-1, keepdim=True)
    shares = votes / total.clamp_min(LEAST_VOTES)
    return torch.where(total > LEAST_VOTES, shares, 1 / max(1, votes.shape[1]))


NAMED = 1e-3
"""By how much more than an even share a component must be of some class to be of one."""


def log_odds(probabilities: Tensor) -> Tensor:
    """Log odds of the largest in each row against all others, with shape (N,); at most 87 nats.

    Arguments:
        probabilities: With shape (N, C), C at least 2.
    """
    largest, which = probabilities.max(-1)
    others = probabilities.scatter(1, which[:, None], 0).sum(-1)
    return largest.log() - others.clamp_min(torch.finfo(others.dtype).tiny).log()


def margin_temperature(n_features: int) -> float:
    """At which classes are compared."""
    return max(1.0, n_features / FEATURES_PER_DEGREE)


class Readout(Protocol):
    """The protocol of a read-out."""

    @property
    def n_classes(self) -> int:
        """C; zero while no label was ever seen."""
        ...

    @property
    def component_classes(self) -> Tensor | None:
        """p(c | k), with shape (K, C); None where components stand for no classes."""
        ...

    @property
    def kinds(self) -> Tensor | None:
        """The same, and one column more: components that no label named are a kind of their own."""
        ...

    def class_probabilities(self, joint: Tensor) -> Tensor:
        """Probabilities (N, C) from log-joint values (N, K); rows sum to one."""
        ...

    def margins(self, joint: Tensor, temperature: float) -> Tensor:
        """Nats by which the likeliest class stands above all others together, with shape (N,).

        T log (p / (1 - p)) of its probability p at the temperature T; 0 where there are fewer than
        two classes.

        Arguments:
            joint: Log-joint values, with shape (N, K).
            temperature: T, where the read-out has one.
        """
        ...

    def control_signal(self, log_weights: Tensor) -> Tensor:
        """Weights over components for every class, with shape (C, K); rows sum to one."""
        ...

    @property
    def temperature(self) -> float:
        """Temperature of the responsibilities, at least 1; 1 where they are not tempered."""
        ...

    def at(self, temperature: float) -> Self:
        """The same at another temperature, if it has one: the higher, the more are heard."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything it is made of, by a name that no tensor of a density has."""
        ...

    def facts(self) -> dict[str, float]:
        """What else it takes to make it again."""
        ...

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The inverse of `tensors` and `facts`; a missing one is a `KeyError`."""
        ...


@dataclass(frozen=True, eq=False)
class PosteriorReadout:
    """Bayes' rule: p(c | x) = sum_k p(k | x) p(c | k), with a tempered p(k | x).

    In hundreds of dimensions p(k | x) saturates: one component takes everything and
    its neighbours' opinion is lost. A temperature of about D / 25 keeps them in the
    vote, which is worth half a point of accuracy (docs/benchmarks.md).

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

    @cached_property
    def kinds(self) -> Tensor:
        """p(c | k), and one column more: what no label fell on is a kind of its own, (K, C + 1)."""
        if not self.n_classes:
            return self.component_classes.new_ones(len(self.component_classes), 1)
        largest = self.component_classes.amax(-1, keepdim=True)
        unnamed = (largest * self.n_classes <= 1 + NAMED).to(self.component_classes)
        return torch.cat([self.component_classes * (1 - unnamed), unnamed], 1)

    def margins(self, joint: Tensor, temperature: float) -> Tensor:
        if self.n_classes < 2:
            return joint.new_zeros(len(joint))
        return temperature * log_odds(responsibilities(joint, temperature) @ self.kinds)

    def control_signal(self, log_weights: Tensor) -> Tensor:
        """Exact: p(k | c) is proportional to pi_k p(c | k) (docs/method.md).

        Components that no label fell on are as much of any class, and say nothing of one: they are
        left out where a class has others.
        """
        weights = log_weights.exp()[:, None]
        anywhere, named = weights * self.component_classes, weights * self.kinds[:, :-1]
        shares = torch.where(named.sum(0) > 0, named, anywhere)
        # A class that no component stands for (yet) may be anywhere.
        shares = torch.where(shares.sum(0) > 0, shares, weights)
        return (shares / shares.sum(0)).T

    def at(self, temperature: float) -> Self:
        return replace(self, temperature=temperature)

    def tensors(self) -> dict[str, Tensor]:
        return {"component_classes": self.component_classes}

    def facts(self) -> dict[str, float]:
        return {"temperature": self.temperature}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        return cls(tensors["component_classes"], facts["temperature"])


NEVER = 30.0
"""Nats by which a class of which nothing is known is less likely than any other."""


def with_merged_classes(weight: Tensor, bias: Tensor, merge: ClassMerge) -> tuple[Tensor, Tensor]:
    """Weight (K, C - 1) and bias (C - 1,) that give one class the probabilities of two.

    Exact wherever one component has all the responsibility. Rows of the weights sum to zero.

    Arguments:
        weight: Of a linear read-out, with shape (K, C).
        bias: With shape (C,).
        merge: Of two classes. Of later ones than C nothing was known, nor is it then.
    """
    if merge.gone >= len(bias):
        return weight, bias
    logits = torch.cat([weight + bias, bias[None]])  # of every component, and of none
    missing = max(0, merge.into + 1 - len(bias))
    never = float(logits.amin()) - NEVER
    logits = torch.cat([logits, logits.new_full((len(logits), missing), never)], 1)
    logits[:, merge.into] = logits[:, [*merge]].logsumexp(1)
    logits = merge.without(logits, 1)
    logits = logits - logits.mean(1, keepdim=True)
    return logits[:-1] - logits[-1], logits[-1]


@dataclass(frozen=True, eq=False)
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

    @property
    def component_classes(self) -> None:
        return None

    @property
    def kinds(self) -> None:
        return None

    def class_probabilities(self, joint: Tensor) -> Tensor:
        return torch.softmax(responsibilities(joint) @ self.weight + self.bias, -1)

    def margins(self, joint: Tensor, temperature: float) -> Tensor:
        if self.n_classes < 2:
            return joint.new_zeros(len(joint))
        return log_odds(self.class_probabilities(joint))

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

    def with_merged_classes(self, merge: ClassMerge) -> Self:
        """Two classes in one: see the function of this name."""
        weight, bias = with_merged_classes(self.weight, self.bias, merge)
        return replace(self, weight=weight, bias=bias)

    @property
    def temperature(self) -> float:
        return 1.0

    def at(self, temperature: float) -> Self:
        return self

    def tensors(self) -> dict[str, Tensor]:
        return {"readout_weight": self.weight, "readout_bias": self.bias}

    def facts(self) -> dict[str, float]:
        return {"top": self.top}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        return cls(tensors["readout_weight"], tensors["readout_bias"], facts["top"])


READOUTS: dict[str, type[PosteriorReadout] | type[LinearReadout]] = {
    "temperature": PosteriorReadout,
    "top": LinearReadout,
}
"""Fact by which a read-out is known in files -> its class. The one place that knows all of them."""


def readout_type(facts: Collection[str]) -> type[PosteriorReadout] | type[LinearReadout]:
    """The kind of read-out that has one of these facts.

    Raises:
        KeyError: There is none.
    """
    return READOUTS[next((name for name in READOUTS if name in facts), "readout")]
