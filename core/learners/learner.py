"""The protocol of a learner: one way of training one model family.

A learner holds settings only. Its state goes in and comes out of every method and
is a frozen dataclass of tensors and plain values, so that a checkpoint can hold it.

Throughout: N samples, D features, K components, C classes. Features are standardised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.density.density import Parts
from core.model.model import Model
from core.model.readout import Readout

S = TypeVar("S")


class Scores(NamedTuple):
    """One forward pass over a batch; everything else is read off it."""

    x: Tensor  # (N, D)
    x_squared: Tensor | None  # (N, D) where the family learns from them
    joint: Tensor  # (N, K) log weight + log density, inference variances
    log_likelihood: Tensor  # (N,) nats, in standardised units
    parts: Parts | None = None  # what parts of the mixture said, where the family has any


class Replay(NamedTuple):
    """What a learner replayed; becomes an event."""

    mode: str
    samples: int
    components_before: int
    components_after: int
    reason: str  # "boundary", "budget" or "batch"


@dataclass(frozen=True, eq=False)
class Unnamed:
    """Components of unlabelled samples on which no label fell, M of them, at least one.

    Arguments:
        index: Their places among all K, with shape (M,), int64.
        current: Whether they are of the current sub-task, with shape (M,), bool.
        means: With shape (M, D).
        mass: Samples that each stands for, with shape (M,).
    """

    index: Tensor
    current: Tensor
    means: Tensor
    mass: Tensor


class Learner(Protocol[S]):
    """One preset's way of learning."""

    state_type: type[S]
    """Class of the state, for the checkpoint."""

    anneals: bool
    """Whether `converged` becomes true in the course of the stream only."""

    def start(self, n_features: int, device: torch.device) -> S:
        """The state before anything was learned."""
        ...

    def grow(self, state: S, n_classes: int) -> S:
        """Make room for classes: C becomes `n_classes`, which is at least the present C."""
        ...

    def with_merged_classes(self, state: S, merge: ClassMerge, generator: torch.Generator) -> S:
        """Two classes in one: C becomes less by one, and both were the same class all the time.

        Arguments:
            merge: Of two of the C classes.
            generator: On the CPU.
        """
        ...

    def rescale(self, state: S, factor: Tensor, offset: Tensor) -> S:
        """Follow a change of units, x' = factor * x + offset, each with shape (D,), exactly."""
        ...

    def score(self, state: S, x: Tensor) -> Scores | None:
        """Score samples (N, D); None before anything was learned."""
        ...

    def conformity(self, state: S, scores: Scores) -> Tensor:
        """In which ways scored samples fit, with shape (N, S): `core.density.conformity`."""
        ...

    def log_weights(self, state: S) -> Tensor | None:
        """Log weights of the components of `Scores.joint`, (K,); None where not of features."""
        ...

    def readout(self, state: S) -> Readout:
        """From components to classes, as it would be served."""
        ...

    def learn(
        self,
        state: S,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[S, list[Replay]]:
        """Learn one minibatch.

        Arguments:
            x: Samples, with shape (N, D).
            codes: Class per sample, with shape (N,), int64, below C; -1 for unlabelled. Best on the
                CPU, where what follows from them is decided without waiting for a device.
            scores: What `score` said of the same samples under the same state, if known.
            generator: On the CPU.
            least: Log-likelihood, as `score` says it, from which on a sample falls on what is
                known: the labels of others say nothing of components without a name.
        """
        ...

    def surrogates(self, state: S, x: Tensor) -> Tensor | None:
        """What a label may fall on when samples (N, D) themselves are no more, with shape (N, D).

        The mean of the component without a class that is nearest to each; None where the
        family or the model has no such components.
        """
        ...

    def unnamed(self, state: S) -> Unnamed | None:
        """The components without a name; None where the family has no such components."""
        ...

    def vote(self, state: S, x: Tensor, codes: Tensor, weights: Tensor) -> S:
        """Let labels fall on components that were learned without any.

        Arguments:
            x: From `surrogates`, with shape (N, D).
            codes: Class per row, with shape (N,), int64, below C.
            weights: Labelled samples that each stands for, with shape (N,), above 0.
        """
        ...

    def renamed(self, state: S, x: Tensor, codes: Tensor, shown: Tensor) -> S:
        """Labels mean something else from now on; the state is one that has begun a sub-task.

        Arguments:
            x: Samples since then, whose features are as usual, with shape (N, D).
            codes: Their classes, with shape (N,), int64, below C.
            shown: Which classes the sub-task before has shown, with shape (C,), bool: nothing is
                said of others.
        """
        ...

    def absorbed(self, state: S, generator: torch.Generator) -> S:
        """Learn the raw samples that are held, and let them go; components learn on."""
        ...

    def begin_sub_task(self, state: S, generator: torch.Generator) -> tuple[S, list[Replay]]:
        """A boundary: what was learned becomes the generator, raw samples are let go."""
        ...

    def waiting(self, state: S) -> int:
        """Raw samples that `settle` would put into the model; 0 where nothing is worth it."""
        ...

    def settle(self, state: S, generator: torch.Generator) -> S:
        """The stream is quiet: put what waits into the model. Called where `waiting` is not 0.

        Nothing is let go, and learning goes on as if the stream had never been quiet.
        """
        ...

    def converged(self, state: S) -> bool:
        """Whether the likelihood is steady enough for the detector to trust it."""
        ...

    def n_components(self, state: S) -> int:
        """K as it is now."""
        ...

    def latest(self, state: S) -> Tensor:
        """Which components learn from the current sub-task, with shape (K,), bool."""
        ...

    def raw_samples(self, state: S) -> int:
        """Raw samples of the current sub-task held now."""
        ...

    def without_raw(self, state: S) -> S:
        """The same model without any raw sample."""
        ...

    def model(self, state: S) -> Model | None:
        """What is served; None before anything was learned."""
        ...
