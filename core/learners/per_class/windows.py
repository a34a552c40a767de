"""Samples of an owner that are held to be learned from: what every way of doing so must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from core.learners.per_class.budget import Budget
from core.learners.per_class.state import Group, PerClassState

S = TypeVar("S", bound=PerClassState)


class Windows(ABC, Generic[S]):
    """Holds samples, and makes components of them.

    Arguments:
        budget: How many components there may be.
        floor: Smallest variance while responsibilities are computed.
        samples: Most samples held in all windows together.
    """

    def __init__(self, budget: Budget, floor: float, samples: int) -> None:
        self.budget, self.floor, self.samples = budget, floor, samples

    @abstractmethod
    def merged(self, components: Any, most: int) -> Any:
        """At most `most` components for one owner's, at least 1: the family's analytic replay."""

    @abstractmethod
    def opened(self, state: S, owner: int, window: Tensor, codes: Tensor) -> Group:
        """The group of an owner that the sub-task sees for the first time.

        Arguments:
            window: No sample, with shape (0, D).
            codes: None either, with shape (0,), int64.
        """

    @abstractmethod
    def absorbed(self, state: S, index: int, generator: torch.Generator) -> S:
        """With an owner's window learned and let go."""

    @abstractmethod
    def settled(self, state: S, index: int, generator: torch.Generator) -> S:
        """With an owner's components fitted to its window, as if it were due; it stays open."""

    @abstractmethod
    def emptied(self, state: S) -> Iterator[Group]:
        """Every group without its raw samples; what was not learned from them is lost."""

    @abstractmethod
    def resumed(self, group: Any, mass: float) -> Group:
        """A group that goes on with components of earlier sub-tasks.

        Arguments:
            mass: Samples that these stand for.
        """

    def reduced(self, state: S, index: int, most: int) -> S:
        """With an owner's components of this sub-task merged down to so many."""
        active = state.active_of(index)
        return state if len(active) <= most else state.with_active(index, self.merged(active, most))

    def crowded(self, state: S, generator: torch.Generator) -> S:
        """With room made in windows for those of owners that arrive."""
        return state

    def finished(self, state: S) -> S:
        """With nothing left undone that merging would let go of."""
        return state

    def all_absorbed(self, state: S, generator: torch.Generator) -> S:
        """With every window learned and let go."""
        state = self.finished(state)
        for index in range(len(state.groups)):
            state = self.absorbed(state, index, generator)
        return state
