"""How near unknown samples lie to each other, to proposals and to the classes that are known."""

from __future__ import annotations

import math
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

FEWEST = 50
"""Samples of a cluster from which on it is said whether they may be of all known classes."""

DRAWN = 500
"""Samples drawn of known classes, with which those are compared."""

AS_WIDE = 0.85
"""Mean squared distance of a cluster's samples to their mean, over that of samples of all known
classes to theirs, from which on they are spread as widely."""

AS_CALLED = 0.25
"""Part of the distance between shares of classes that samples of a single class would make, beyond
that by chance, up to which they are called as known samples are. Distance: total variation."""


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

    def may_be_known(self, state: EngineState, features: Tensor) -> bool | None:
        """Whether samples may be of all known classes, which have moved together.

        Classes that lie near each other are one cluster once they have moved without labels. Then
        its samples are spread as widely as those of all classes. Moved back, so that the means
        agree, they are called by each class as often as labelled ones were. Of a new class both
        holds where known classes hardly differ, and then nobody can tell.

        Arguments:
            features: Of the cluster, in the sender's units, with shape (N, D).

        Returns:
            None for fewer than `FEWEST` samples, where fewer than two classes have had labels
            lately, and where components stand for no classes.
        """
        model = self.learner.model(state.model.learner)
        # A class beyond these was answered, and came with outliers: it is none.
        usual = state.stream.reliability.usual[: len(state.model.classes)]
        if model is None or model.readout.kinds is None or len(features) < FEWEST:
            return None
        if int((usual > 0).sum()) < 2:
            return None
        generator = torch.Generator().manual_seed(self.config.seed)
        codes = torch.multinomial(usual, DRAWN, True, generator=generator)
        known = draw(model, DRAWN, generator, codes).x.double()
        x = state.standardiser.apply(features).to(known)
        middle, centre = known.mean(0), x.mean(0)
        wide = float((x - centre).square().sum(1).mean())
        if wide < AS_WIDE * float((known - middle).square().sum(1).mean()):
            return False
        called = self._called(state, (x - centre + middle).float())
        if called is None:
            return None
        expected = torch.zeros(len(called), dtype=torch.float64)
        expected[: len(usual)] = usual / usual.sum()
        # Mean absolute deviation of a share, by its normal approximation.
        variances = expected * (1 - expected) * (1 / len(x) + 1 / float(usual.sum()))
        chance = 0.5 * float((variances * 2 / math.pi).sqrt().sum())
        distance = 0.5 * float((called - expected).abs().sum())
        return distance <= AS_CALLED * (1 - float(expected.max())) + chance

    def _called(self, state: EngineState, x: Tensor) -> Tensor | None:
        """The share of samples that each class is named for, by components with a name, (C,).

        Arguments:
            x: Standardised, with shape (N, D), N at least 1.
        """
        scores = self.learner.score(state.model.learner, x)
        if scores is None:
            return None
        joint, unnamed = scores.joint, self.learner.unnamed(state.model.learner)
        if unnamed is not None:
            joint = joint.index_fill(1, unnamed.index.to(joint.device), -math.inf)
        readout = self.learner.readout(state.model.learner)
        codes = readout.class_probabilities(joint).argmax(1).cpu()
        return codes.bincount(minlength=readout.n_classes).double() / len(x)
