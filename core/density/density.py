"""The protocol of a density, as it answers, whatever the family: it scores samples and draws them.

A model (`core.model.model`) is a density with a read-out. A family that is served has one class
here that satisfies `Density`; how it is learned is the business of `core.learners`.

Throughout: N samples, D features, K components; features are standardised, log values in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from core.density.feature_terms import FeatureTerms

Fact = int | float | str | bool | list[int]
"""A plain value that belongs to a density beside its tensors."""


Parts = dict[object, Tensor]
"""What parts of mixtures say of the same samples, by part: log-joint values up to a constant, with
shape (N, components of the part)."""


class Scored(NamedTuple):
    """One forward pass."""

    joint: Tensor  # (N, K) log weight + log density of every component
    log_likelihood: Tensor  # (N,) of the whole density


class Density(Protocol):
    """A mixture of K components, immutable."""

    kind: ClassVar[str]
    """Names the family in files."""

    @property
    def log_weights(self) -> Tensor:
        """Logs of the components' weights, with shape (K,); their exponentials sum to one."""
        ...

    @property
    def n_components(self) -> int:
        """K."""
        ...

    @property
    def n_features(self) -> int:
        """D."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its tensors live."""
        ...

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        """Score samples, with shape (N, D). What can be computed once is kept.

        Arguments:
            parts: Where the family has parts, what some are known to say of these samples is not
                worked out again, and what is worked out is added.
        """
        ...

    def gathered(self) -> Density:
        """The same density without parts, which is asked faster."""
        ...

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        """What each feature adds to the log-likelihood of samples, with shape (N, D)."""
        ...

    @property
    def feature_law(self) -> tuple[Tensor, Tensor] | None:
        """Mean and standard deviation of each feature in each component, with shape (K, D) each.

        None where components are not of features.
        """
        ...

    def conformity(self, x: Tensor, scored: Scored, *, closeness: bool = True) -> Tensor:
        """In which ways samples (N, D) fit, with shape (N, S): `core.density.conformity`.

        Arguments:
            scored: What `score` said of them, the log-likelihood in whichever units.
            closeness: Whether anybody looks at the first conformity score; else it may be anything.
        """
        ...

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        """Draw one sample from each of the named components, with shape (N, D).

        Arguments:
            components: With shape (N,), int64, on any device.
            generator: On the CPU, so that samples do not depend on the device.
            noise: Times the deviation of what the family takes for noise of single features;
                1 draws from the density itself. At 0 samples show what is common to many
                features, and look cleaner.
        """
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything it is made of, by name."""
        ...

    def facts(self) -> dict[str, Fact]:
        """What else it takes to make it again."""
        ...

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        """The inverse of `tensors` and `facts`; a missing one is a `KeyError`."""
        ...
