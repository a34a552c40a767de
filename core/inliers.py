"""What p-values rest on: inliers that the model had not learned when they came.

The engine's part of `core.calibration`: the learner says what traits samples have, and what is
kept of ended sub-tasks stands in for samples that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.belonging import belonging
from core.calibration import DRAWN, Calibration, chosen
from core.held import Held
from core.learners.learner import Learner, Scores
from core.scales import FIRST, Scales, at_scales, n_scales
from core.state import EngineState
from core.typicality import Typicality


@dataclass(frozen=True)
class Inliers:
    """Joins a calibration to a learner.

    Arguments:
        learner: The model's way of learning.
        device: Where the model lives.
    """

    learner: Learner[Any]
    device: torch.device

    def rescaled(self, state: EngineState) -> EngineState:
        """With the model's scales made again, if they are due.

        Images have none: what is strange of a picture lies in its details, which coarser
        mixtures do not see, and asking them hides it (docs/method.md, section 1).
        """
        if state.standardiser is None or state.standardiser.identity:
            return state
        samples = state.stream_samples - state.boundary_sample
        old = state.scales
        due = samples >= FIRST if old is None else old.due(state.sub_task, samples)
        if not due:
            return state
        model = None if state.learner is None else self.learner.model(state.learner)
        found = None if model is None else model.density.analysers
        if found is None:
            return state
        scales = Scales.of(*found, state.standardiser, state.sub_task, samples)
        # Rows of before there were any, of a checkpoint of an earlier release, lack their traits.
        calibration = Calibration() if old is None else state.calibration
        return replace(state, scales=scales, calibration=calibration)

    def observed(self, state: EngineState, scores: Scores) -> Calibration:
        """With traits of some of a batch's samples, which the model has not learned yet."""
        rows = chosen(len(scores.x)).to(scores.x.device)
        some = Scores(scores.x[rows], None, scores.joint[rows], scores.log_likelihood[rows])
        traits = self._traits(state, some)
        return state.calibration.observed(traits, len(scores.x), state.sub_task)

    def ended(self, state: EngineState, past: Held) -> Calibration:
        """The calibration at the end of a sub-task, given the samples that were drawn of it."""
        drawn = torch.zeros(0, 1)
        if past.sets and past.sets[-1].sub_task == state.sub_task:
            drawn = self._traits_of(state, past.sets[-1].first(DRAWN).features)
        return state.calibration.crossed(drawn)

    def usual(self, state: EngineState) -> Typicality:
        """What p-values rest on, as the model stands."""
        sets = {one.sub_task: one for one in state.held.sets}
        wanted = {
            sub_task: sets[sub_task].first(n).features
            for sub_task, n in state.calibration.wanted.items()
            if n and sub_task in sets
        }
        if not wanted:
            return state.calibration.typicality({}, n_scales(state.scales))
        traits = self._traits_of(state, torch.cat([x.float() for x in wanted.values()]))
        parts = torch.split(traits, [len(x) for x in wanted.values()])
        now = dict(zip(wanted, parts, strict=True))
        return state.calibration.typicality(now, n_scales(state.scales))

    def p_values(self, state: EngineState, scores: Scores) -> Tensor | None:
        """P-values of scored samples, with shape (n,), float64; None while nothing tells them."""
        usual = self.usual(state)
        if not len(usual):
            return None
        return usual.p_values(usual.typicality(self._traits(state, scores)))

    def _traits_of(self, state: EngineState, features: Tensor) -> Tensor:
        """Traits of samples in the sender's units, with shape (n, S)."""
        assert state.standardiser is not None
        x = state.standardiser.apply(features.to(self.device, torch.float32))
        scores = self.learner.score(state.learner, x)
        return torch.zeros(0, 1) if scores is None else self._traits(state, scores)

    def _traits(self, state: EngineState, scores: Scores) -> Tensor:
        """Traits with the log-likelihood in the sender's units, with shape (n, S)."""
        assert state.standardiser is not None
        likelihood = scores.log_likelihood - state.standardiser.log_volume
        scores = scores._replace(log_likelihood=likelihood)
        traits = self.learner.traits(state.learner, scores)
        readout = self.learner.readout(state.learner)
        traits = belonging(traits, readout, scores.joint, scores.x.shape[1])
        return at_scales(traits, state.scales, scores.x, state.standardiser)
