"""The common part of learners that climb a gradient, as in the paper.

They learn every batch at once, beside generated samples once there are earlier sub-tasks;
nothing waits and no raw sample is held. Classes are in a linear read-out.
"""

from __future__ import annotations

from dataclasses import Field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.config import EngineConfig
from core.learners.learner import Replay, Unnamed
from core.learners.sgd.classifier import grown
from core.learners.sgd.generated import Known, beside
from core.model.readout import with_merged_classes
from core.model.replay import replay_amount


class GradientState(Protocol):
    """A frozen dataclass with these among its fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def weight(self) -> Tensor:
        """The classifier's, with shape (K, C)."""
        ...

    @property
    def bias(self) -> Tensor:
        """The classifier's, with shape (C,)."""
        ...

    @property
    def samples(self) -> int:
        """Real samples of the present sub-task."""
        ...

    @property
    def earlier_samples(self) -> int:
        """Real samples of all earlier sub-tasks."""
        ...

    @property
    def sub_task(self) -> int:
        """0 for the first."""
        ...

    @property
    def generator(self) -> Known | None:
        """The model of before the last boundary, if there was one."""
        ...


S = TypeVar("S", bound=GradientState)


class GradientLearner(Generic[S]):
    """Part of a learner; satisfies what of `core.learners.learner.Learner` is alike in all.

    Arguments:
        config: Says how much is replayed.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config

    def grow(self, state: S, n_classes: int) -> S:
        weight, bias = grown(state.weight, state.bias, n_classes)
        return replace(state, weight=weight, bias=bias)

    def with_merged_classes(self, state: S, merge: ClassMerge, generator: torch.Generator) -> S:
        weight, bias = with_merged_classes(state.weight, state.bias, merge)
        known = state.generator
        if known is not None:
            known = known.with_merged_classes(merge)
        return replace(state, weight=weight, bias=bias, generator=known)

    def surrogates(self, state: S, x: Tensor) -> Tensor | None:
        return None  # classes are in the read-out, which learns from samples only

    def unnamed(self, state: S) -> Unnamed | None:
        return None

    def vote(self, state: S, x: Tensor, codes: Tensor, weights: Tensor) -> S:
        return state

    def renamed(self, state: S, x: Tensor, codes: Tensor, shown: Tensor) -> S:
        return state  # whose classifier goes on learning, and stands for no class by components

    def waiting(self, state: S) -> int:
        return 0  # every batch is learned at once

    def settle(self, state: S, generator: torch.Generator) -> S:
        return state

    def absorbed(self, state: S, generator: torch.Generator) -> S:
        return state

    def latest(self, state: S) -> Tensor:
        return torch.ones(len(state.weight), dtype=torch.bool, device=state.weight.device)

    def raw_samples(self, state: S) -> int:
        return 0

    def without_raw(self, state: S) -> S:
        return state

    def _with_replay(
        self, state: S, n: int, x: Tensor, codes: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, list[Replay]]:
        """New samples with generated ones behind them, once there are earlier sub-tasks.

        Arguments:
            n: New samples.
            x: The same as rows, with shape (N, D).
            codes: Their classes, with shape (N,).
        """
        if state.generator is None:
            return x, codes, []
        mode = self.config.replay_mode
        amount = replay_amount(
            mode,
            self.config.replay_factor,
            n,
            earlier=state.earlier_samples,
            sub_tasks=state.sub_task,
            current=state.samples,
        )
        x, codes, replay = beside(state.generator, x, codes, amount, mode, generator)
        return x, codes, [replay]
