"""Merging, pooling and thawing, until everyone keeps to the budget.

Room is made by replay: what an owner's components stand for is fitted anew by fewer of
them. Analytic replay, the usual one, draws nothing for it; sampled replay goes on from
there with generated samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS, Components
from core.density.diagonal.merging import EM_ROUNDS, consolidate
from core.density.diagonal.seeding import FEWEST_SAMPLES
from core.density.mixture import log_joint, means_and_variances, moments, responsibilities
from core.learners.per_class.budget import Budget
from core.learners.per_class.flat.state import FlatState
from core.learners.per_class.flat.stepwise import STEP_SAMPLES, StepwiseEM
from core.learners.per_class.flat.windows import Windows
from core.learners.per_class.sampled_replay import SampledReplay
from core.model.model import Model
from core.model.readout import class_shares


@dataclass(frozen=True)
class Capacity:
    """Makes room.

    Arguments:
        budget: Decides how much.
        windows: Closes the window of an owner that gets no components of its own.
        em: Finishes statistics before components are merged.
        floor: Smallest variance while responsibilities are computed.
        regenerator: Draws samples, where replay is to be sampled.
        served: What `Learner.model` makes of components: the model to draw from.
    """

    budget: Budget
    windows: Windows
    em: StepwiseEM
    floor: float
    regenerator: SampledReplay
    served: Callable[[Components], Model]

    def fitted(
        self, state: FlatState, generator: torch.Generator, incoming: tuple[int, int] = (0, 0)
    ) -> FlatState:
        """With every owner's components merged down to what it is allowed.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        state = self.em.maximised(state, at_least=1)  # merging lets go of unfinished statistics
        state = replace(state, pool_allowance=self.budget.pool_allowance(state, incoming))
        split = {
            owner: self.budget.split(state, owner, allowed)
            for owner, allowed in self.budget.allowance(state).items()
        }
        for owner, (most_frozen, _) in split.items():
            if most_frozen == 0:
                state = self._thawed(state, owner, generator)
        frozen, active = state.frozen, state.active
        for owner, (most_frozen, most_active) in split.items():
            frozen = self._merged(state, frozen, owner, most_frozen, generator)
            merged = self._merged(state, active, owner, most_active, generator)
            if len(merged) != len(active):
                state = state.with_components(frozen, merged, restart=owner)
                active = merged
        return state.with_components(frozen, active)

    def pooled(self, state: FlatState, arriving: set[int]) -> FlatState:
        """With classes sharing components, where there are more owners than the budget has."""
        pooled, smallest = self.budget.pooled(state, arriving)
        if smallest is not None:
            state = self._handed_to_pool(state, smallest)
        return replace(state, pooled=tuple(sorted({*state.pooled, *pooled})))

    def _handed_to_pool(self, state: FlatState, owner: int) -> FlatState:
        """The first class of the pool brings its components, which vote for it, and its group."""
        old = state.components
        mine = old.owner == owner
        votes = old.votes.clone()
        votes[mine] = class_shares(votes[mine]) * old.mass[mine, None]
        handed = replace(old, owner=old.owner.masked_fill(mine, NO_CLASS), votes=votes)
        groups = tuple(
            replace(group, owner=NO_CLASS) if group.owner == owner else group
            for group in state.groups
        )
        sub_tasks = {
            NO_CLASS if other == owner else other: count
            for other, count in state.sub_tasks_of.items()
        }
        return replace(state.with_values(handed), groups=groups, sub_tasks_of=sub_tasks)

    def _thawed(self, state: FlatState, owner: int, generator: torch.Generator) -> FlatState:
        """Go on with an owner's frozen components where there is no room for new ones."""
        mine = state.frozen.owner == owner
        if not bool(mine.any()):
            return state
        index = state.index_of(owner)
        state = self.windows.closed(state, index, generator, most=1)
        frozen, active = state.frozen, state.active
        thawed = frozen.select(mine)
        samples = float(thawed.mass.sum())
        group = state.groups[index]
        group = replace(
            group,
            samples=group.samples + samples,
            steps=group.steps + samples / STEP_SAMPLES,
            window=None,
            codes=None,
        )
        state = replace(
            state.with_group(index, group), sub_tasks_of={**state.sub_tasks_of, owner: 0}
        )
        others = active.owner != owner
        parts = [active.select(others), active.select(~others), thawed]
        active = Components.concatenated(parts)
        return state.with_components(frozen.select(~mine), active, restart=owner)

    def _merged(
        self,
        state: FlatState,
        components: Components,
        owner: int,
        most: int,
        generator: torch.Generator,
    ) -> Components:
        """`components` with at most `most` of this owner's, the merged ones last."""
        mine = components.owner == owner
        if int(mine.sum()) <= most:
            return components
        old = components.select(mine)
        sums, shares = consolidate(old.moments(), most, self.floor)
        merged = Components.of_owner(sums, owner, components.votes.shape[1])
        merged = replace(merged, votes=shares.T @ old.votes)
        # A class is told from the others by the whole model, which knows them all.
        model = self.served(old if owner == NO_CLASS else state.components)
        x = self.regenerator.samples(model, owner, float(old.mass.sum()), generator)
        if x is not None:
            merged = self._refitted(merged, x)
        return Components.concatenated([components.select(~mine), merged])

    def _refitted(self, merged: Components, x: Tensor) -> Components:
        """Components fitted to generated samples, with shape (N, D); masses and votes stay."""
        total, squared = merged.mass.sum(), x.square()
        fitted = merged
        for _ in range(EM_ROUNDS):
            shares = responsibilities(log_joint(fitted.mixture(self.floor), x, squared))
            sums = moments(shares, x, squared)
            if bool((sums.mass < FEWEST_SAMPLES).any()):
                return fitted
            means, variances = means_and_variances(sums, floor=0.0)
            mass = sums.mass * (total / sums.mass.sum())
            fitted = replace(fitted, mass=mass, means=means, variances=variances)
        return fitted
