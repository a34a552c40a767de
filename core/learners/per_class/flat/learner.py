"""Preset `flat` behind the protocol of every learner."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.conformity import diagonal_conformity
from core.density.diagonal.components import Components
from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Moments, log_joint, log_sum_exp
from core.density.owned import NO_CLASS
from core.learners.learner import Scores
from core.learners.per_class.budget import Budget
from core.learners.per_class.flat.state import LEAST_MASS, FlatState
from core.learners.per_class.flat.stepwise import stepped
from core.learners.per_class.flat.windows import FirstWindows
from core.learners.per_class.learner import PerClassLearner
from core.standardiser import CLIP

FEATURES_PER_DEGREE = 25
"""The read-out's temperature is D over this: chosen on held-out training data of MNIST."""


class FlatLearner(PerClassLearner[FlatState]):
    """Learns `FlatState`; holds settings only."""

    state_type = FlatState
    takes_scores = True
    windows: FirstWindows

    def windows_of(self, config: EngineConfig, budget: Budget) -> FirstWindows:
        return FirstWindows(budget, self.floor, config.window)

    def empty(self, n_features: int, device: torch.device) -> FlatState:
        return FlatState.empty(n_features, self.floor, device)

    def moved(self, components: Components, factor: Tensor, offset: Tensor) -> Components:
        means, variances = _moved(components.means, components.variances, factor, offset)
        return replace(components, means=means, variances=variances)

    def rescale(self, state: FlatState, factor: Tensor, offset: Tensor) -> FlatState:
        state = super().rescale(state, factor, offset)
        pending = state.pending
        mass = pending.mass[:, None]
        first = pending.first / mass.clamp_min(LEAST_MASS)
        second = pending.second / mass.clamp_min(LEAST_MASS)
        means, variances = _moved(first, second - first.square(), factor, offset)
        moments = Moments(pending.mass, mass * means, mass * (means.square() + variances))
        return replace(state, pending=moments)

    def score(self, state: FlatState, x: Tensor) -> Scores | None:
        if not len(state):
            return None
        squared = x.square()
        joint = log_joint(state.mixing.form, x, squared)
        return Scores(x, squared, joint, log_sum_exp(joint))

    def conformity(self, state: FlatState, scores: Scores) -> Tensor:
        weights, log_peaks = self.log_weights(state), state.mixing.log_peaks
        return diagonal_conformity(
            weights, log_peaks, scores.x, scores.joint, scores.log_likelihood
        )

    def log_weights(self, state: FlatState) -> Tensor:
        mass = state.components.mass
        return (mass / mass.sum()).log()

    def density(self, state: FlatState) -> DiagonalDensity:
        components = state.components
        return DiagonalDensity(components.mixture(self.floor), components.variances.sqrt())

    def temperature(self, n_features: int) -> float:
        return max(1.0, n_features / FEATURES_PER_DEGREE)

    def taken(
        self,
        state: FlatState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
    ) -> FlatState:
        owners = state.owners_of(codes)
        stepping = torch.ones(len(x), dtype=torch.bool)
        for owner in sorted(set(owners.tolist())):
            index = state.index_of(owner)
            if state.groups[index].window is not None:
                rows = (owners == owner).nonzero()[:, 0]
                mine, said = x[rows.to(x.device)], codes[rows].to(x.device)
                state, taken = self._held(state, index, mine, said, generator)
                stepping[rows[:taken]] = False
                scores = None
        if bool(stepping.all()):
            return stepped(state, x, codes, scores)
        if bool(stepping.any()):
            rows = stepping.nonzero()[:, 0]
            return stepped(state, x[rows.to(x.device)], codes[rows], None)
        return state

    def _held(
        self, state: FlatState, index: int, x: Tensor, codes: Tensor, generator: torch.Generator
    ) -> tuple[FlatState, int]:
        """Hold an owner's first samples, starting components anew at every doubling.

        Returns:
            The state, and how many of the samples the window took.
        """
        state, taken = self.windows.take(state, index, x, codes)
        if not self.windows.is_due(state, index):
            return state, taken
        group = state.groups[index]
        if group.owner == NO_CLASS:
            # Its share of the budget follows its share of the samples.
            news = group.held - group.seeded_at
            state = self.capacity.fitted(state, generator, (news, news))
            if state.groups[index].window is None:
                return state, taken  # no room for new components: the frozen ones go on
        return self.windows.started(state, index, generator), taken


def _moved(
    means: Tensor, variances: Tensor, factor: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Means and variances, both (K, D), of x' = factor * x + offset.

    No standardised sample lies outside the clip, so that no mean or deviation can.
    """
    means = (means * factor + offset).clamp(-CLIP, CLIP)
    # Not by the square of the factor, which may overflow where the product does not.
    return means, (variances.clamp_min(0) * factor * factor).clamp_max(CLIP**2)
