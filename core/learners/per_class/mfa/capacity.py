"""Merging, pooling and thawing, until everyone keeps to the budget.

Room is made by replay: what an owner's components stand for is said again by fewer of
them. Analytic replay, the usual one, draws nothing for it (`core.density.factors.merging`);
sampled replay goes on from there with generated samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from core.density.diagonal.components import NO_CLASS
from core.density.factors.components import Analysers
from core.density.factors.merging import merged
from core.learners.per_class.budget import Budget
from core.learners.per_class.mfa.state import ComponentSet, MfaState
from core.learners.per_class.mfa.windows import Windows, standing
from core.learners.per_class.sampled_replay import SampledReplay
from core.model.model import Model
from core.model.readout import class_shares


@dataclass(frozen=True)
class Capacity:
    """Makes room.

    Arguments:
        budget: Decides how much.
        windows: Learns the window of an owner that gets no components of its own, and
            generated samples.
        regenerator: Draws samples, where replay is to be sampled.
        served: What `Learner.model` makes of components: the model to draw from.
    """

    budget: Budget
    windows: Windows
    regenerator: SampledReplay
    served: Callable[[Analysers], Model]

    def fitted(
        self, state: MfaState, generator: torch.Generator, incoming: tuple[int, int] = (0, 0)
    ) -> MfaState:
        """With every owner's components merged down to what it is allowed.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        state = replace(state, pool_allowance=self.budget.pool_allowance(state, incoming))
        split = {
            owner: self.budget.split(state, owner, allowed)
            for owner, allowed in self.budget.allowance(state).items()
        }
        for owner, (most_frozen, _) in split.items():
            if most_frozen == 0:
                state = self._thawed(state, owner, generator)
        for owner, (_, most_active) in split.items():
            index = state.index_of(owner)
            if index < 0:
                continue
            group = state.groups[index]
            if group.base is not None and most_active < max(len(group.base), len(group.bank)):
                group = group.unsettled
                state = state.with_components(index, group)
            if len(group.bank) > most_active:
                fewer = self._merged(state, group.bank.analysers, most_active, generator)
                kept = replace(group, bank=ComponentSet(fewer, group.bank.floor))
                state = state.with_components(index, kept if group.sums is None else standing(kept))
        most = {owner: most_frozen for owner, (most_frozen, _) in split.items()}
        if any(state.n_frozen_of(owner) > most[owner] for owner in state.frozen.owners):
            state = state.with_frozen(self._reduced(state, most, generator))
        return state

    def pooled(self, state: MfaState, arriving: set[int]) -> MfaState:
        """With classes sharing components, where there are more owners than the budget has."""
        pooled, smallest = self.budget.pooled(state, arriving)
        if smallest is not None:
            state = _handed_to_pool(state, smallest)
        return replace(state, pooled=tuple(sorted({*state.pooled, *pooled})))

    def _thawed(self, state: MfaState, owner: int, generator: torch.Generator) -> MfaState:
        """Go on with an owner's frozen components where there is no room for new ones."""
        frozen = state.frozen.analysers
        mine, index = frozen.owner == owner, state.index_of(owner)
        if index < 0 or not bool(mine.any()):
            return state
        state = self.windows.absorbed(state, index, generator)
        group, thawed = state.groups[index], frozen.select(mine)
        joined = Analysers.concatenated([group.bank.analysers, thawed])
        n_thawed = round(float(thawed.mass.sum()))
        group = replace(
            group, bank=ComponentSet(joined, group.bank.floor), samples=group.samples + n_thawed
        )
        state = state.with_components(index, standing(group)).with_frozen(frozen.select(~mine))
        return replace(state, sub_tasks_of={**state.sub_tasks_of, owner: 0})

    def _reduced(
        self, state: MfaState, most: dict[int, int], generator: torch.Generator
    ) -> Analysers:
        """The frozen components, at most so many of each owner's, one owner's after the other's."""
        frozen = state.frozen.analysers
        # Taken apart and put together once: copies of all of them are what costs here.
        return Analysers.concatenated(
            [
                self._merged(state, frozen.select(frozen.owner == owner), most[owner], generator)
                for owner in sorted(most)
            ]
        )

    def _merged(
        self, state: MfaState, old: Analysers, most: int, generator: torch.Generator
    ) -> Analysers:
        """At most `most` components for one owner's."""
        if len(old) <= most:
            return old
        fewer, owner = merged(old, most, self.windows.floor), int(old.owner[0])
        if self.regenerator.mode == "analytic":
            return fewer
        # A class is told from the others by the whole model, which knows them all.
        model = self.served(old if owner == NO_CLASS else state.analysers)
        x = self.regenerator.samples(model, owner, float(old.mass.sum()), generator)
        return fewer if x is None else self.windows.refitted(fewer, x)


def _handed_to_pool(state: MfaState, owner: int) -> MfaState:
    """The first class of the pool brings its components, which vote for it, and its group."""

    def handed(bank: ComponentSet) -> ComponentSet:
        old = bank.analysers
        mine = old.owner == owner
        votes = old.votes.clone()
        votes[mine] = class_shares(votes[mine]) * old.mass[mine, None]
        return ComponentSet(
            replace(old, owner=old.owner.masked_fill(mine, NO_CLASS), votes=votes), bank.floor
        )

    groups = tuple(
        replace(group.with_banks(handed), owner=NO_CLASS) if group.owner == owner else group
        for group in state.groups
    )
    sub_tasks = {
        NO_CLASS if other == owner else other: count for other, count in state.sub_tasks_of.items()
    }
    return replace(state, frozen=handed(state.frozen), groups=groups, sub_tasks_of=sub_tasks)
