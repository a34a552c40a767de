"""Judges every batch before it is learned: the model as it was, then the detectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.batch import UNLABELLED, Batch, codes_among
from core.drift.detector import Detector, ForwardPass, ModelVersion, Observation
from core.drift.shadows import Said, Shadows
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
        assert state.standardiser is not None
        scores = self.learner.score(state.learner, state.standardiser.apply(batch.features))
        if scores is None:
            beside = Said(state.shadows, {})
            return Judgement(None, None, state.detector, None, 0, None, Running(), beside)
        seen = self.observation(state, batch, scores)
        settled = self.learner.settled(state.learner)
        detector, verdict = self.detector.observe(state.detector, seen, settled)
        beside = self.shadows.observe(state.shadows, seen, settled)
        likelihoods = seen.log_likelihoods.double()
        tamed = likelihoods.clamp(min=state.likelihood.lowest)
        tame = Running(len(batch), float(tamed.mean()), float(tamed.var(correction=0)))
        mean = float(likelihoods.mean())
        accuracy, guessed, advice = self._accuracy(state, batch, scores)
        return Judgement(scores, verdict, detector, accuracy, guessed, mean, tame, beside, advice)

    def observation(self, state: EngineState, batch: Batch, scores: Scores) -> Observation:
        """What a detector is shown of a batch.

        Arguments:
            scores: What the model of before the batch says of it.
        """
        assert state.standardiser is not None
        return Observation(
            scores.log_likelihood - state.standardiser.log_volume,
            batch.features,
            lambda samples: self._version(state, samples),
            state.ert,
            None if batch.codes is None else state.codes_of(batch),
            None if scores.parts is None else ForwardPass(state.standardiser, scores.parts),
            state.stream_samples - state.boundary_sample,
        )

    def _accuracy(
        self, state: EngineState, batch: Batch, scores: Scores
    ) -> tuple[float | None, int, Advice | None]:
        """Share of the labelled samples whose class is named, 0 to 1, how many, and by whom."""
        labels = self.naming.labels(state)
        if batch.codes is None or not labels:
            return None, 0, None
        labelled = batch.codes.cpu() != UNLABELLED
        if not bool(labelled.any()):
            return None, 0, None
        probabilities, advice = self.naming.probabilities(state, batch.features, scores)
        guesses = probabilities.argmax(-1).cpu()
        hits = guesses == codes_among(batch, labels)
        return float(hits[labelled].double().mean()), int(labelled.sum()), advice

    def _version(self, state: EngineState, samples: int) -> ModelVersion:
        """The model as it stands, to watch the stream by."""
        model = self.learner.model(state.learner)
        assert model is not None
        assert state.standardiser is not None
        return ModelVersion(model, state.standardiser, samples)
