"""What preset `mfa` has learned, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS
from core.density.factor_mixture import FactorMoments
from core.density.factors.components import Analysers
from core.density.factors.part import FactorPart


@dataclass(frozen=True, eq=False)
class ComponentSet:
    """Components with what is computed from them once."""

    analysers: Analysers
    floor: float

    @cached_property
    def part(self) -> FactorPart:
        """For scoring; weights are masses, so that banks can be scored side by side."""
        return FactorPart(self.analysers.mixture(total=1.0), self.floor)

    @cached_property
    def mass(self) -> float:
        """Samples that they stand for."""
        return float(self.analysers.mass.sum())

    @cached_property
    def owners(self) -> frozenset[int]:
        """Whose they are."""
        return frozenset(self.analysers.owner.tolist())

    def __len__(self) -> int:
        return len(self.analysers)

    def with_votes(self, votes: Tensor) -> ComponentSet:
        """The same components with other votes; what is computed for scoring, being dear, stays."""
        changed = ComponentSet(replace(self.analysers, votes=votes), self.floor)
        changed.__dict__["part"] = self.part
        return changed


@dataclass(frozen=True, eq=False)
class Group:
    """The samples of one owner in the current sub-task.

    Arguments:
        owner: A class, or `NO_CLASS`.
        bank: Its components of this sub-task.
        sums: Statistics behind them; None while they come from the open window alone.
        samples: Seen in this sub-task, those of the window included.
        window: Samples held, with shape (N, D).
        codes: Their classes, with shape (N,), int64.
        seeded_at: Length of the open first window when components were last started from it.
        base: What learning goes on from where `bank` was fitted to an open window for a quiet
            stream; else None.
        settled_at: Length of the window then; else 0.
    """

    owner: int
    bank: ComponentSet
    sums: FactorMoments | None
    samples: int
    window: Tensor
    codes: Tensor
    seeded_at: int
    base: ComponentSet | None = None
    settled_at: int = 0

    @property
    def unsettled(self) -> Group:
        """As it would be if the stream had never been quiet."""
        if self.base is None:
            return self
        return replace(self, bank=self.base, base=None, settled_at=0)

    def with_banks(self, change: Callable[[ComponentSet], ComponentSet]) -> Group:
        """With its components changed one by one, those behind a quiet stream's as well."""
        base = None if self.base is None else change(self.base)
        return replace(self, bank=change(self.bank), base=base)

    @property
    def fitted(self) -> int:
        """Samples of the window that its components have seen: the first ones."""
        return max(self.settled_at, self.seeded_at if self.sums is None else 0)

    @property
    def waiting(self) -> int:
        """Samples of the window that its components have not seen."""
        return len(self.window) - self.fitted

    @property
    def absorbed(self) -> int:
        """Samples that its components have learned and that were let go."""
        return self.samples - len(self.window)


@dataclass(frozen=True, eq=False)
class MfaState:
    """Everything preset `mfa` has learned.

    Arguments:
        frozen: Components of earlier sub-tasks.
        groups: Owners that the current sub-task has seen.
        sub_tasks_of: Per owner, how many sub-tasks its frozen components stand for.
        pooled: Classes without components of their own, ascending.
        pool_allowance: Components that the pool may have: the owner `NO_CLASS`, of unlabelled
            samples and of those classes.
        partition: Counts the changes of the set of components.
        recent: Samples of each class among the last of the current sub-task, faded, with shape
            (C,): `core.learners.per_class.relabelling`.
    """

    n_features: int
    n_factors: int
    n_classes: int
    frozen: ComponentSet
    groups: tuple[Group, ...]
    sub_tasks_of: dict[int, int]
    pooled: tuple[int, ...]
    pool_allowance: int
    partition: int
    recent: Tensor

    @classmethod
    def empty(cls, n_features: int, n_factors: int, floor: float, device: torch.device) -> MfaState:
        """Before anything was learned."""
        none = Analysers.none(n_features, n_factors, 0, device)
        recent = torch.zeros(0, device=device)
        return cls(n_features, n_factors, 0, ComponentSet(none, floor), (), {}, (), 0, 0, recent)

    @property
    def banks(self) -> Iterator[ComponentSet]:
        """All components, frozen ones first, then those of each group."""
        if len(self.frozen):
            yield self.frozen
        yield from (group.bank for group in self.groups if len(group.bank))

    def __len__(self) -> int:
        return sum(len(bank) for bank in self.banks)

    @property
    def analysers(self) -> Analysers:
        """All components in one, in the order of `banks`."""
        parts = [bank.analysers for bank in self.banks]
        return Analysers.concatenated(parts or [self.frozen.analysers])

    @property
    def votes(self) -> Tensor:
        """Labelled samples per class that fell on each component, with shape (K, C)."""
        parts = [bank.analysers.votes for bank in self.banks]
        return torch.cat(parts) if parts else self.frozen.analysers.votes

    @property
    def owners(self) -> set[int]:
        """Everyone with components, or about to get some."""
        return set(self.frozen.owners) | {group.owner for group in self.groups}

    def mass_of(self, owner: int | None) -> float:
        """Samples that an owner's components stand for, or everybody's."""
        if owner is None:
            return sum(bank.mass for bank in self.banks)
        old = self.frozen.analysers
        frozen = float(old.mass[old.owner == owner].sum())
        return frozen + sum(group.bank.mass for group in self.groups if group.owner == owner)

    def n_frozen_of(self, owner: int) -> int:
        """An owner's components of earlier sub-tasks."""
        return int((self.frozen.analysers.owner == owner).sum())

    def is_active(self, owner: int) -> bool:
        """Whether the current sub-task has seen an owner."""
        return self.index_of(owner) >= 0

    def index_of(self, owner: int) -> int:
        """Place of an owner's group, or -1."""
        for index, group in enumerate(self.groups):
            if group.owner == owner:
                return index
        return -1

    def owners_of(self, codes: Tensor) -> Tensor:
        """Who learns the samples of these classes, with shape (N,), int64."""
        if not self.pooled:
            return codes
        pooled = torch.tensor(self.pooled, device=codes.device)
        return torch.where(torch.isin(codes, pooled), NO_CLASS, codes)

    def with_group(self, index: int, group: Group) -> MfaState:
        """With one group replaced, its components the same ones, if perhaps with other values."""
        groups = (*self.groups[:index], group, *self.groups[index + 1 :])
        return replace(self, groups=groups)

    def with_components(self, index: int, group: Group) -> MfaState:
        """With one group replaced, and its components by others."""
        return replace(self.with_group(index, group), partition=self.partition + 1)

    def with_frozen(self, frozen: Analysers) -> MfaState:
        """With other components of earlier sub-tasks."""
        return replace(
            self, frozen=ComponentSet(frozen, self.frozen.floor), partition=self.partition + 1
        )
