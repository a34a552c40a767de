"""The judgement of a batch before it is learned, and its report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from core.batch import UNLABELLED, Batch
from core.compiled.loops import Array
from core.drift.detector import Arming, Level, Verdict
from core.drift.shadows import ShadowVerdicts
from core.engine.class_accuracy import ClassAccuracy
from core.engine.state import EngineState, StreamState
from core.events import Event, Replayed, ShadowAlarm
from core.experts.panel import Advice
from core.learners.learner import Replay, Scores
from core.memory.fingerprints import Fingerprints
from core.memory.reliability import Answered
from core.running import Running


@dataclass(frozen=True)
class BatchPosition:
    """The place in the stream at which a batch begins."""

    batch: int
    sample: int


@dataclass(frozen=True, eq=False)
class Judgement:
    """One batch, as the model of before and the detector saw it."""

    scores: Scores | None
    verdict: Verdict | None  # None where there was no model to judge by
    detector: Any  # the detector's next state
    accuracy: float | None
    guessed: int  # labelled samples behind `accuracy`
    by_class: list[ClassAccuracy]  # the same for each class
    likelihood_mean: float | None  # of this batch alone, nats in the sender's units
    clipped: Running  # the same, clipped from below: what the running statistics learn from
    shadows: ShadowVerdicts  # what the shadows say
    advice: Advice | None = None  # what experts call its samples, where any has a label
    answered: Answered | None = None  # the classes that were named
    fingerprints: Fingerprints = field(default_factory=Fingerprints)  # with those heard
    repeated: bool = False  # its samples were learned before, and no detector has seen them
    own: Array | None = None  # fingerprints of its samples

    @property
    def level(self) -> Level:
        """Normal where there was no model to judge by."""
        return self.verdict.level if self.verdict else Level.NORMAL

    def told(self, stream: StreamState) -> StreamState:
        """What is known of the accuracy of answers, with those to this batch."""
        prequential, reliability = stream.prequential, stream.reliability
        if self.accuracy is not None:
            prequential = prequential.updated(self.guessed, self.accuracy)
        if self.answered is not None and not self.repeated:
            reliability = reliability.observed(self.answered)
        return replace(stream, prequential=prequential, reliability=reliability)

    def report(
        self, state: EngineState, batch: Batch, position: BatchPosition, arming: Arming
    ) -> dict[str, Any]:
        """The fields of `BatchScored`.

        Arguments:
            state: After the batch.
            position: Where the batch begins.
            arming: When the detector may speak, after the batch.
        """
        verdict = self.verdict
        probe = verdict.probe if verdict else None
        labelled = 0 if batch.codes is None else int((batch.codes != UNLABELLED).sum())
        prequential = state.stream.prequential
        stream, proposals = state.stream, state.pending.proposals
        proposed, unknown = (
            [stream.all_samples - 1 - stream.place(sample) for sample in samples]
            for samples in (proposals.proposed, proposals.unknown.arrived)
        )
        expected = stream.reliability.estimate(
            state.model.class_counts, proposed, unknown, proposals.rates.known_share
        )
        return {
            "batch_index": position.batch,
            "sample_index": position.sample,
            "samples": len(batch),
            "labelled": labelled,
            "sub_task": state.sub_task.number,
            "inlier_rate": verdict.inlier_rate if verdict else None,
            "inlier_rate_mean": verdict.inlier_rate_mean if verdict else None,
            "log_likelihood_mean": self.likelihood_mean,
            "statistic": verdict.statistic if verdict else 0.0,
            "threshold": verdict.threshold if verdict else 0.0,
            "statistics": {**(verdict.statistics if verdict else {}), **self.shadows.statistics},
            "thresholds": {**(verdict.thresholds if verdict else {}), **self.shadows.thresholds},
            "armed": verdict.armed if verdict else False,
            "armed_in": arming.samples,
            "prequential_accuracy": self.accuracy,
            "class_accuracies": self.by_class,
            "prequential_accuracy_mean": prequential.mean if prequential.weight else None,
            "estimated_accuracy": expected.accuracy if expected else None,
            "estimated_accuracy_low": expected.low if expected else None,
            "estimated_accuracy_high": expected.high if expected else None,
            "estimated_unseen": expected.unseen if expected else None,
            "model_version": state.model.version,
            "probe_ert": probe.ert if probe else 0.0,
            "probe_samples": probe.samples if probe else 0,
            "probe_alarms": probe.alarms if probe else 0,
            "awaiting_samples": state.pending.awaiting.samples,
        }

    @property
    def usual(self) -> bool:
        """Whether it shows what is usual: nothing of it has to do with a change or with outliers,
        and it was not learned before."""
        burst = self.verdict.burst if self.verdict else False
        return self.level is Level.NORMAL and not burst and not self.repeated

    def alarms(self, position: BatchPosition) -> list[Event]:
        """The alarms of shadows, as events."""
        return [
            ShadowAlarm(name, position.batch, position.sample, verdict.statistic, verdict.threshold)
            for name, verdict in self.shadows.alarms.items()
        ]


def evidence_of(verdict: Verdict | None) -> dict[str, float]:
    """A verdict's numbers, flat, for an event; none where a person decided."""
    if verdict is None:
        return {}
    numbers = {
        **verdict.evidence,
        "statistic": verdict.statistic,
        "threshold": verdict.threshold,
    }
    if verdict.inlier_rate is not None:
        numbers["inlier_rate"] = verdict.inlier_rate
    if verdict.inlier_rate_mean is not None:
        numbers["inlier_rate_mean"] = verdict.inlier_rate_mean
    return numbers | {f"statistic_{name}": value for name, value in verdict.statistics.items()}


def replayed(state: EngineState, replay: Replay) -> Replayed:
    """A learner's replay as an event."""
    return Replayed(
        state.sub_task.number,
        replay.mode,
        replay.samples,
        replay.components_before,
        replay.components_after,
        replay.reason,
    )
