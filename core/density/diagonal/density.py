"""A mixture of diagonal Gaussians as it is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from core.density.conformity import diagonal_conformity
from core.density.density import Fact, Parts, Scored
from core.density.feature_terms import FeatureTerms, diagonal_terms
from core.density.mixture import (
    Mixture,
    NaturalForm,
    log_joint,
    log_sum_exp,
    natural_form_and_peaks,
    sample,
)


@dataclass(frozen=True, eq=False)
class DiagonalDensity:
    """Diagonal components with two variances each.

    The floored ones score, the raw ones draw. Samples drawn with floored variances are
    grey, and a model refitted on them forgets.

    Arguments:
        mixture: For inference, with floored variances.
        deviations: Raw standard deviations for sampling, with shape (K, D), not negative.
    """

    kind: ClassVar[str] = "diagonal"

    mixture: Mixture
    deviations: Tensor

    @property
    def log_weights(self) -> Tensor:
        return self.mixture.log_weights

    @property
    def n_components(self) -> int:
        return self.mixture.n_components

    @property
    def n_features(self) -> int:
        return self.deviations.shape[1]

    @property
    def device(self) -> torch.device:
        return self.deviations.device

    @cached_property
    def _form_and_peaks(self) -> tuple[NaturalForm, Tensor]:
        return natural_form_and_peaks(self.mixture)

    @property
    def form(self) -> NaturalForm:
        """The mixture in the form that scores fastest."""
        return self._form_and_peaks[0]

    @property
    def log_peaks(self) -> Tensor:
        """Log density of each component at its mean, without its weight, with shape (K,)."""
        return self._form_and_peaks[1]

    def gathered(self) -> DiagonalDensity:
        return self

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        joint = log_joint(self.form, x)
        return Scored(joint, log_sum_exp(joint))

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        joint, log_likelihood = self.score(x)
        largest, components = joint.max(-1)
        terms, expected = diagonal_terms(self.mixture, self.deviations, components, x)
        rest = self.log_weights[components] + (log_likelihood - largest)
        return FeatureTerms(components, terms, expected, self.mixture.means[components], rest)

    @property
    def feature_law(self) -> tuple[Tensor, Tensor]:
        return self.mixture.means, self.deviations

    def conformity(self, x: Tensor, scored: Scored, *, closeness: bool = True) -> Tensor:
        return diagonal_conformity(
            self.log_weights, self.log_peaks, x, *scored, closeness=closeness
        )

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        # All that a diagonal component varies by is noise of single features.
        if not noise:
            return self.mixture.means[components.to(self.device)]
        deviations = self.deviations if noise == 1 else self.deviations * noise
        return sample(self.mixture.means, deviations, components.to(self.device), generator)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.mixture._asdict(), deviations=self.deviations)

    def facts(self) -> dict[str, Fact]:
        return {}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        mixture = Mixture(tensors["log_weights"], tensors["means"], tensors["precision_root"])
        return cls(mixture, tensors["deviations"])
