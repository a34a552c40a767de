"""A mixture of factor analysers as it is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from core.density.density import Fact, Scored
from core.density.diagonal import log_sum_exp
from core.density.factors import FactorMixture, WhitenedForm, log_joint, sample, whitened_form
from core.density.feature_terms import FeatureTerms, factor_terms
from core.density.traits import Analyser, factor_heights, factor_traits


@dataclass(frozen=True, eq=False)
class FactorDensity:
    """Factor analysers whose raw noise draws, and scores once it is raised to a floor.

    Arguments:
        mixture: With raw noise, not negative.
        floor: Smallest noise variance while scoring, above 0.
    """

    kind: ClassVar[str] = "factors"

    mixture: FactorMixture
    floor: float

    @property
    def log_weights(self) -> Tensor:
        return self.mixture.log_weights

    @property
    def n_components(self) -> int:
        return self.mixture.n_components

    @property
    def n_features(self) -> int:
        return self.mixture.means.shape[1]

    @property
    def device(self) -> torch.device:
        return self.mixture.means.device

    @cached_property
    def form(self) -> WhitenedForm:
        """The mixture in the form that scores fastest."""
        return whitened_form(self.mixture._replace(noise=self.mixture.noise.clamp_min(self.floor)))

    def score(self, x: Tensor) -> Scored:
        joint = log_joint(self.form, x)
        return Scored(joint, log_sum_exp(joint))

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        joint, likelihood = self.score(x)
        largest, components = joint.max(-1)
        terms, expected, factors = factor_terms(self.mixture, self.form, self.floor, components, x)
        rest = self.log_weights[components] + factors + (likelihood - largest)
        return FeatureTerms(components, terms, expected, self.mixture.means[components], rest)

    @cached_property
    def feature_law(self) -> tuple[Tensor, Tensor]:
        _, means, loadings, noise = self.mixture
        return means, (noise + loadings.square().sum(-1)).sqrt()

    @cached_property
    def analyser(self) -> Analyser:
        """All components, as `traits` looks at them."""
        log_weights, means, loadings, _ = self.mixture
        return Analyser(self.form, log_weights, means, loadings, factor_heights(self.form))

    def traits(self, x: Tensor, scored: Scored) -> Tensor:
        return factor_traits([self.analyser], x, *scored)

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        return sample(self.mixture, components.to(self.device), generator, noise)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.mixture._asdict())

    def facts(self) -> dict[str, Fact]:
        return {"floor": self.floor}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        mixture = FactorMixture(**{name: tensors[name] for name in FactorMixture._fields})
        return cls(mixture, float(facts["floor"]))  # type: ignore[arg-type]
