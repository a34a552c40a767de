"""What preset `flat` has learned, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS, Components
from core.density.mixture import Moments, NaturalForm, natural_form, responsibilities
from core.model.readout import class_shares

LEAST_MASS = 1e-6
"""Samples, or a share of one, below which a component neither moves nor shrinks."""


@dataclass(frozen=True, eq=False)
class Group:
    """The samples of one owner in the current sub-task."""

    owner: int
    samples: float  # seen in this sub-task
    steps: float  # M-steps behind it; fractions where more than STEP_SAMPLES came at once
    window: Tensor | None  # (n, D) first samples, None once components stand on their own
    codes: Tensor | None  # (n,) their classes
    seeded_at: int  # window length at the last seeding
    settled_at: int = 0  # window length when its components were last started for a quiet stream

    @property
    def waiting(self) -> int:
        """Samples of the window that its components have not seen."""
        return 0 if self.window is None else len(self.window) - max(self.seeded_at, self.settled_at)


@dataclass(frozen=True, eq=False)
class Mixing:
    """All components, frozen ones first, with what is computed from them once."""

    components: Components
    floor: float

    @cached_property
    def form(self) -> NaturalForm:
        """For scoring."""
        return natural_form(self.components.mixture(self.floor))

    @cached_property
    def component_classes(self) -> Tensor:
        """p(c | k), with shape (K, C)."""
        return class_shares(self.components.votes)

    def with_votes(self, votes: Tensor) -> Mixing:
        """The same components with other votes; the form for scoring, being dear, stays."""
        changed = Mixing(replace(self.components, votes=votes), self.floor)
        if "form" in self.__dict__:
            changed.__dict__["form"] = self.form
        return changed


@dataclass(frozen=True, eq=False)
class FlatState:
    """Everything preset `flat` has learned.

    Arguments:
        mixing: Components; the first `n_frozen` are of earlier sub-tasks.
        group_of: Index into `groups` per active component, with shape (K - n_frozen,), int64.
        groups: Owners that the current sub-task has seen.
        pending: Moments since the last M-step, per active component.
        sub_tasks_of: Per owner, how many sub-tasks its frozen components stand for.
        pooled: Classes without components of their own, ascending.
        pool_allowance: Components that the pool may have: the owner `NO_CLASS`, of unlabelled
            samples and of those classes.
        partition: Counts the changes of the set of components.
        recent: Samples of each class among the last of the current sub-task, faded, with shape
            (C,): `core.learners.per_class.relabelling`.
    """

    n_features: int
    n_classes: int
    mixing: Mixing
    n_frozen: int
    group_of: Tensor
    groups: tuple[Group, ...]
    pending: Moments
    sub_tasks_of: dict[int, int]
    pooled: tuple[int, ...]
    pool_allowance: int
    partition: int
    recent: Tensor

    @classmethod
    def empty(cls, n_features: int, floor: float, device: torch.device) -> FlatState:
        """Before anything was learned."""
        none = Components.none(n_features, 0, device)
        return cls(
            n_features=n_features,
            n_classes=0,
            mixing=Mixing(none, floor),
            n_frozen=0,
            group_of=torch.zeros(0, dtype=torch.int64, device=device),
            groups=(),
            pending=none.moments(),
            sub_tasks_of={},
            pooled=(),
            pool_allowance=0,
            partition=0,
            recent=torch.zeros(0, device=device),
        )

    @property
    def components(self) -> Components:
        """All components, frozen ones first."""
        return self.mixing.components

    @property
    def frozen(self) -> Components:
        """Those of earlier sub-tasks."""
        return self.components.select(slice(0, self.n_frozen))

    @property
    def active(self) -> Components:
        """Those of the current sub-task."""
        return self.components.select(slice(self.n_frozen, None))

    @property
    def owners(self) -> set[int]:
        """Everyone with components, or about to get some."""
        return set(self.components.owner.tolist()) | {group.owner for group in self.groups}

    def mass_of(self, owner: int | None) -> float:
        """Samples that an owner's components stand for, or everybody's."""
        components = self.components
        mine = components.mass if owner is None else components.mass[components.owner == owner]
        return float(mine.sum())

    def n_frozen_of(self, owner: int) -> int:
        """An owner's components of earlier sub-tasks."""
        return int((self.frozen.owner == owner).sum())

    def is_active(self, owner: int) -> bool:
        """Whether the current sub-task has seen an owner."""
        return self.index_of(owner) >= 0

    @property
    def window_lengths(self) -> dict[int, int]:
        """Samples held by every open window, by the group's place."""
        return {
            index: len(group.window)
            for index, group in enumerate(self.groups)
            if group.window is not None
        }

    def owners_of(self, codes: Tensor) -> Tensor:
        """Who learns the samples of these classes, with shape (N,), int64."""
        if not self.pooled:
            return codes
        pooled = torch.tensor(self.pooled, device=codes.device)
        return torch.where(torch.isin(codes, pooled), NO_CLASS, codes)

    def index_of(self, owner: int) -> int:
        """Place of an owner's group, or -1."""
        for index, group in enumerate(self.groups):
            if group.owner == owner:
                return index
        return -1

    def with_group(self, index: int, group: Group) -> FlatState:
        """With one group replaced."""
        groups = (*self.groups[:index], group, *self.groups[index + 1 :])
        return replace(self, groups=groups)

    def with_votes(self, votes: Tensor) -> FlatState:
        """With other votes, of shape (K, C)."""
        return replace(self, mixing=self.mixing.with_votes(votes))

    def with_values(self, components: Components) -> FlatState:
        """With other numbers in the same components."""
        return replace(self, mixing=Mixing(components, self.mixing.floor))

    def with_components(
        self, frozen: Components, active: Components, restart: int | None = None
    ) -> FlatState:
        """With another set of components.

        Arguments:
            active: Those of owner `restart` last, the others as many as before and in order.
            restart: Whose unfinished statistics are let go; None where nobody's components change.
        """
        if restart is None and len(frozen) + len(active) == len(self.components):
            return self
        places = {group.owner: index for index, group in enumerate(self.groups)}
        group_of = torch.tensor(
            [places[owner] for owner in active.owner.tolist()],
            dtype=torch.int64,
            device=active.owner.device,
        )
        pending = self.pending
        if restart is not None:
            kept = self.components.owner[self.n_frozen :] != restart
            n_new = int((active.owner == restart).sum())
            fresh = active.means.new_zeros(n_new, self.n_features)
            pending = Moments(
                torch.cat([pending.mass[kept], active.mass.new_zeros(n_new)]),
                torch.cat([pending.first[kept], fresh]),
                torch.cat([pending.second[kept], fresh]),
            )
        return replace(
            self,
            mixing=Mixing(Components.concatenated([frozen, active]), self.mixing.floor),
            n_frozen=len(frozen),
            group_of=group_of,
            pending=pending,
            partition=self.partition + 1,
        )


def votes_of(joint: Tensor, codes: Tensor, n_classes: int) -> Tensor:
    """Samples per component and class, with shape (K, C), from log-joint values (N, K)."""
    classes = torch.nn.functional.one_hot(codes, n_classes)
    return responsibilities(joint).T @ classes.to(joint.dtype)
