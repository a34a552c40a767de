"""What learners of components that belong to classes have in common in what they have learned.

A state lays its components out as its family is scored fastest: in one set, or in a set per owner
(`core.learners.per_class.banks`). Everything here asks for the few methods that differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from core.density.owned import NO_CLASS, Owned
from core.learners.per_class.relabelling import naming, owners_by_name
from core.model.readout import class_shares

P = TypeVar("P", bound=Owned)


@dataclass(frozen=True, eq=False)
class ComponentSet(ABC, Generic[P]):
    """Components with what is computed from them once.

    Arguments:
        components: Of one family.
        floor: Smallest variance while scoring, above 0.
    """

    without_votes: ClassVar[tuple[str, ...]] = ("form", "mass", "owners")
    """Computed once, and not from votes."""

    components: P
    floor: float

    @property
    @abstractmethod
    def form(self) -> Any:
        """What scores samples, of the family; kept once it is made."""

    @cached_property
    def mass(self) -> float:
        """Samples that they stand for."""
        return float(self.components.mass.sum())

    @cached_property
    def owners(self) -> frozenset[int]:
        """Whose they are."""
        return frozenset(self.components.owner.tolist())

    @cached_property
    def component_classes(self) -> Tensor:
        """p(c | k), with shape (K, C)."""
        return class_shares(self.naming_votes)

    @property
    def naming_votes(self) -> Tensor:
        """The votes that name each, with shape (K, C)."""
        own = self.components
        if NO_CLASS not in self.owners:
            return own.votes
        return naming(own.owner, own.votes, own.vote_baseline)

    def __len__(self) -> int:
        return len(self.components)

    def of(self, components: P) -> Self:
        """A set like this one of other components."""
        return type(self)(components, self.floor)

    def with_votes(self, votes: Tensor, vote_baseline: Tensor | None = None) -> Self:
        """The same components with other votes; what scores them, being dear, stays.

        Arguments:
            votes: With shape (K, C).
            vote_baseline: With shape (K, 1 + C); None: as it is.
        """
        if vote_baseline is None:
            vote_baseline = self.components.vote_baseline
        changed = self.of(replace(self.components, votes=votes, vote_baseline=vote_baseline))
        self.form  # noqa: B018  made here at the latest, so that both have the same
        for name in self.without_votes:
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        return changed


@dataclass(frozen=True, eq=False, kw_only=True)
class Group(ABC):
    """The samples of one owner in the current sub-task.

    Arguments:
        owner: A class, or `NO_CLASS`.
        samples: Seen in this sub-task, those of the window included.
        window: Samples held, with shape (N, D); None where no more are held.
        codes: Their classes, with shape (N,), int64.
        seeded_at: Length of the first window when components were last started from it.
        settled_at: Length of the window when components were last fitted to it for a quiet
            stream; else 0.
    """

    owner: int
    samples: float
    window: Tensor | None
    codes: Tensor | None
    seeded_at: int = 0
    settled_at: int = 0

    @property
    @abstractmethod
    def stands(self) -> bool:
        """Whether its components are more than what is started anew with a window's samples."""

    @property
    def held(self) -> int:
        """Samples of the window."""
        return 0 if self.window is None else self.window.size(0)

    @property
    def fitted(self) -> int:
        """Samples of the window that its components have seen: the first ones."""
        return max(self.settled_at, self.seeded_at)

    @property
    def waiting(self) -> int:
        """Samples of the window that its components have not seen."""
        return 0 if self.window is None else self.held - self.fitted


@dataclass(frozen=True, eq=False, kw_only=True)
class PerClassState(ABC):
    """Everything that is learned by components that belong to classes.

    Arguments:
        groups: Owners that the current sub-task has seen.
        sub_tasks_of: Per owner, how many sub-tasks its frozen components stand for.
        pooled: Classes without components of their own, ascending.
        pool_allowance: Components that the pool may have: the owner `NO_CLASS`, of unlabelled
            samples and of those classes.
        partition: Counts the changes of the set of components.
        recent: Samples of each class among the last of the current sub-task, faded, with shape
            (C,): `core.learners.per_class.relabelling`.
        unlabelled: Those without a label among them, likewise.
    """

    n_features: int
    n_classes: int
    groups: tuple[Any, ...]
    sub_tasks_of: dict[int, int]
    pooled: tuple[int, ...]
    pool_allowance: int
    partition: int
    recent: Tensor
    # Checkpoints of earlier releases have none.
    unlabelled: float = 0.0

    @staticmethod
    def beginning(n_features: int, device: torch.device) -> dict[str, Any]:
        """These fields before anything was learned."""
        return {
            "n_features": n_features,
            "n_classes": 0,
            "groups": (),
            "sub_tasks_of": {},
            "pooled": (),
            "pool_allowance": 0,
            "partition": 0,
            "recent": torch.zeros(0, device=device),
        }

    # What depends on how components are laid out.

    @property
    @abstractmethod
    def banks(self) -> Iterator[ComponentSet[Any]]:
        """All components, those of earlier sub-tasks first; at least one set, all else filled."""

    @property
    @abstractmethod
    def earlier(self) -> Any:
        """Components of earlier sub-tasks."""

    @abstractmethod
    def active_of(self, index: int) -> Any:
        """A group's components of the current sub-task."""

    @abstractmethod
    def with_earlier(self, components: Any) -> Self:
        """With other components of earlier sub-tasks."""

    @abstractmethod
    def with_merged(self, parts: Mapping[int, Any]) -> Self:
        """With fewer components of earlier sub-tasks for some owners."""

    @abstractmethod
    def with_active(self, index: int, components: Any) -> Self:
        """With other components of a group's in the current sub-task."""

    @abstractmethod
    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """With every set of components changed, those that are not shown included."""

    @abstractmethod
    def with_votes(self, votes: Tensor, vote_baseline: Tensor | None = None) -> Self:
        """With these votes, (K, C), on the components that are shown.

        Arguments:
            votes: With shape (K, C).
            vote_baseline: With shape (K, 1 + C); None: as it is.
        """

    @abstractmethod
    def closed(self) -> Self:
        """With all components those of earlier sub-tasks, in one set, and no group."""

    @property
    def unsettled(self) -> Self:
        """As it would be if the stream had never been quiet; itself where that is so."""
        return self

    def with_behind(self, behind: Self) -> Self:
        """With the components of `unsettled` that are not shown from another state."""
        return self

    @property
    def unsteady(self) -> Tensor | None:
        """Components that say nothing of what labels mean, with shape (K,), bool."""
        return None

    # What does not.

    def __len__(self) -> int:
        return sum(len(bank) for bank in self.banks)

    @property
    def components(self) -> Any:
        """All components in one, in the order of `banks`."""
        parts = [bank.components for bank in self.banks]
        return type(parts[0]).concatenated(parts)

    def column(self, name: str) -> Tensor:
        """One field of all components: cheaper than all of them in one."""
        parts = [getattr(bank.components, name) for bank in self.banks]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def votes(self) -> Tensor:
        """Labelled samples per class that fell on each component, with shape (K, C)."""
        return self.column("votes")

    @property
    def vote_baseline(self) -> Tensor:
        """What votes are compared with, with shape (K, 1 + C)."""
        return self.column("vote_baseline")

    @property
    def naming_votes(self) -> Tensor:
        """The votes that name each component, with shape (K, C)."""
        parts = [bank.naming_votes for bank in self.banks]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def owner(self) -> Tensor:
        """Whose each component is, with shape (K,), int64."""
        return self.column("owner")

    @property
    def component_classes(self) -> Tensor:
        """p(c | k), with shape (K, C)."""
        parts = [bank.component_classes for bank in self.banks]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def owners(self) -> set[int]:
        """Everyone with components, or about to get some."""
        groups = (group.owner for group in self.groups)
        return {*groups, *(owner for bank in self.banks for owner in bank.owners)}

    def mass_of(self, owner: int | None) -> float:
        """Samples that an owner's components stand for, or everybody's."""
        if owner is None:
            return sum(bank.mass for bank in self.banks)
        parts = (bank.components for bank in self.banks)
        return sum(float(part.mass[part.owner == owner].sum()) for part in parts)

    def n_frozen_of(self, owner: int) -> int:
        """An owner's components of earlier sub-tasks."""
        return int((self.earlier.owner == owner).sum())

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

    def with_group(self, index: int, group: Group) -> Self:
        """With one group replaced, its components the same ones, if perhaps with other values."""
        groups = (*self.groups[:index], group, *self.groups[index + 1 :])
        return replace(self, groups=groups)

    def named(self) -> Self:
        """A state without groups, with every component its class's by what it is called."""
        pooled = torch.tensor(self.pooled, dtype=torch.int64, device=self.recent.device)
        owner = owners_by_name(self.votes, self.owner, pooled)
        return self.mapped(lambda bank: bank.of(replace(bank.components, owner=owner)))
