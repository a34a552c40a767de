"""Judges every batch before it is learned: the model as it was, then the detectors.

After a boundary the one that decides rests for as long as `EngineConfig.cooldown` asks. A change
meanwhile is learned as part of the new sub-task. Shadows go on: they tell what would be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, codes_among
from core.config import EngineConfig
from core.drift.detector import (
    Arming,
    Detector,
    ForwardPass,
    ModelVersion,
    Observation,
    UnarmedReason,
)
from core.drift.shadows import Shadows, ShadowVerdicts
from core.engine.class_accuracy import ClassAccuracy, by_class
from core.engine.judgement import Judgement
from core.engine.naming import Naming
from core.engine.state import EngineState
from core.experts.panel import Advice
from core.learners.learner import Learner, Scores
from core.memory.fingerprints import fingerprints
from core.memory.reliability import Answered
from core.outliers.calibration import chosen
from core.running import Running


@dataclass(frozen=True, eq=False)
class Answers:
    """The classes that the model named for a batch."""

    accuracy: float | None = None  # share of labelled samples that were named rightly, 0 to 1
    guessed: int = 0  # those behind it
    by_class: list[ClassAccuracy] = field(default_factory=list)
    advice: Advice | None = None  # what experts said, where any sample has a label
    answered: Answered | None = None  # for the estimate; None where nothing was named


@dataclass(frozen=True)
class Judge:
    """Asks the model and the detectors about batches.

    Arguments:
        config: Of the engine.
        learner: The model's way of learning.
        detector: The one that decides.
        shadows: Those that run beside it.
        naming: Asks experts beside the model what samples are called.
    """

    config: EngineConfig
    learner: Learner[Any]
    detector: Detector[Any]
    shadows: Shadows
    naming: Naming

    def judge(self, state: EngineState, batch: Batch) -> Judgement:
        """What the model of before the batch, and then the detector, say of it."""
        scores, scale = None, state.model.standardiser
        if scale is not None:
            scores = self.learner.score(state.model.learner, scale.apply(batch.features))
        if scores is None:
            shadows = ShadowVerdicts(state.watch.shadows, {})
            return Judgement(
                None, None, state.watch.detector, None, 0, [], None, Running(), shadows
            )
        seen = self.observation(state, batch, scores)
        converged = self.learner.converged(state.model.learner)
        resting = self._cooldown_left(state) > 0
        watching = self.detector.start() if resting else state.watch.detector
        detector, verdict = self.detector.observe(watching, seen, converged and not resting)
        own = fingerprints(batch.features)
        known, repeated = state.sub_task.fingerprints, False
        if not state.suspected:
            known = known.heard(own, state.model.codes_and_new(batch))
            repeated = known.repeating and verdict.armed and not verdict.early
        if repeated:
            detector, verdict = state.watch.detector, verdict.unheard()
            shadows = ShadowVerdicts(state.watch.shadows, {})
        else:
            shadows = self.shadows.observe(state.watch.shadows, seen, converged)
        log_likelihoods = seen.log_likelihoods.double()
        clipped = log_likelihoods.clamp(min=state.sub_task.log_likelihood.lowest)
        spread, centre = torch.var_mean(clipped, correction=0, keepdim=True)
        moments = (centre, spread, log_likelihoods.mean(0, keepdim=True))
        on_cpu = torch.cat([*moments, clipped]).cpu()  # at once: each copy waits for the device
        (clipped_mean, clipped_variance, mean), clipped = on_cpu[:3].tolist(), on_cpu[3:]
        running = Running(len(batch), clipped_mean, clipped_variance)
        answers = self._answers(state, batch, scores, clipped)
        if repeated:  # their labels were learned: to name them now predicts nothing
            answers = replace(answers, accuracy=None, guessed=0, by_class=[])
        return Judgement(
            scores,
            verdict,
            detector,
            answers.accuracy,
            answers.guessed,
            answers.by_class,
            mean,
            running,
            shadows,
            answers.advice,
            answers.answered,
            known,
            repeated,
            own,
        )

    def observation(self, state: EngineState, batch: Batch, scores: Scores) -> Observation:
        """What a detector is shown of a batch.

        Arguments:
            scores: What the model of before the batch says of it.
        """
        return Observation(
            scores.log_likelihood - state.standardiser.log_volume,
            batch.features,
            lambda samples: self._version(state, samples),
            state.watch.ert,
            None if batch.codes is None else state.model.codes_of(batch),
            None if scores.parts is None else ForwardPass(state.standardiser, scores.parts),
            state.stream.samples - state.sub_task.first_sample,
        )

    def _answers(
        self, state: EngineState, batch: Batch, scores: Scores, clipped: Tensor
    ) -> Answers:
        """The classes that are named, against labels where there are any.

        Arguments:
            scores: Of all samples of the batch.
            clipped: Their log-likelihoods, clipped from below, on the CPU.
        """
        labels = self.naming.labels(state)
        if not labels:
            return Answers()
        codes = torch.full((len(batch),), UNLABELLED) if batch.codes is None else batch.codes.cpu()
        labelled = codes != UNLABELLED
        if not bool(labelled.any()):
            # Of these only the estimate is wanted, which some will do for.
            rows = chosen(len(batch))
            some = rows.to(scores.joint.device)
            scores = Scores(scores.x[some], None, scores.joint[some], scores.log_likelihood[some])
            batch, labelled, clipped = batch.select(rows), labelled[rows], clipped[rows]
            weight = len(codes) / len(rows)
        else:
            weight = 1.0
        probabilities, advice = self.naming.probabilities(state, batch.features, scores)
        probabilities = probabilities.cpu()
        guesses = probabilities.argmax(-1)
        confidence, unnamed = self.naming.confidence(state, scores, probabilities, advice)
        truths = codes_among(batch, labels)
        hits = guesses == truths
        counted = labelled & (truths >= 0)
        if not state.ready:
            counted = torch.zeros_like(counted)
        answered = Answered(
            confidence, guesses, unnamed, weight, labelled, counted, hits, truths, clipped
        )
        if not bool(labelled.any()):
            return Answers(answered=answered)
        accuracy = float(hits[labelled].double().mean())
        by = by_class(codes[labelled], hits[labelled], batch.vocabulary)
        return Answers(accuracy, int(labelled.sum()), by, advice, answered)

    def _version(self, state: EngineState, samples: int) -> ModelVersion:
        """The model as it stands, to watch the stream by."""
        model = self.learner.model(state.model.learner)
        assert model is not None
        return ModelVersion(model, state.standardiser, samples)

    def _cooldown_left(self, state: EngineState) -> int:
        """Samples for which the detector that decides still rests."""
        if not state.sub_task.number:
            return 0  # there was no boundary
        since_boundary = state.stream.samples - state.sub_task.first_sample
        return max(0, state.in_force(self.config).cooldown - since_boundary)

    def arming(self, state: EngineState) -> Arming:
        """See `core.engine.engine.Engine.arming`."""
        seen = state.seen
        converged = not self.learner.anneals
        if seen.model.learner is not None:
            converged = self.learner.converged(seen.model.learner)
        since_boundary = seen.stream.samples - seen.sub_task.first_sample
        resting = self._cooldown_left(seen)
        watching = self.detector.start() if resting else seen.watch.detector
        arming = self.detector.arming(watching, since_boundary + resting, converged)
        if resting and arming.reason is not UnarmedReason.NO_DETECTOR:
            samples = None if arming.samples is None else resting + arming.samples
            return Arming(samples, UnarmedReason.COOLDOWN)
        if (
            arming.reason is UnarmedReason.WARM_UP
            and seen.pending.awaiting.samples
            and not seen.model.samples_seen
        ):
            # A model that knows nothing scores no sample; when labels come is not known.
            return Arming.unknown(UnarmedReason.AWAITING_LABELS)
        return arming
