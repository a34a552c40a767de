"""Merging, pooling and thawing, until everyone keeps to the budget.

Room is made by analytic replay only: what an owner's components stand for is fitted
anew by fewer of them, and nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from core.density.components import NO_CLASS, Components
from core.density.merging import consolidate
from core.learners.flat.budget import Budget
from core.learners.flat.state import FlatState
from core.learners.flat.stepwise import STEP_SAMPLES, StepwiseEM
from core.learners.flat.windows import Windows


@dataclass(frozen=True)
class Room:
    """Makes room.

    Arguments:
        budget: Decides how much.
        windows: Closes the window of an owner that gets no components of its own.
        em: Finishes statistics before components are merged.
        floor: Smallest variance while responsibilities are computed.
    """

    budget: Budget
    windows: Windows
    em: StepwiseEM
    floor: float

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
            frozen = self._merged(frozen, owner, most_frozen)
            merged = self._merged(active, owner, most_active)
            if len(merged) != len(active):
                state = state.with_components(frozen, merged, restart=owner)
                active = merged
        return state.with_components(frozen, active)

    def pooled(self, state: FlatState, arriving: set[int]) -> FlatState:
        """With classes sharing components, where there are more owners than the budget has."""
        known = state.owners
        if len(known | arriving) <= self.budget.n_components:
            return state
        # One place is the pool's. Whoever has components of its own keeps them, but for the
        # smallest, if all places are taken.
        own = known - {NO_CLASS}
        places = self.budget.n_components - 1
        newcomers = sorted(arriving - known - {NO_CLASS})
        pooled = {*state.pooled, *newcomers[max(0, places - len(own)) :]}
        if len(own) > places:
            components = state.components
            masses = {
                owner: float(components.mass[components.owner == owner].sum()) for owner in own
            }
            smallest = min(own, key=lambda owner: (masses[owner], -owner))
            pooled.add(smallest)
            state = self._handed_to_pool(state, smallest)
        return replace(state, pooled=tuple(sorted(pooled)))

    def _handed_to_pool(self, state: FlatState, owner: int) -> FlatState:
        """The first class of the pool brings its components, which vote for it, and its group."""
        old = state.components
        mine = old.owner == owner
        votes = old.votes.clone()
        votes[mine, owner] = old.mass[mine]
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

    def _merged(self, components: Components, owner: int, most: int) -> Components:
        """`components` with at most `most` of this owner's, the merged ones last."""
        mine = components.owner == owner
        if int(mine.sum()) <= most:
            return components
        old = components.select(mine)
        sums, shares = consolidate(old.moments(), most, self.floor)
        merged = Components.of_owner(sums, owner, components.votes.shape[1])
        merged = replace(merged, votes=shares.T @ old.votes)
        return Components.concatenated([components.select(~mine), merged])
