"""A family of densities of your own with its learner, in one file: spherical Gaussians.

A component has one variance for all features: D + 2 numbers, where a diagonal one has 2 D + 1. The
learner is the one of all families whose components belong to classes (`core.learners.per_class`):
owners, labels, boundaries and room are its business. What is here is how components are seeded,
fitted and merged, and how they score. `gmr.checks.check_learner(SphericalLearner)` tries it.

Offer both to the service by entry points of your package, and choose the learner as a preset:

    [project.entry-points."gmr.learners"]
    spherical = "spherical:SphericalLearner"

    [project.entry-points."gmr.densities"]
    spherical = "spherical:SphericalDensity"

    GMR_PRESET=spherical gmr serve
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from core.config import EngineConfig, Preset
from core.density.density import Scored
from core.density.diagonal.density import DiagonalDensity
from core.density.diagonal.merging import ward
from core.density.diagonal.seeding import k_means_plus_plus, next_to_samples
from core.density.mixture import (
    Mixture,
    Moments,
    log_joint,
    moments,
    natural_form,
    responsibilities,
)
from core.density.owned import NO_CLASS, Owned, ownership
from core.learners.learner import Scores
from core.learners.per_class.banks import BankGroup, BankState
from core.learners.per_class.budget import Budget
from core.learners.per_class.state import ComponentSet
from core.learners.per_class.windowed import Fit, Parameters, WindowedEM, WindowedLearner
from core.standardiser import CLIP

FEATURES_PER_DEGREE = 25
PRIOR_SAMPLES = 5.0
"""Samples' worth of belief that a component varies as all samples do."""


class SphericalDensity(DiagonalDensity):
    """Diagonal components whose features all vary alike, which files need to say only once."""

    kind: ClassVar[str] = "spherical"

    def tensors(self) -> dict[str, Tensor]:
        log_weights, means, precision_root = self.mixture
        once = {"precision_root": precision_root[:, 0], "deviation": self.deviations[:, 0]}
        return {"log_weights": log_weights, "means": means, **once}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        means = tensors["means"]
        root, deviations = (
            tensors[name][:, None].repeat(1, means.shape[1])
            for name in ("precision_root", "deviation")
        )
        return cls(Mixture(tensors["log_weights"], means, root), deviations)


@dataclass(frozen=True, eq=False)
class Spheres(Owned):
    """K spherical Gaussians, of raw variances (K,)."""

    variance: Tensor

    @classmethod
    def of(cls, mass: Tensor, parameters: Parameters, owner: int, n_classes: int) -> Spheres:
        means, variance = parameters
        return cls(**ownership(mass, owner, n_classes), means=means, variance=variance)

    def mixture(self, floor: float, total: Tensor | float) -> Mixture:
        """As diagonal components, whose weights are masses over a total."""
        root = self.variance.clamp_min(floor).rsqrt()[:, None].expand_as(self.means)
        return Mixture((self.mass / total).log(), self.means, root)

    @property
    def sums(self) -> Moments:
        """The statistics that they would generate."""
        second = self.means.square() + self.variance[:, None]
        return Moments(self.mass, self.mass[:, None] * self.means, self.mass[:, None] * second)


class Scorer:
    """Scores samples by some of a mixture's components."""

    def __init__(self, mixture: Mixture) -> None:
        self.form = natural_form(mixture)

    def log_joint(self, x: Tensor, x_squared: Tensor) -> Tensor:
        return log_joint(self.form, x, x_squared)


@dataclass(frozen=True, eq=False)
class SphericalSet(ComponentSet[Spheres]):
    """Components with what scores them."""

    components: Spheres

    @cached_property
    def form(self) -> Scorer:
        return Scorer(self.components.mixture(self.floor, total=1.0))


@dataclass(frozen=True, eq=False, kw_only=True)
class SphericalGroup(BankGroup):
    """The samples of one owner in the current sub-task: their types, for the checkpoint."""

    bank: SphericalSet
    sums: Moments | None
    base: SphericalSet | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SphericalState(BankState):
    """Everything that is learned: its types, for the checkpoint."""

    frozen: SphericalSet
    groups: tuple[SphericalGroup, ...]


def fit(sums: Moments, prior: Tensor | None = None) -> Parameters:
    """Means (K, D) and variances (K,) by statistics, and by what is believed of a variance."""
    mass = sums.mass.clamp_min(1e-6)
    means = sums.first / mass[:, None]
    variance = (sums.second / mass[:, None] - means.square()).mean(-1).clamp_min(0)
    if prior is not None:
        variance = (mass * variance + PRIOR_SAMPLES * prior) / (mass + PRIOR_SAMPLES)
    return means, variance


class SphericalWindows(WindowedEM[SphericalState]):
    """Learns windows by spherical components."""

    def nothing(self, n_features: int, n_classes: int, device: torch.device) -> SphericalSet:
        """A set of no component."""
        none = torch.zeros(0, n_features, device=device)
        spheres = Spheres.of(none[:, 0], (none, none[:, 0]), NO_CLASS, n_classes)
        return SphericalSet(spheres, self.floor)

    def opened(
        self, state: SphericalState, owner: int, window: Tensor, codes: Tensor
    ) -> SphericalGroup:
        bank = self.nothing(state.n_features, state.n_classes, window.device)
        return SphericalGroup(
            owner=owner, samples=0, window=window, codes=codes, bank=bank, sums=None
        )

    def seeded(
        self,
        state: SphericalState,
        x: Tensor,
        k: int,
        generator: torch.Generator,
        beside: Tensor | None = None,
    ) -> tuple[Tensor, Parameters]:
        there = x[:0] if beside is None else beside
        picked = x[k_means_plus_plus(x, min(k, len(x)), generator, there)]
        which = torch.cdist(x, torch.cat([there, picked])).argmin(1) - len(there)
        shares = (which[:, None] == torch.arange(len(picked), device=x.device)).to(x)
        sums = moments(shares, x)
        kept = ~next_to_samples(sums)
        if not len(there) and not bool(kept.any()):
            kept[sums.mass.argmax()] = True
        sums = Moments(*(part[kept] for part in sums))
        return sums.mass, fit(sums, x.var(0, correction=0).mean() / 2)

    def fitted(
        self,
        x: Tensor,
        before: Moments | None,
        mass: Tensor,
        parameters: Parameters,
        rounds: int,
    ) -> Fit:
        prior = x.var(0, correction=0).mean() / 2
        for _ in range(rounds):
            spheres = Spheres.of(mass.clamp_min(1e-6), parameters, NO_CLASS, 0)
            joint = log_joint(spheres.mixture(self.floor, mass.sum()), x)
            shares = responsibilities(joint)
            sums = moments(shares, x) if before is None else before + moments(shares, x)
            mass, parameters = sums.mass, fit(sums, prior)
        return Fit(sums, shares, parameters, next_to_samples(sums))

    def expected(self, mass: Tensor, components: Spheres) -> Moments:
        return replace(components, mass=mass).sums

    def broad(
        self, state: SphericalState, means: Tensor, variances: Tensor, generator: torch.Generator
    ) -> Parameters:
        return means, variances.mean(-1)

    def made(self, mass: Tensor, parameters: Parameters, owner: int, n_classes: int) -> Spheres:
        return Spheres.of(mass, parameters, owner, n_classes)

    def parameters(self, components: Spheres) -> Parameters:
        return components.means, components.variance

    def variances(self, components: Spheres) -> Tensor:
        return components.variance[:, None].expand_as(components.means)

    def merged(self, components: Spheres, most: int) -> Spheres:
        if len(components) <= most:
            return components
        shares = ward(components.mass, components.means, most)
        sums, owner = Moments(*(shares.T @ part for part in components.sums)), components.owner[0]
        fewer = Spheres.of(sums.mass, fit(sums), int(owner), components.votes.shape[1])
        return replace(fewer, votes=shares.T @ components.votes)


class SphericalLearner(WindowedLearner[SphericalState]):
    """Learns `SphericalState`; holds settings only."""

    state_type = SphericalState
    preset = Preset(budget=200, experts=True)
    windows: SphericalWindows

    def windows_of(self, config: EngineConfig, budget: Budget) -> SphericalWindows:
        return SphericalWindows(budget, config.variance_floor, config.window)

    def empty(self, n_features: int, device: torch.device) -> SphericalState:
        none = self.windows.nothing(n_features, 0, device)
        return SphericalState(**SphericalState.beginning(n_features, device), frozen=none)

    def moved(self, components: Spheres, factor: Tensor, offset: Tensor) -> Spheres:
        # One variance follows what the features' become in the mean.
        variance = components.variance * factor.square().mean()
        means = (components.means * factor + offset).clamp(-CLIP, CLIP)
        return replace(components, means=means, variance=variance.clamp_max(CLIP**2))

    def conformity(self, state: SphericalState, scores: Scores) -> Tensor:
        joint, log_likelihood = scores.joint, scores.log_likelihood
        return self.density(state).conformity(scores.x, Scored(joint, log_likelihood))

    def density(self, state: SphericalState) -> SphericalDensity:
        spheres = state.components
        deviations = spheres.variance.sqrt()[:, None].expand_as(spheres.means)
        return SphericalDensity(spheres.mixture(self.floor, spheres.mass.sum()), deviations)

    def temperature(self, n_features: int) -> float:
        return max(1.0, n_features / FEATURES_PER_DEGREE)
