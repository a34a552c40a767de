"""What preset `flat` has learned, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from core.density.diagonal.components import Components
from core.density.mixture import Moments, NaturalForm, natural_form_and_peaks
from core.learners.per_class.state import ComponentSet, Group, PerClassState

LEAST_MASS = 1e-6
"""Samples, or a share of one, below which a component neither moves nor shrinks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatGroup(Group):
    """The samples of one owner in the current sub-task.

    Its window is None once its components stand on their own.

    Arguments:
        steps: M-steps behind it; fractions where more than `STEP_SAMPLES` came at once.
    """

    steps: float = 0.0

    @property
    def stands(self) -> bool:
        return self.window is None


@dataclass(frozen=True, eq=False)
class Mixing(ComponentSet[Components]):
    """All components, frozen ones first, with what is computed from them once."""

    without_votes = (*ComponentSet.without_votes, "_form_and_peaks")

    components: Components

    @property
    def form(self) -> NaturalForm:
        """For scoring."""
        return self._form_and_peaks[0]

    @property
    def log_peaks(self) -> Tensor:
        """Log density of each component at its mean, without its weight, with shape (K,)."""
        return self._form_and_peaks[1]

    @cached_property
    def _form_and_peaks(self) -> tuple[NaturalForm, Tensor]:
        return natural_form_and_peaks(self.components.mixture(self.floor))


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatState(PerClassState):
    """Everything preset `flat` has learned: all components in one set, which one product scores.

    Arguments:
        mixing: Components; the first `n_frozen` are of earlier sub-tasks.
        group_of: Index into `groups` per active component, with shape (K - n_frozen,), int64.
        pending: Moments since the last M-step, per active component.
    """

    groups: tuple[FlatGroup, ...]
    mixing: Mixing
    n_frozen: int
    group_of: Tensor
    pending: Moments

    @classmethod
    def empty(cls, n_features: int, floor: float, device: torch.device) -> FlatState:
        """Before anything was learned."""
        none = Components.none(n_features, 0, device)
        return cls(
            **cls.beginning(n_features, device),
            mixing=Mixing(none, floor),
            n_frozen=0,
            group_of=torch.zeros(0, dtype=torch.int64, device=device),
            pending=none.moments(),
        )

    @property
    def banks(self) -> Iterator[Mixing]:
        yield self.mixing

    @property
    def components(self) -> Components:
        return self.mixing.components

    @property
    def earlier(self) -> Components:
        return self.components.select(slice(0, self.n_frozen))

    @property
    def active(self) -> Components:
        """Components of the current sub-task."""
        return self.components.select(slice(self.n_frozen, None))

    def active_of(self, index: int) -> Components:
        active = self.active
        return active.select(active.owner == self.groups[index].owner)

    def with_earlier(self, components: Components) -> Self:
        return replace(
            self,
            mixing=self.mixing.of(Components.concatenated([components, self.active])),
            n_frozen=len(components),
            partition=self.partition + 1,
        )

    def with_merged(self, parts: Mapping[int, Components]) -> Self:
        old = self.earlier
        kept = old.select(~torch.isin(old.owner, torch.tensor([*parts]).to(old.owner)))
        return self.with_earlier(Components.concatenated([kept, *parts.values()]))

    def with_active(self, index: int, components: Components) -> Self:
        # The owner's components come last, and its unfinished statistics are let go.
        active, owner = self.active, self.groups[index].owner
        kept = active.owner != owner
        fresh = components.means.new_zeros(len(components), self.n_features)
        nothing = Moments(components.mass.new_zeros(len(components)), fresh, fresh)
        own = torch.full_like(components.owner, index)
        parts = [self.earlier, active.select(kept), components]
        return replace(
            self,
            mixing=self.mixing.of(Components.concatenated(parts)),
            group_of=torch.cat([self.group_of[kept], own]),
            pending=Moments(
                *(torch.cat([a[kept], b]) for a, b in zip(self.pending, nothing, strict=True))
            ),
            partition=self.partition + 1,
        )

    def mapped(self, change: Callable[[Mixing], Mixing]) -> Self:
        return replace(self, mixing=change(self.mixing))

    def with_votes(self, votes: Tensor, vote_baseline: Tensor | None = None) -> Self:
        return replace(self, mixing=self.mixing.with_votes(votes, vote_baseline))

    def with_values(self, components: Components) -> Self:
        """With other numbers in the same components."""
        return replace(self, mixing=self.mixing.of(components))

    def closed(self) -> Self:
        none = Components.none(self.n_features, 0, self.group_of.device)
        return replace(
            self,
            n_frozen=len(self.components),
            group_of=self.group_of[:0],
            groups=(),
            pending=none.moments(),
            partition=self.partition + 1,
        )

    @property
    def unsteady(self) -> Tensor | None:
        """What is still started anew depends on when the stream was quiet."""
        starting = [group.owner for group in self.groups if not group.stands]
        if not starting:
            return None
        owner = self.components.owner
        unsteady = torch.isin(owner, torch.tensor(sorted(starting)).to(owner))
        unsteady[: self.n_frozen] = False
        return unsteady
