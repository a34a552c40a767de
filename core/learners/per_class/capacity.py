"""Merging, pooling and unfreezing, until everyone keeps to the budget.

Room is made by analytic replay: what an owner's components stand for is said again by fewer of
them, and nothing is drawn for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch

from core.density.owned import NO_CLASS
from core.learners.per_class.budget import Budget
from core.learners.per_class.state import PerClassState
from core.learners.per_class.windows import Windows
from core.model.readout import class_shares

S = TypeVar("S", bound=PerClassState)


@dataclass(frozen=True)
class Capacity(Generic[S]):
    """Makes room.

    Arguments:
        budget: Decides how much.
        windows: Learns the window of an owner that gets no components of its own, and merges.
    """

    budget: Budget
    windows: Windows[S]

    def fitted(self, state: S, generator: torch.Generator, incoming: tuple[int, int] = (0, 0)) -> S:
        """With every owner's components merged down to what it is allowed.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        state = self.windows.finished(state)
        state = replace(state, pool_allowance=self.budget.pool_allowance(state, incoming))
        split = {
            owner: self.budget.split(state, owner, allowed)
            for owner, allowed in self.budget.allowance(state).items()
        }
        for owner, (most_frozen, _) in split.items():
            if most_frozen == 0:
                state = self._unfrozen(state, owner, generator)
        for owner, (_, most_active) in split.items():
            if state.is_active(owner):
                state = self.windows.reduced(state, state.index_of(owner), most_active)
        earlier = state.earlier
        merged = {
            owner: self.windows.merged(earlier.select(earlier.owner == owner), most_frozen)
            for owner, (most_frozen, _) in split.items()
            if state.n_frozen_of(owner) > most_frozen
        }
        return state.with_merged(merged) if merged else state

    def pooled(self, state: S, arriving: set[int]) -> S:
        """With classes sharing components, where there are more owners than the budget has."""
        pooled, smallest = self.budget.pooled(state, arriving)
        if smallest is not None:
            state = _handed_to_pool(state, smallest)
        return replace(state, pooled=tuple(sorted({*state.pooled, *pooled})))

    def _unfrozen(self, state: S, owner: int, generator: torch.Generator) -> S:
        """Go on with an owner's frozen components where there is no room for new ones."""
        earlier, index = state.earlier, state.index_of(owner)
        mine = earlier.owner == owner
        if index < 0 or not bool(mine.any()):
            return state
        state = self.windows.absorbed(state, index, generator)
        unfrozen = earlier.select(mine)
        joined = type(unfrozen).concatenated([state.active_of(index), unfrozen])
        state = state.with_earlier(earlier.select(~mine)).with_active(index, joined)
        group = self.windows.resumed(state.groups[index], float(unfrozen.mass.sum()))
        sub_tasks = {**state.sub_tasks_of, owner: 0}
        return replace(state.with_group(index, group), sub_tasks_of=sub_tasks)


def _handed_to_pool(state: S, owner: int) -> S:
    """The first class of the pool brings its components, which vote for it, and its group."""

    def handed(bank: Any) -> Any:
        old = bank.components
        mine = old.owner == owner
        votes = old.votes.clone()
        votes[mine] = class_shares(votes[mine]) * old.mass[mine, None]
        return bank.of(replace(old, owner=old.owner.masked_fill(mine, NO_CLASS), votes=votes))

    state = state.mapped(handed)
    groups = tuple(
        replace(group, owner=NO_CLASS) if group.owner == owner else group for group in state.groups
    )
    sub_tasks = {
        NO_CLASS if other == owner else other: count for other, count in state.sub_tasks_of.items()
    }
    return replace(state, groups=groups, sub_tasks_of=sub_tasks)
