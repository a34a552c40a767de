"""Components in sets: those of earlier sub-tasks, and a set for each owner in the current one.

What is computed from components for scoring is dear for some families. A set keeps it as long as
its components stay, so that learning one owner's samples costs no more than that owner's share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Self

import torch
from torch import Tensor

from core.learners.per_class.state import ComponentSet, Group, PerClassState


@dataclass(frozen=True, eq=False, kw_only=True)
class BankGroup(Group):
    """The samples of one owner in the current sub-task, and its components.

    Arguments:
        bank: Its components of this sub-task.
        sums: Statistics behind them; None while they come from the open window alone.
        base: What learning goes on from where `bank` was fitted to an open window for a quiet
            stream; else None.
    """

    samples: int
    window: Tensor
    codes: Tensor
    bank: Any
    sums: Any
    base: Any = None

    @property
    def stands(self) -> bool:
        return self.sums is not None

    @property
    def unsettled(self) -> Self:
        """As it would be if the stream had never been quiet."""
        if self.base is None:
            return self
        return replace(self, bank=self.base, base=None, settled_at=0)

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """With its components changed, those behind a quiet stream's as well."""
        base = None if self.base is None else change(self.base)
        return replace(self, bank=change(self.bank), base=base)

    @property
    def fitted(self) -> int:
        return max(self.settled_at, self.seeded_at if self.sums is None else 0)

    @property
    def absorbed(self) -> int:
        """Samples that its components have learned and that were let go."""
        return self.samples - len(self.window)


@dataclass(frozen=True, eq=False, kw_only=True)
class BankState(PerClassState):
    """A state whose groups have their components.

    Arguments:
        frozen: Components of earlier sub-tasks.
    """

    frozen: Any

    @property
    def banks(self) -> Iterator[ComponentSet[Any]]:
        filled = [group.bank for group in self.groups if len(group.bank)]
        if len(self.frozen) or not filled:
            yield self.frozen
        yield from filled

    @property
    def earlier(self) -> Any:
        return self.frozen.components

    def active_of(self, index: int) -> Any:
        return self.groups[index].bank.components

    def with_earlier(self, components: Any) -> Self:
        return replace(self, frozen=self.frozen.of(components), partition=self.partition + 1)

    def with_merged(self, parts: Mapping[int, Any]) -> Self:
        # Taken apart and put together once: copies of all of them are what costs here.
        old = self.earlier
        owners = sorted({*old.owner.tolist()})
        kept = (parts[one] if one in parts else old.select(old.owner == one) for one in owners)
        return self.with_earlier(type(old).concatenated([*kept]))

    def with_active(self, index: int, components: Any) -> Self:
        group = self.groups[index]
        return self.with_components(index, replace(group, bank=group.bank.of(components)))

    def with_components(self, index: int, group: BankGroup) -> Self:
        """With one group replaced, and its components by others."""
        return replace(self.with_group(index, group), partition=self.partition + 1)

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        groups = tuple(group.mapped(change) for group in self.groups)
        return replace(self, frozen=change(self.frozen), groups=groups)

    def with_votes(self, votes: Tensor, vote_baseline: Tensor | None = None) -> Self:
        banks = (self.frozen, *(group.bank for group in self.groups))
        sizes = [len(bank) for bank in banks]
        own = torch.split(votes, sizes)
        expected = repeat(None) if vote_baseline is None else torch.split(vote_baseline, sizes)
        parts = zip(banks, own, expected, strict=False)
        frozen, *others = (bank.with_votes(*said) for bank, *said in parts)
        groups = zip(self.groups, others, strict=True)
        changed = tuple(replace(group, bank=bank) for group, bank in groups)
        return replace(self, frozen=frozen, groups=changed)

    def closed(self) -> Self:
        return replace(self.with_earlier(self.components), groups=())

    @property
    def unsettled(self) -> Self:
        if all(group.base is None for group in self.groups):
            return self
        return replace(self, groups=tuple(group.unsettled for group in self.groups))

    def with_behind(self, behind: Self) -> Self:
        groups = tuple(
            other if one.base is None else replace(one, base=other.bank)
            for one, other in zip(self.groups, behind.groups, strict=True)
        )
        return replace(self, frozen=behind.frozen, groups=groups)
