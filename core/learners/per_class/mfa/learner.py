"""Preset `mfa` behind the protocol of every learner."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.blocks import one_by_one
from core.density.density import Parts, Scored
from core.density.factor_mixture import n_factors_of
from core.density.factors.components import Analysers
from core.density.factors.density import FactorDensity
from core.density.factors.outline import GROWTH, directions_of, pays
from core.learners.learner import Replay, Scores
from core.learners.per_class.budget import Budget
from core.learners.per_class.mfa.state import MfaState
from core.learners.per_class.mfa.windows import MfaWindows
from core.learners.per_class.windowed import WindowedLearner
from core.standardiser import CLIP

FEATURES_PER_DEGREE = 56
"""The read-out's temperature is D over this: chosen on held-out training data of MNIST."""

SHIFTED_FEATURES_PER_DEGREE = 80
"""The same where shifts of a sample are heard, likewise."""


class MfaLearner(WindowedLearner[MfaState]):
    """Learns `MfaState`; holds settings only."""

    state_type = MfaState

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.n_factors = config.n_factors

    def windows_of(self, config: EngineConfig, budget: Budget) -> MfaWindows:
        return MfaWindows(budget, self.floor, config.window, self.shifts)

    def empty(self, n_features: int, device: torch.device) -> MfaState:
        n_factors = n_factors_of(n_features, self.n_factors)
        return MfaState.empty(n_features, n_factors, self.floor, device)

    def moved(self, components: Analysers, factor: Tensor, offset: Tensor) -> Analysers:
        # No standardised sample lies outside the clip, so that no mean or deviation can.
        # Not by the square of the factor, which may overflow where the product does not.
        return replace(
            components,
            means=(components.means * factor + offset).clamp(-CLIP, CLIP),
            loadings=(components.loadings * factor[:, None]).clamp(-CLIP, CLIP),
            noise=(components.noise * factor * factor).clamp_max(CLIP**2),
        )

    def conformity(self, state: MfaState, scores: Scores) -> Tensor:
        return state.density.conformity(scores.x, Scored(scores.joint, scores.log_likelihood))

    def density(self, state: MfaState) -> FactorDensity:
        return state.density

    def score(self, state: MfaState, x: Tensor) -> Scores | None:
        if state.directions is None and one_by_one(x):
            return super().score(state, x)
        if not len(state):
            return None
        parts: Parts = {}
        joint, log_likelihood = state.density.score(x, parts)
        return Scores(x, None, joint, log_likelihood, parts)

    def taken(
        self,
        state: MfaState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
    ) -> MfaState:
        return _directed(super().taken(state, x, codes, scores, generator))

    def absorbed(self, state: MfaState, generator: torch.Generator) -> MfaState:
        return _directed(super().absorbed(state, generator))

    def begin_sub_task(
        self, state: MfaState, generator: torch.Generator
    ) -> tuple[MfaState, list[Replay]]:
        state, replays = super().begin_sub_task(state, generator)
        return _directed(replace(state, directed=0)), replays

    def temperature(self, n_features: int) -> float:
        per_degree = SHIFTED_FEATURES_PER_DEGREE if len(self.shifts) else FEATURES_PER_DEGREE
        return max(1.0, n_features / per_degree)


def _directed(state: MfaState) -> MfaState:
    """With directions to tell components apart by, chosen anew where there are many more now."""
    k = len(state)
    if not pays(k, state.n_features, state.n_factors):
        return state if state.directions is None else replace(state, directions=None, directed=0)
    if state.directions is not None and k < GROWTH * state.directed:
        return state
    return replace(state, directions=directions_of(state.column("means")), directed=k)
