"""The basis of p-values: inliers that the model had not learned when they came.

The engine's part of `core.outliers.calibration`: the learner says what conformity scores samples
have, and what is kept of ended sub-tasks stands in for samples that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.config import EngineConfig
from core.engine.state import EngineState
from core.learners.learner import Learner, Scores
from core.memory.retention import RetentionSets
from core.outliers.calibration import DRAWN, Calibration, Rescored, chosen
from core.outliers.p_values import Typicality
from core.outliers.scales import of_inliers

REFITTED_SHARE = 0.05
"""Part of the current sub-task's samples in a fit from which on it is asked how it has changed
conformity scores: a smaller one changes them little."""

REFITTED = 128
"""Samples that either model draws to see how a fit has changed conformity scores."""


@dataclass(frozen=True)
class Inliers:
    """Joins a calibration to a learner.

    Arguments:
        config: Says what an outlier is.
        learner: The model's way of learning.
        device: Where the model lives.
    """

    config: EngineConfig
    learner: Learner[Any]
    device: torch.device

    def observed(self, state: EngineState, scores: Scores) -> Calibration:
        """Keep scores of some of a batch's samples, which the model has not learned yet."""
        rows = chosen(len(scores.x)).to(scores.x.device)
        some = Scores(scores.x[rows], None, scores.joint[rows], scores.log_likelihood[rows])
        conformity, n_scales = self._conformity(state, some)
        return state.model.calibration.observed(
            conformity, len(scores.x), state.sub_task.number, n_scales
        )

    def followed(self, before: EngineState, after: EngineState) -> EngineState:
        """The state after a batch was learned, with rows that follow a window which was fitted.

        Where most samples have labels each class has a window of its own, and few samples are in
        each: rows of later batches say what has changed.
        """
        samples = after.stream.samples - after.sub_task.first_sample
        learned = after.model.samples_seen - before.model.samples_seen
        fitted = self._waiting(before) + learned - self._waiting(after)
        labelled = sum(after.model.class_counts) - sum(after.past.retention.class_counts)
        if fitted < REFITTED_SHARE * samples or 2 * labelled > samples:
            return after
        generator = torch.Generator()
        generator.set_state(before.model.random)
        return after.with_model(calibration=self.refitted(before, after, generator))

    def _waiting(self, state: EngineState) -> int:
        return 0 if state.model.learner is None else self.learner.waiting(state.model.learner)

    def refitted(
        self, state: EngineState, after: EngineState, generator: torch.Generator
    ) -> Calibration:
        """The calibration once the current sub-task's samples have been fitted anew.

        Of images no fit has been seen that moves rows.

        Arguments:
            state: Before that.
            after: With the learner of now.
            generator: On the CPU.
        """
        calibration = after.model.calibration
        if state.standardiser.identity:
            return calibration
        if self.learner.model(state.model.learner) is None or not calibration.current:
            return calibration
        by_before = self._rescored(self._drawn(state, generator), state, after)
        by_now = self._rescored(self._drawn(after, generator), state, after)
        if by_before.before.shape != by_before.now.shape:
            return calibration
        return calibration.refitted(by_before, by_now)

    def _drawn(self, state: EngineState, generator: torch.Generator) -> Tensor:
        """Samples of the model as it stands, in the sender's units, with shape (m, D)."""
        model = self.learner.model(state.model.learner)
        assert model is not None
        chances = model.density.log_weights.exp().cpu()
        components = torch.multinomial(chances, REFITTED, replacement=True, generator=generator)
        return state.standardiser.invert(model.sample(components, generator))

    def _rescored(self, x: Tensor, state: EngineState, after: EngineState) -> Rescored:
        """Samples in the sender's units, and what both models say of them."""
        return Rescored(self._conformity_of(state, x), self._conformity_of(after, x))

    def ended(self, state: EngineState, past: RetentionSets) -> Calibration:
        """The calibration at the end of a sub-task, given the samples that were drawn of it."""
        drawn = torch.zeros(0, 1)
        if past.sets and past.sets[-1].sub_task == state.sub_task.number:
            drawn = self._conformity_of(state, past.sets[-1].first(DRAWN).features)
        return state.model.calibration.crossed(drawn)

    def usual(self, state: EngineState) -> Typicality:
        """What p-values rest on, as the model stands."""
        sets = {one.sub_task: one for one in state.past.retention.sets}
        wanted = {
            sub_task: sets[sub_task].first(n).features
            for sub_task, n in state.model.calibration.wanted.items()
            if n and sub_task in sets
        }
        n_features = state.n_features or 0
        if not wanted:
            return state.model.calibration.typicality({}, n_features)
        conformity = self._conformity_of(state, torch.cat([x.float() for x in wanted.values()]))
        parts = torch.split(conformity, [len(x) for x in wanted.values()])
        now = dict(zip(wanted, parts, strict=True))
        return state.model.calibration.typicality(now, n_features)

    def p_values(self, state: EngineState, scores: Scores) -> Tensor | None:
        """P-values of scored samples, with shape (n,), float64; None while nothing tells them."""
        found = self._found(state, self.usual(state), scores)
        return None if found is None else found[1]

    def among(self, state: EngineState, scores: Scores) -> Tensor:
        """Which scored samples `POST /outliers` would call inliers, with shape (n,), bool."""
        rate = state.in_force(self.config).outlier_false_positive_rate
        usual = self.usual(state)
        found = None if rate is None else self._found(state, usual, scores)
        if rate is not None and found is not None:
            return usual.inliers(*found, rate)
        known = state.log_likelihood
        lowest = known.mean - state.in_force(self.config).outlier_c * known.deviation
        return scores.log_likelihood - state.standardiser.log_volume >= lowest

    def _found(
        self, state: EngineState, usual: Typicality, scores: Scores
    ) -> tuple[Tensor, Tensor] | None:
        """Typicalities and p-values, with shape (n,) each; None while nothing tells them."""
        if not len(usual):
            return None
        typicality = usual.typicality(self._conformity(state, scores)[0])
        return typicality, usual.p_values(typicality)

    def _conformity_of(self, state: EngineState, features: Tensor) -> Tensor:
        """Conformity scores of samples in the sender's units, with shape (n, S)."""
        x = state.standardiser.apply(features.to(self.device, torch.float32))
        scores = self.learner.score(state.model.learner, x)
        return torch.zeros(0, 1) if scores is None else self._conformity(state, scores)[0]

    def _conformity(self, state: EngineState, scores: Scores) -> tuple[Tensor, int]:
        """Scores with shape (n, S), densities in the sender's units; how many are of scales."""
        log_likelihood = scores.log_likelihood - state.standardiser.log_volume
        scores = scores._replace(log_likelihood=log_likelihood)
        conformity = self.learner.conformity(state.model.learner, scores)
        return of_inliers(
            conformity,
            self.learner.readout(state.model.learner),
            scores.joint,
            self.learner.log_weights(state.model.learner),
            state.standardiser.log_volume,
            scores.x.shape[1],
            table=not state.standardiser.identity,
        )
