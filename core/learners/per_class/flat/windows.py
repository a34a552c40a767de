"""An owner's first samples in a sub-task, and the components that start from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from core.density.diagonal.components import Components
from core.density.diagonal.merging import merged
from core.density.diagonal.seeding import EM_ROUNDS, FEWEST_COPIES, seed_components
from core.density.mixture import Moments, log_joint
from core.density.owned import NO_CLASS
from core.learners.per_class.flat.state import FlatGroup, FlatState
from core.learners.per_class.flat.stepwise import STEP_SAMPLES, maximised, votes_of
from core.learners.per_class.windows import Windows

WINDOW_PER_OWNER = 512
WINDOW_FACTOR = 8
"""Samples of one owner that its components start from: the larger of a number, and so many
per component, as far as `EngineConfig.window` allows."""

SAMPLES_PER_COMPONENT = 8
"""Samples a window must hold for each component that starts from it."""

PASSING_ROUNDS = 3
"""Rounds of EM for components that will be started again when the window has doubled."""


class FirstWindows(Windows[FlatState]):
    """Holds first samples, and starts components from them."""

    def merged(self, components: Components, most: int) -> Components:
        return merged(components, most, self.floor)

    def opened(self, state: FlatState, owner: int, window: Tensor, codes: Tensor) -> FlatGroup:
        return FlatGroup(owner=owner, samples=0.0, window=window, codes=codes)

    def finished(self, state: FlatState) -> FlatState:
        return maximised(state, at_least=1)

    def crowded(self, state: FlatState, generator: torch.Generator) -> FlatState:
        """With every window closed that is longer than its fair share has become."""
        lengths = [None if group.window is None else group.held for group in state.groups]
        n_open = sum(length is not None for length in lengths)
        for index, length in enumerate(lengths):
            if length and length >= self.samples // n_open:
                state = self.absorbed(state, index, generator)
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
        doubled = group.held >= max(1, 2 * group.seeded_at)
        return doubled or self._room(state, index) == 0

    def started(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        """With components started from a window that is due; a full one is let go."""
        if self._room(state, index) == 0:
            return self.absorbed(state, index, generator)
        return self._seeded(state, index, generator, PASSING_ROUNDS)

    def settled(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        # It stays open, and is due when it was due.
        group = state.groups[index]
        state = self._seeded(state, index, generator, PASSING_ROUNDS)
        return state.with_group(index, replace(group, settled_at=group.held))

    def absorbed(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        group = state.groups[index]
        if group.window is None:
            return state
        if group.held:
            state = self._seeded(state, index, generator, EM_ROUNDS)
        return state.with_group(index, _closed(state.groups[index]))

    def resumed(self, group: FlatGroup, mass: float) -> FlatGroup:
        steps = group.steps + mass / STEP_SAMPLES
        return replace(group, samples=group.samples + mass, steps=steps, window=None, codes=None)

    def emptied(self, state: FlatState) -> Iterator[FlatGroup]:
        active = set(state.active.owner.tolist())
        for group in state.groups:
            if group.window is None:
                yield group
            elif group.owner in active:
                yield _closed(group)
            else:
                assert group.codes is not None
                window, codes = group.window[:0].clone(), group.codes[:0].clone()
                yield self.opened(state, group.owner, window, codes)

    def _room(self, state: FlatState, index: int) -> int:
        """Samples that a window may still take."""
        group = state.groups[index]
        fair = max(1, self.samples // sum(one.window is not None for one in state.groups))
        wanted = max(WINDOW_PER_OWNER, WINDOW_FACTOR * self.budget.most_active(state, group.owner))
        return max(0, min(wanted, fair) - group.held)

    def _seeded(
        self, state: FlatState, index: int, generator: torch.Generator, rounds: int
    ) -> FlatState:
        """With an owner's components started anew from its window."""
        group = state.groups[index]
        assert group.window is not None
        owner, window = group.owner, group.window
        most = self.budget.most_active(state, owner)
        k = min(most, max(1, len(window) // SAMPLES_PER_COMPONENT))
        sums = seed_components(window, k, self.floor, generator, rounds)
        if len(window) < FEWEST_COPIES and bool((window == window[0]).all()):
            sums = self._blurred(state, sums)
        seeded = Components.of_owner(sums, owner, state.n_classes)
        if owner == NO_CLASS:
            seeded = self._with_votes(seeded, group)
        state = state.with_group(index, replace(group, seeded_at=len(window)))
        return state.with_active(index, seeded)

    def _with_votes(self, seeded: Components, group: FlatGroup) -> Components:
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


def _closed(group: FlatGroup) -> FlatGroup:
    """Without raw samples: its components stand on their own from here."""
    return replace(group, window=None, codes=None, steps=0.0, settled_at=0)
