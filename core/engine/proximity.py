"""How near unknown samples lie to each other, to proposals and to the classes that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.batch import Label
from core.config import EngineConfig
from core.engine.state import EngineState
from core.learners.learner import Learner
from core.memory.proposals import group_of
from core.model.readout import at_most_one
from core.model.sampling import draw

DRAWS_PER_CLASS = 32
MOST_DRAWN_CLASSES = 32
"""Samples drawn of each known class, to see how far such lie from their mean."""

NEAREST = 3
"""Classes that are named beside a proposal."""

BESIDE = 0.25
"""Squared distance of the mean of a group to that of a proposal's samples, over the mean squared
distance of these to it, up to which the group is of the proposal."""


@dataclass(frozen=True)
class Proximity:
    """Measures it in the units of the model, which has standardised features.

    Arguments:
        config: Its seed is that of draws.
        learner: The model's way of learning.
    """

    config: EngineConfig
    learner: Learner[Any]

    def homes(self, state: EngineState, features: Tensor) -> list[int | None]:
        """For each sample the number of the open proposal that it belongs to, if any.

        Arguments:
            features: In the sender's units, with shape (N, D).
        """
        proposals = state.pending.proposals.open
        if not proposals:
            return [None] * len(features)
        centres = torch.stack([one.prototype for one in proposals])
        x, centres = state.standardiser.apply(features), state.standardiser.apply(centres)
        away = torch.stack([(x - centre).double().square().sum(1) for centre in centres], 1)
        nearest = away.min(1)
        return [
            proposals[index].number if distance <= proposals[index].reach else None
            for distance, index in zip(
                nearest.values.tolist(), nearest.indices.tolist(), strict=True
            )
        ]

    def beside(self, state: EngineState, features: Tensor) -> int | None:
        """The place of the open proposal of whose samples these are the outer ones, if any is.

        Arguments:
            features: Of a group, in the sender's units, with shape (N, D).
        """
        centre = state.standardiser.apply(features).double().mean(0)
        best: tuple[float, int] | None = None
        for index, one in enumerate(state.pending.proposals.open):
            if not len(one.unknowns):
                continue
            x = state.standardiser.apply(one.unknowns.features).double()
            middle = x.mean(0)
            spread = float((x - middle).square().sum(1).mean())
            away = float((middle - centre).square().sum())
            if away <= BESIDE * spread and (best is None or away < best[0]):
                best = away, index
        return None if best is None else best[1]

    def group(self, state: EngineState, features: Tensor, least: int) -> list[int] | None:
        """Which samples lie together; None where too few do.

        Arguments:
            features: In the sender's units, with shape (N, D).
            least: Samples of a group.
        """
        if len(features) < least:
            return None
        rows = group_of(state.standardiser.apply(features), least, self._spread(state))
        return None if rows is None else rows.tolist()

    def _spread(self, state: EngineState) -> float:
        """Mean squared distance of a known class's samples to their mean, standardised.

        By samples that the model draws, because no others are kept; the same ones for a state.
        """
        model = self.learner.model(state.model.learner)
        if model is None:
            return 0.0
        n = min(len(state.model.classes), MOST_DRAWN_CLASSES)
        codes = torch.arange(n).repeat_interleave(DRAWS_PER_CLASS)
        generator = torch.Generator().manual_seed(self.config.seed)
        x = draw(model, len(codes), generator, codes).x.double().reshape(n, DRAWS_PER_CLASS, -1)
        # The mean of few samples lies too near to them.
        scale = DRAWS_PER_CLASS / (DRAWS_PER_CLASS - 1)
        return float((x - x.mean(1, keepdim=True)).square().sum(-1).mean()) * scale

    def nearest(self, state: EngineState, x: Tensor) -> tuple[tuple[Label, ...], tuple[float, ...]]:
        """The classes that a sample (1, D), standardised, looks like most, and how much."""
        scores = self.learner.score(state.model.learner, x)
        if scores is None or not state.model.classes:
            return (), ()
        readout = self.learner.readout(state.model.learner)
        top = readout.class_probabilities(scores.joint)[0].topk(
            min(NEAREST, len(state.model.classes))
        )
        return tuple(state.model.classes[code] for code in top.indices.tolist()), tuple(
            at_most_one(top.values).tolist()
        )
