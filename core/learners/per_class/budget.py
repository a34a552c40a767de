"""Who may have how many components: K in all, decisions only.

The samples of one owner have components of their own: those of a class, or those of the
*pool*, which unlabelled samples and classes without components of their own share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from core.density.owned import NO_CLASS


class Holdings(Protocol):
    """Who has what: what a budget wants to know of a learner's state."""

    @property
    def owners(self) -> set[int]:
        """Everyone with components, or about to get some."""
        ...

    @property
    def pool_allowance(self) -> int:
        """Components that the pool may have."""
        ...

    @property
    def sub_tasks_of(self) -> Mapping[int, int]:
        """Per owner, how many sub-tasks its frozen components stand for."""
        ...

    def mass_of(self, owner: int | None) -> float:
        """Samples that an owner's components stand for, or everybody's."""
        ...

    def n_frozen_of(self, owner: int) -> int:
        """An owner's components of earlier sub-tasks."""
        ...

    def is_active(self, owner: int) -> bool:
        """Whether the current sub-task has seen an owner."""
        ...


@dataclass(frozen=True)
class Budget:
    """K components, shared.

    Arguments:
        n_components: K, at least 1.
    """

    n_components: int

    def allowance(self, state: Holdings) -> dict[int, int]:
        """Components that each owner may have, frozen and active together; K in all."""
        owners = state.owners
        classes = sorted(owners - {NO_CLASS})
        allowance = {NO_CLASS: state.pool_allowance} if NO_CLASS in owners else {}
        left = self.n_components - sum(allowance.values())
        each, spare = divmod(left, max(1, len(classes)))
        for place, owner in enumerate(classes):
            allowance[owner] = each + (place < spare)
        return allowance

    def pool_allowance(self, state: Holdings, incoming: tuple[int, int]) -> int:
        """What the pool may have by its share of the samples.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        owners = state.owners
        if NO_CLASS not in owners:
            return 0
        mass = state.mass_of(NO_CLASS) + incoming[0]
        total = state.mass_of(None) + incoming[1]
        share = mass / total if total else 1.0
        most = self.n_components - len(owners - {NO_CLASS})
        return max(1, min(round(share * self.n_components), most))

    def split(self, state: Holdings, owner: int, allowed: int) -> tuple[int, int]:
        """An owner's allowance, for its frozen components and for the active ones.

        The newest of s + 1 sub-tasks gets 1 / (s + 1), so that all of them fade alike, and
        what the frozen ones do not use: the first samples of a class, learned before its
        boundary was found, must not cost it half of its components.
        """
        sub_tasks = state.sub_tasks_of.get(owner, 0)
        if not state.is_active(owner):
            return allowed, 0
        if sub_tasks == 0 or allowed == 1:
            return 0, allowed
        unused = allowed - state.n_frozen_of(owner)
        active = max(1, round(allowed / (sub_tasks + 1)), unused)
        return allowed - active, active

    def most_active(self, state: Holdings, owner: int) -> int:
        """Components that an owner may have in the current sub-task."""
        return self.split(state, owner, self.allowance(state)[owner])[1]

    def pooled(self, state: Holdings, arriving: set[int]) -> tuple[set[int], int | None]:
        """Who shares components, where there are more owners than K.

        One place is the pool's. Whoever has components of its own keeps them, but for the
        smallest, if all places are taken.

        Arguments:
            arriving: Owners of the samples about to be learned.

        Returns:
            The classes to be pooled, and which of them has components to bring along.
        """
        known = state.owners
        if len(known | arriving) <= self.n_components:
            return set(), None
        own = known - {NO_CLASS}
        places = self.n_components - 1
        newcomers = sorted(arriving - known - {NO_CLASS})
        pooled = set(newcomers[max(0, places - len(own)) :])
        if len(own) <= places:
            return pooled, None
        smallest = min(own, key=lambda owner: (state.mass_of(owner), -owner))
        return pooled | {smallest}, smallest
