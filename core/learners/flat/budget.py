"""Who may have how many components: K in all, decisions only."""

from __future__ import annotations

from dataclasses import dataclass

from core.density.components import NO_CLASS
from core.learners.flat.state import FlatState


@dataclass(frozen=True)
class Budget:
    """K components, shared.

    Arguments:
        n_components: K, at least 1.
    """

    n_components: int

    def allowance(self, state: FlatState) -> dict[int, int]:
        """Components that each owner may have, frozen and active together; K in all."""
        owners = state.owners
        classes = sorted(owners - {NO_CLASS})
        allowance = {NO_CLASS: state.pool_allowance} if NO_CLASS in owners else {}
        left = self.n_components - sum(allowance.values())
        each, spare = divmod(left, max(1, len(classes)))
        for place, owner in enumerate(classes):
            allowance[owner] = each + (place < spare)
        return allowance

    def pool_allowance(self, state: FlatState, incoming: tuple[int, int]) -> int:
        """What the pool may have by its share of the samples.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        owners = state.owners
        if NO_CLASS not in owners:
            return 0
        components = state.components
        mass = float(components.mass[components.owner == NO_CLASS].sum()) + incoming[0]
        total = float(components.mass.sum()) + incoming[1]
        share = mass / total if total else 1.0
        most = self.n_components - len(owners - {NO_CLASS})
        return max(1, min(round(share * self.n_components), most))

    def split(self, state: FlatState, owner: int, allowed: int) -> tuple[int, int]:
        """An owner's allowance, for its frozen components and for the active ones.

        The newest of s + 1 sub-tasks gets 1 / (s + 1), so that all of them fade alike, and
        what the frozen ones do not use: the first samples of a class, learned before its
        boundary was found, must not cost it half of its components.
        """
        sub_tasks = state.sub_tasks_of.get(owner, 0)
        if state.index_of(owner) < 0:
            return allowed, 0
        if sub_tasks == 0 or allowed == 1:
            return 0, allowed
        unused = allowed - int((state.frozen.owner == owner).sum())
        active = max(1, round(allowed / (sub_tasks + 1)), unused)
        return allowed - active, active

    def most_active(self, state: FlatState, owner: int) -> int:
        """Components that an owner may have in the current sub-task."""
        return self.split(state, owner, self.allowance(state)[owner])[1]
