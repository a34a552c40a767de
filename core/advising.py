"""What a sample is called: the mixture's answer and that of the experts beside it.

The engine's part for `core.experts`, which has the experts. They hear a label when it comes, even
while a change is suspected and the mixture waits: an expert that was wrong is not believed for
long. A class that the model has yet to discover is heard when it is learned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.config import EngineConfig
from core.experts.panel import Advice, Panel
from core.learners.learner import Learner, Scores
from core.state import EngineState


@dataclass(frozen=True)
class Advising:
    """Asks the experts, and tells them.

    Arguments:
        config: Says whether there are any.
        learner: The model's way of learning.
    """

    config: EngineConfig
    learner: Learner[Any]

    def first(self, n_features: int, images: bool) -> Panel | None:
        """The experts before any sample."""
        return Panel.start(n_features) if self.config.advised and not images else None

    def probabilities(
        self, state: EngineState, x: Tensor, scores: Scores
    ) -> tuple[Tensor, Advice | None]:
        """Of classes, with shape (N, C), and what the experts said.

        Arguments:
            x: Samples in the sender's units, with shape (N, D).
            scores: What the mixture says of them.
        """
        mixture = self.learner.readout(state.learner).class_probabilities(scores.joint)
        if state.panel is None:
            return mixture, None
        advice = state.panel.rules.advice(x, mixture)
        return advice.probabilities, advice

    def introduced(self, state: EngineState) -> EngineState:
        """Before a batch: classes that are learned by now are heard of when their labels come."""
        panel = state.panel
        if panel is None or state.set_aside or panel.introduced == len(state.classes):
            return state
        return replace(state, panel=replace(panel, introduced=len(state.classes)))

    def heard(
        self, state: EngineState, x: Tensor, codes: Tensor, advice: Advice | None
    ) -> EngineState:
        """With labels that have come.

        Arguments:
            x: Samples in the sender's units, with shape (N, D).
            codes: Their classes, with shape (N,), int64, on the CPU; -1 for unlabelled.
            advice: What was said of them before; None: nobody was asked.
        """
        panel = state.panel
        if panel is None:
            return state
        codes = torch.where(codes < panel.introduced, codes, UNLABELLED)
        if advice is not None:
            panel = panel.judged(advice, codes)
        panel = panel.learned(x, codes, panel.introduced)
        return state if panel is state.panel else replace(state, panel=panel)
