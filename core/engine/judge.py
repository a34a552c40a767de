"""Judges every batch before it is learned: the model as it was, then the detectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from core.batch import UNLABELLED, Batch, codes_among
from core.drift.detector import Detector, ForwardPass, ModelVersion, Observation
from core.drift.shadows import Said, Shadows
from core.engine.class_accuracy import ClassAccuracy, by_class
from core.engine.judgement import Judgement
from core.engine.naming import Naming
from core.engine.state import EngineState
from core.experts.panel import Advice
from core.learners.learner import Learner, Scores
from core.running import Running


@dataclass(frozen=True)
class Judge:
    """Asks the model and the detectors about batches.

    Arguments:
        learner: The model's way of learning.
        detector: The one that decides.
        shadows: Those that run beside it.
        naming: Asks experts beside the model what samples are called.
    """

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
            beside = Said(state.watch.shadows, {})
            return Judgement(None, None, state.watch.detector, None, 0, [], None, Running(), beside)
        seen = self.observation(state, batch, scores)
        settled = self.learner.settled(state.model.learner)
        detector, verdict = self.detector.observe(state.watch.detector, seen, settled)
        beside = self.shadows.observe(state.watch.shadows, seen, settled)
        likelihoods = seen.log_likelihoods.double()
        tamed = likelihoods.clamp(min=state.sub_task.likelihood.lowest)
        told = torch.stack([tamed.mean(), tamed.var(correction=0), likelihoods.mean()])
        tame_mean, tame_variance, mean = told.tolist()
        tame = Running(len(batch), tame_mean, tame_variance)
        accuracy, guessed, named, advice = self._accuracy(state, batch, scores)
        return Judgement(
            scores, verdict, detector, accuracy, guessed, named, mean, tame, beside, advice
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

    def _accuracy(
        self, state: EngineState, batch: Batch, scores: Scores
    ) -> tuple[float | None, int, list[ClassAccuracy], Advice | None]:
        """Share of the labelled samples whose class is named, 0 to 1; how many; the same for each
        class; and by whom."""
        labels = self.naming.labels(state)
        if batch.codes is None or not labels:
            return None, 0, [], None
        labelled = batch.codes.cpu() != UNLABELLED
        if not bool(labelled.any()):
            return None, 0, [], None
        probabilities, advice = self.naming.probabilities(state, batch.features, scores)
        guesses = probabilities.argmax(-1).cpu()
        hits = guesses == codes_among(batch, labels)
        hits = hits[labelled]
        named = by_class(batch.codes.cpu()[labelled], hits, batch.vocabulary)
        return float(hits.double().mean()), int(labelled.sum()), named, advice

    def _version(self, state: EngineState, samples: int) -> ModelVersion:
        """The model as it stands, to watch the stream by."""
        model = self.learner.model(state.model.learner)
        assert model is not None
        return ModelVersion(model, state.standardiser, samples)
