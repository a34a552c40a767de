"""A learner fed by hand, without an engine round it."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from core.density.diagonal.components import Components
from core.density.factors.components import Analysers
from core.learners.learner import Learner, Replay

S = TypeVar("S")
Parts = TypeVar("Parts", Analysers, Components)


def by_name(parts: Parts) -> Parts:
    """The same with the class that most votes are for in place of the votes.

    And without what these are compared with, which has a column for each class, too.
    """
    return replace(parts, votes=parts.votes.argmax(-1), vote_baseline=parts.vote_baseline[:, :0])


class FedByHand(Generic[S]):
    """A learner and its state.

    Arguments:
        learner: Of a preset whose state has `n_classes`.
        n_features: D.
        seed: Of all that is random in its life.
    """

    def __init__(self, learner: Learner[S], n_features: int, seed: int) -> None:
        self.learner = learner
        self.generator = torch.Generator().manual_seed(seed)
        self.state: S = learner.start(n_features, torch.device("cpu"))
        self.replays: list[Replay] = []

    def learn(self, x: Tensor, codes: Tensor | list[int] | int, scored: bool = True) -> None:
        """Learn a batch whose classes are `codes` (one for all, or one each); -1 has none."""
        if isinstance(codes, int):
            codes = [codes] * len(x)
        codes = torch.as_tensor(codes)
        known: int = self.state.n_classes  # type: ignore[attr-defined]
        needed = max(known, int(codes.max()) + 1)
        if needed > known:
            self.state = self.learner.grow(self.state, needed)
        scores = self.learner.score(self.state, x) if scored else None
        self.state, replays = self.learner.learn(self.state, x, codes, scores, self.generator)
        self.replays += replays

    def boundary(self) -> None:
        """The sub-task ends here."""
        self.state, replays = self.learner.begin_sub_task(self.state, self.generator)
        self.replays += replays
