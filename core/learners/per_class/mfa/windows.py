"""Factor analysers from an owner's samples: EM of a window, with all its shifts."""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.blocks import one_by_one
from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.density.diagonal.seeding import without_spread
from core.density.factor_mixture import (
    FactorMixture,
    FactorMoments,
    e_step,
    expected_moments,
    log_joint,
    m_step,
    moments,
    no_moments,
    shared_out,
    whitened_form,
)
from core.density.factors.components import Analysers
from core.density.factors.merging import merged
from core.density.factors.outline import among_likeliest, keeps_to_candidates
from core.density.factors.seeding import FEWEST_COPIES, INITIAL_LOADING, seed_analysers
from core.density.mixture import Moments
from core.learners.per_class.budget import Budget
from core.learners.per_class.mfa.state import AnalyserSet, MfaGroup, MfaState
from core.learners.per_class.windowed import Fit, Parameters, WindowedEM

RIDGE = 1.0
PRIOR_SAMPLES = 10.0
"""Samples' worth of belief in loadings of zero, and in noise of half of what varies."""


class MfaWindows(WindowedEM[MfaState]):
    """Learns windows by factor analysers.

    Arguments:
        shifts: Under which samples are learned as well, all together as one sample.
    """

    def __init__(
        self, budget: Budget, floor: float, samples: int, shifts: Shifts = NO_SHIFTS
    ) -> None:
        super().__init__(budget, floor, samples)
        self.shifts = shifts

    def opened(self, state: MfaState, owner: int, window: Tensor, codes: Tensor) -> MfaGroup:
        none = Analysers.none(state.n_features, state.n_factors, state.n_classes, window.device)
        bank = AnalyserSet(none, self.floor)
        return MfaGroup(owner=owner, samples=0, window=window, codes=codes, bank=bank, sums=None)

    def seeded(
        self,
        state: MfaState,
        x: Tensor,
        k: int,
        generator: torch.Generator,
        beside: Tensor | None = None,
    ) -> tuple[Tensor, Parameters]:
        return seed_analysers(x, k, state.n_factors, generator, beside)

    def fitted(
        self,
        x: Tensor,
        before: FactorMoments | None,
        mass: Tensor,
        parameters: Parameters,
        rounds: int,
    ) -> Fit:
        means, loadings, noise = parameters
        before = no_moments(len(mass), loadings.shape[-1], x) if before is None else before
        squared = x.square()
        shape = (len(mass), x.shape[1], loadings.shape[-1])
        few = one_by_one(x) and keeps_to_candidates(*shape)
        joint: Tensor | None = None
        for _ in range(rounds):
            weights = (mass / mass.sum()).clamp_min(1e-9).log()
            mixture = FactorMixture(weights, means, loadings, noise.clamp_min(self.floor))
            form = whitened_form(mixture)
            if few and joint is not None:
                joint = among_likeliest(mixture, form, x, joint)
            else:
                joint = log_joint(form, x, squared)
            shares = shared_out(joint)
            new = moments(form, shares, x, squared)
            # Shifts are made when they are learned, and never held.
            shifted = [e_step(form, moved)[0] for moved in self.shifts.of_samples(x)]
            versions = tuple(before + part for part in (new, *shifted))
            for part in shifted:
                new = new + part
            sums = before + new.scaled(1 / (1 + len(self.shifts))) if shifted else versions[0]
            means, loadings, noise = m_step(sums, 0.5 * sums.spread_of_all, RIDGE, PRIOR_SAMPLES)
            mass = sums.mass
        return Fit(sums, shares, (means, loadings, noise), copies(sums.mass, versions))

    def expected(self, mass: Tensor, components: Analysers) -> FactorMoments:
        return expected_moments(mass, (components.means, components.loadings, components.noise))

    def broad(
        self, state: MfaState, means: Tensor, variances: Tensor, generator: torch.Generator
    ) -> Parameters:
        shape = (*means.shape, state.n_factors)
        sparks = torch.randn(shape, generator=generator).to(means)
        return means, sparks * INITIAL_LOADING * variances.sqrt()[..., None], variances

    def made(self, mass: Tensor, parameters: Parameters, owner: int, n_classes: int) -> Analysers:
        means, loadings, noise = parameters
        return Analysers.of_owner(mass, (means, loadings, noise), owner, n_classes)

    def parameters(self, components: Analysers) -> Parameters:
        return components.means, components.loadings, components.noise

    def variances(self, components: Analysers) -> Tensor:
        return components.noise + components.loadings.square().sum(-1)

    def merged(self, components: Analysers, most: int) -> Analysers:
        return merged(components, most, self.floor)


def copies(mass: Tensor, versions: tuple[FactorMoments, ...]) -> Tensor:
    """Whose samples are one sample, sent too few times to be a fact; shape (K,), bool.

    Shifts of one sample differ from each other, but say no more than that sample.

    Arguments:
        mass: Samples of each component, with shape (K,).
        versions: Statistics of samples as they came, and of each shift of them.
    """
    alike = [
        without_spread(Moments(part.mass, part.cross[..., -1], part.second)) for part in versions
    ]
    return torch.stack(alike).all(0) & (mass < FEWEST_COPIES)
