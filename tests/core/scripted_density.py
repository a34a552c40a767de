"""A density that says what it was told to: samples carry their own score.

A sample is [log-likelihood, component], so that the whole way from features to scores is
the real one (`core.drift.sequential.frozen_model`) while a test writes down what the model says. A
third feature is by how many nats the component stands above all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from core.density.density import Fact, Parts, Scored
from core.density.feature_terms import FeatureTerms
from core.drift.sequential.frozen_model import FrozenModel
from core.model.model import Model
from core.model.readout import PosteriorReadout
from core.standardiser import Standardiser

N_FEATURES = 2

FAR_BELOW = 69.0
"""Nats between the component that wins and the others, where a sample does not say."""


@dataclass(frozen=True)
class ScriptedDensity:
    """Gives back the columns of its samples; satisfies `core.density.density.Density`.

    Arguments:
        n_components: K; a sample's second feature is one of 0 to K - 1.
        shift: Added to every log-likelihood, to tell one version from another.
    """

    kind: ClassVar[str] = "scripted"

    n_components: int
    shift: float = 0.0

    @property
    def log_weights(self) -> Tensor:
        return torch.full((self.n_components,), 1 / self.n_components).log()

    @property
    def n_features(self) -> int:
        return N_FEATURES

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        others = 1 - torch.nn.functional.one_hot(x[:, 1].long(), self.n_components)
        log_likelihood = x[:, 0] + self.shift
        margins = x[:, 2:] if x.shape[1] > N_FEATURES else torch.full_like(x[:, :1], FAR_BELOW)
        return Scored(log_likelihood[:, None] - margins * others, log_likelihood)

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        """All of the log-likelihood comes from the first feature."""
        terms = torch.stack([x[:, 0], torch.zeros_like(x[:, 1])], 1)
        still = torch.zeros_like(x)
        return FeatureTerms(x[:, 1].long(), terms, still, still, still[:, 0] + self.shift)

    @property
    def feature_law(self) -> None:
        return None

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        scores = torch.randn(len(components), generator=generator) * noise
        return torch.stack([scores, components.cpu().float()], 1)

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def facts(self) -> dict[str, Fact]:
        return {"n_components": self.n_components, "shift": self.shift}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        return cls(int(facts["n_components"]), float(facts["shift"]))  # type: ignore[arg-type]


def identity(n_features: int = N_FEATURES) -> Standardiser:
    """A standardiser that leaves features as they are."""
    return Standardiser.of(torch.tensor([[0.0] * n_features, [1.0] * n_features]), images=True)


def frozen_model(
    n_components: int,
    taken_at: int = 0,
    classes: list[int] | None = None,
    shift: float = 0.0,
    n_features: int = N_FEATURES,
) -> FrozenModel:
    """A frozen model that gives back the columns of its samples.

    Arguments:
        taken_at: Samples of the sub-task when it was taken.
        classes: That each component stands for; None where there are no labels.
        shift: Of its log-likelihoods.
        n_features: 3 where samples say how far the other components lie below.
    """
    labels = torch.tensor(classes or [0] * n_components)
    shares = torch.nn.functional.one_hot(labels).float()
    readout = PosteriorReadout(shares if classes else shares[:, :0], temperature=1.0)
    model = Model(ScriptedDensity(n_components, shift), readout)
    return FrozenModel(model, identity(n_features), taken_at)
