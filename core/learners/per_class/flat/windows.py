"""An owner's first samples in a sub-task, and the components that start from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS, Components
from core.density.diagonal.seeding import EM_ROUNDS, FEWEST_COPIES, seed_components
from core.density.mixture import Moments, log_joint
from core.learners.per_class.budget import Budget
from core.learners.per_class.flat.state import FlatState, Group, votes_of

WINDOW_PER_OWNER = 512
WINDOW_FACTOR = 8
"""Samples of one owner that its components start from: the larger of a number, and so many
per component, as far as `EngineConfig.window` allows."""

SAMPLES_PER_COMPONENT = 8
"""Samples a window must hold for each component that starts from it."""

PASSING_ROUNDS = 3
"""Rounds of EM for components that will be started again when the window has doubled."""


@dataclass(frozen=True)
class Windows:
    """Holds first samples, and starts components from them.

    Arguments:
        budget: How many components that may be.
        floor: Smallest variance while responsibilities are computed.
        samples: Most samples held in all windows together.
    """

    budget: Budget
    floor: float
    samples: int

    def shrunk(self, state: FlatState, generator: torch.Generator) -> FlatState:
        """With every window closed that is longer than its fair share has become."""
        lengths = state.window_lengths
        for index, length in lengths.items():
            if length and length >= self.samples // len(lengths):
                state = self.closed(state, index, generator)
        return state

    def take(self, state: FlatState, index: int, x: Tensor, codes: Tensor) -> tuple[FlatState, int]:
        """Hold as many of an owner's samples as its window has room for.

        Returns:
            The state, and how many were taken: the first ones.
        """
        group, room = state.groups[index], self._room(state, index)
        assert group.window is not None
        assert group.codes is not None
        n = min(len(x), room)
        group = replace(
            group,
            window=torch.cat([group.window, x[:n]]),
            codes=torch.cat([group.codes, codes[:n]]),
            samples=group.samples + n,
        )
        return state.with_group(index, group), n

    def is_due(self, state: FlatState, index: int) -> bool:
        """Whether a window is full, or has doubled since components were started from it."""
        group = state.groups[index]
        if group.window is None:
            return False
        doubled = len(group.window) >= max(1, 2 * group.seeded_at)
        return doubled or self._room(state, index) == 0

    def started(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        """With components started from a window that is due; a full one is let go."""
        if self._room(state, index) == 0:
            return self.closed(state, index, generator)
        return self._seeded(state, index, generator, None, PASSING_ROUNDS)

    def settled(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        """With components started from a window that stays open, and is due when it was due."""
        group = state.groups[index]
        assert group.window is not None
        state = self._seeded(state, index, generator, None, PASSING_ROUNDS)
        return state.with_group(index, replace(group, settled_at=len(group.window)))

    def closed(
        self, state: FlatState, index: int, generator: torch.Generator, most: int | None = None
    ) -> FlatState:
        """With an owner's raw samples let go; its components stand on their own from here.

        Arguments:
            most: Components to start, if they have to be started; None takes the allowance.
        """
        group = state.groups[index]
        if group.window is None:
            return state
        if len(group.window):
            state = self._seeded(state, index, generator, most, EM_ROUNDS)
        group = replace(state.groups[index], window=None, codes=None, steps=0.0, settled_at=0)
        return state.with_group(index, group)

    def emptied(self, state: FlatState) -> Iterator[Group]:
        """Every group without its raw samples; no component is started from them first."""
        active = set(state.active.owner.tolist())
        for group in state.groups:
            if group.window is None:
                yield group
            elif group.owner in active:
                yield replace(group, window=None, codes=None, steps=0.0, settled_at=0)
            else:
                assert group.codes is not None
                window, codes = group.window[:0].clone(), group.codes[:0].clone()
                yield Group(group.owner, 0.0, 0.0, window, codes, 0)

    def _room(self, state: FlatState, index: int) -> int:
        """Samples that a window may still take."""
        group = state.groups[index]
        assert group.window is not None
        fair = max(1, self.samples // len(state.window_lengths))
        wanted = max(WINDOW_PER_OWNER, WINDOW_FACTOR * self.budget.most_active(state, group.owner))
        return max(0, min(wanted, fair) - len(group.window))

    def _seeded(
        self,
        state: FlatState,
        index: int,
        generator: torch.Generator,
        most: int | None,
        rounds: int,
    ) -> FlatState:
        """With an owner's components started anew from its window."""
        group = state.groups[index]
        assert group.window is not None
        owner, window = group.owner, group.window
        most = self.budget.most_active(state, owner) if most is None else most
        k = min(most, max(1, len(window) // SAMPLES_PER_COMPONENT))
        sums = seed_components(window, k, self.floor, generator, rounds)
        if len(window) < FEWEST_COPIES and bool((window == window[0]).all()):
            sums = self._blurred(state, sums)
        seeded = Components.of_owner(sums, owner, state.n_classes)
        if owner == NO_CLASS:
            seeded = self._with_votes(seeded, group)
        others = state.active.select(state.active.owner != owner)
        state = state.with_group(index, replace(group, seeded_at=len(window)))
        active = Components.concatenated([others, seeded])
        return state.with_components(state.frozen, active, restart=owner)

    def _with_votes(self, seeded: Components, group: Group) -> Components:
        """The votes of a window's labelled samples on the components that it started."""
        assert group.window is not None
        assert group.codes is not None
        labelled = group.codes != NO_CLASS
        if not bool(labelled.any()):
            return seeded
        joint = log_joint(seeded.mixture(self.floor), group.window[labelled])
        votes = votes_of(joint, group.codes[labelled], seeded.votes.shape[1])
        return replace(seeded, votes=votes)

    def _blurred(self, state: FlatState, sums: Moments) -> Moments:
        """One sample, however often: mixed with all that is known, or with nothing."""
        components = state.components
        mean, second = torch.zeros_like(sums.first), torch.full_like(sums.second, self.floor)
        if len(components):
            known = components.moments()
            total = known.mass.sum()
            mean, second = known.first.sum(0) / total, known.second.sum(0) / total
        mass = sums.mass[:, None]
        return Moments(sums.mass, (sums.first + mass * mean) / 2, (sums.second + mass * second) / 2)
