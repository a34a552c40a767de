"""A batch: admitted, judged, decided about, acted upon and told.

A batch is scored, then judged, then learned: whatever is reported of it is prequential, and what
looks like a change is never learned as the old sub-task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Detector, Level
from core.engine.arrival import Arrival
from core.engine.boundary import BoundaryCrossing
from core.engine.change_type import ChangeType
from core.engine.class_discovery import ClassDiscovery
from core.engine.class_limit import check_classes
from core.engine.decision import Absorbed, Decision, decide
from core.engine.delayed_labels import DelayedLabels
from core.engine.inliers import Inliers
from core.engine.judge import Judge
from core.engine.judgement import BatchPosition, Judgement
from core.engine.learning import Learning
from core.engine.naming import Naming
from core.engine.places import placed
from core.engine.state import (
    UNREADY_SAMPLES,
    EngineState,
    joined,
)
from core.events import (
    BatchLearned,
    BatchSetAside,
    Event,
    FeaturesDrifting,
    Replayed,
)
from core.learners.learner import Learner
from core.memory.class_shares import SETTLED_SAMPLES
from core.memory.course import Course
from core.memory.feature_drift import compared, rows_of
from core.standardiser import Standardiser

UNCALIBRATED_SAMPLES = 100
"""First samples of a sub-task of which nothing is kept for p-values."""

FIRST_UNCALIBRATED_SAMPLES = 250
"""The same for the first sub-task: few enough that a table of some 450 samples has p-values. Rows
by a model that knew less are let go as more come."""


@dataclass(frozen=True)
class Step:
    """Takes batches while the model learns. Arguments are the parts of an engine, settings only."""

    config: EngineConfig
    device: torch.device
    learner: Learner[Any]
    detector: Detector[Any]
    judge: Judge
    naming: Naming
    learning: Learning
    inliers: Inliers
    delayed_labels: DelayedLabels
    discovery: ClassDiscovery
    change_type: ChangeType
    boundary: BoundaryCrossing

    def take(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Score the batch, decide what it is, then learn it or set it aside.

        Arguments:
            state: Of a model that learns.
            batch: float32 on the engine's device, checked.

        Raises:
            InvalidBatch: There would be too many classes; the state given in is unchanged.
        """
        state, batch, claimed = self._admitted(state, batch)
        judgement = self.judge.judge(state, batch)
        again = state.sub_task.fingerprints.repeating
        state, arrival = self._arrived(state, batch, judgement)
        state, judgement, decision, absorbed = self._decided(state, arrival, judgement, again)
        before = state
        match decision:
            case Decision.SET_ASIDE:
                return self._set_aside(state, arrival, judgement, claimed)
            case Decision.BOUNDARY:
                state, events = self.boundary.cross(
                    state, arrival.to_learn, arrival.position, judgement.verdict
                )
            case Decision.BURST:
                state, arrival, events = self._parted(state, arrival, judgement)
                state, arrival, learned = self._learned(state, arrival, judgement)
                events += learned
            case _:
                state, events = self._resumed(state, arrival, decision)
                state, crept = self._crept(state, arrival)
                state, arrival, learned = self._learned(state, arrival, judgement)
                events += [*absorbed, *crept, *learned]
        state = self.inliers.followed(before, state)
        return self._told(state, arrival, judgement, [*claimed, *events])

    # Parts of a step ----------------------------------------------------------------------
    def _admitted(self, state: EngineState, batch: Batch) -> tuple[EngineState, Batch, list[Event]]:
        """The batch as the model takes it, with labels that came before it, and a state to take it.

        Raises:
            InvalidBatch: It cannot be used.
        """
        state, batch, claimed = self.delayed_labels.claim(state, batch)
        check_classes(state, state.model.new_labels(batch), state.in_force(self.config).max_classes)
        if state.model.standardiser is None:
            state = self._first(state, batch)
        return state.with_pending(quarantined=()), batch, claimed

    def _arrived(
        self, state: EngineState, batch: Batch, judgement: Judgement
    ) -> tuple[EngineState, Arrival]:
        """The batch as part of the stream: experts hear its labels, what awaits one waits."""
        before = state
        position = BatchPosition(state.stream.batches, state.stream.samples)
        unknown = self.discovery.unknown(state, judgement.scores)
        gains = self.discovery.gains(state, judgement.scores)
        x = None if judgement.scores is None else judgement.scores.x
        near = state.standardiser.within_reach(batch.features, x)
        state = self._advance(state, near, judgement)
        # What waits is named by the model of before: no label of the batch has been heard.
        state, to_learn, rows = self.delayed_labels.hold_back(state, batch, judgement.scores)
        state = self.naming.taught(state, batch, judgement.advice)
        # The statistics of likelihoods begin later than p-values, and move with them.
        touched = (
            state.model.panel is not before.model.panel
            or state.model.calibration is not before.model.calibration
        )
        awaiting = len(batch) - len(to_learn)
        version = state.model.version
        return state, Arrival(
            batch, position, to_learn, rows, near, awaiting, unknown, gains, touched, version
        )

    def _decided(
        self, state: EngineState, arrival: Arrival, judgement: Judgement, already: bool
    ) -> tuple[EngineState, Judgement, Decision, list[Absorbed]]:
        """What is done; and events that explain a change without a boundary, or tell of repetition.

        Arguments:
            already: Whether the batch before was of samples that came again.

        Returns:
            With the judgement, whose verdict on a burst that lasts is as of its first part.
        """
        full = False
        if judgement.level is Level.WARNING:
            suspected = state.pending.awaiting.suspecting(arrival.position.sample)
            state = state.with_pending(awaiting=suspected)
            suspects = state.pending.set_aside_samples + suspected.suspects + len(arrival.to_learn)
            full = suspects > state.in_force(self.config).set_aside_limit
        absorbed = self.change_type.absorbed(
            state, arrival.to_learn, arrival.position, judgement.verdict
        )
        if absorbed is None and judgement.fingerprints.repeating and not already:
            absorbed = self.change_type.begun_again(state, arrival.position)
        verdict, lasting = judgement.verdict, None
        burst = verdict is not None and verdict.burst
        if verdict is not None and burst:
            lasting = self.change_type.lasting(state, arrival.to_learn, arrival.position, verdict)
            judgement = replace(judgement, verdict=lasting or verdict)
        decision = decide(
            judgement.level,
            burst=burst,
            lasting=lasting is not None,
            full=full,
            absorbed=absorbed,
        )
        return state, judgement, decision, [] if absorbed is None else [absorbed]

    def _set_aside(
        self, state: EngineState, arrival: Arrival, judgement: Judgement, claimed: list[Event]
    ) -> tuple[EngineState, list[Event]]:
        """Keep the batch until it is clear whether something has changed."""
        to_learn = replace(arrival.to_learn, places=arrival.places)
        state = state.with_pending(set_aside=joined(state.pending.set_aside, to_learn))
        state, overdue = self.delayed_labels.overdue(state, self.discovery.learn_late)
        state = _versioned(state, arrival)
        aside = BatchSetAside(
            **judgement.report(state, arrival.batch, arrival.position, self.judge.arming(state)),
            awaiting=arrival.awaiting,
            set_aside_batches=len(state.pending.set_aside),
            set_aside_samples=state.pending.set_aside_samples,
        )
        events = [*claimed, *judgement.alarms(arrival.position), *overdue, aside]
        return state, placed(state.stream, events)

    def _parted(
        self, state: EngineState, arrival: Arrival, judgement: Judgement
    ) -> tuple[EngineState, Arrival, list[Event]]:
        """Keep a burst's outliers apart; what is left of the batch is to be learned."""
        assert judgement.verdict is not None
        to_learn = replace(arrival.to_learn, places=arrival.places)
        state, typical, events = self.change_type.burst(
            state, to_learn, arrival.position, judgement.verdict
        )
        outliers = len(arrival.to_learn) - int(typical.sum())
        return state, replace(arrival.only(typical.nonzero()[:, 0]), outliers=outliers), events

    def _resumed(
        self, state: EngineState, arrival: Arrival, decision: Decision
    ) -> tuple[EngineState, list[Event]]:
        """Learn what was set aside: the sub-task goes on."""
        match decision:
            case Decision.GIVE_UP:
                # A suspicion must not hold up learning for ever.
                state = state.with_watch(detector=self.detector.dismiss(state.watch.detector))
            case Decision.REPEATED:
                fingerprints = state.sub_task.fingerprints.told()
                state = state.with_sub_task(fingerprints=fingerprints).with_watch(
                    detector=self.detector.dismiss(state.watch.detector)
                )
            case Decision.PRIOR_SHIFT:
                state = state.with_watch(detector=self.detector.accept(state.watch.detector))
        state = state.with_sub_task(course=self._course(state, arrival.near))
        if decision is Decision.CONTINUED:
            # The change may go on; only what comes from now on shows whether it does.
            state = state.with_sub_task(course=Course()).with_watch(detector=self.detector.start())
        return self.learning.release(state)

    def _learned(
        self, state: EngineState, arrival: Arrival, judgement: Judgement
    ) -> tuple[EngineState, Arrival, list[Event]]:
        """Learn what is left of the batch, without samples that are unknown."""
        if arrival.unknown is not None:
            state, stay = self.discovery.hold_back(
                state, arrival.to_learn, arrival.places, arrival.unknown[arrival.rows]
            )
            held_back = len(arrival.to_learn) - len(stay)
            arrival = replace(arrival.only(stay), unknowns=held_back)
        gains = None if arrival.gains is None else arrival.gains[arrival.rows]
        state = self.discovery.remembered(state, arrival.to_learn, arrival.places, gains)
        # Scores hold for the model that gave them, and for the whole batch.
        whole = len(arrival.to_learn) == len(arrival.batch)
        scores = judgement.scores if whole and state.model.version == arrival.version else None
        own = judgement.own if whole else None
        state, learned = self.learning.learn(state, arrival.to_learn, scores, own)
        state, proposed = self.discovery.look(state)
        return state, arrival, [*learned, *proposed]

    def _told(
        self, state: EngineState, arrival: Arrival, judgement: Judgement, events: list[Event]
    ) -> tuple[EngineState, list[Event]]:
        """Close the batch: let go of what has waited for too long, and report."""
        state, overdue = self.delayed_labels.overdue(state, self.discovery.learn_late)
        state = _versioned(state, arrival)
        events = [*events, *overdue]
        replays = [event for event in events if isinstance(event, Replayed)]
        learned = BatchLearned(
            **judgement.report(state, arrival.batch, arrival.position, self.judge.arming(state)),
            awaiting=arrival.awaiting,
            unknown=arrival.unknowns,
            replayed=sum(event.samples for event in replays if event.reason == "batch"),
            quarantined=arrival.outliers,
            components=self.learner.n_components(state.model.learner),
            classes=len(state.model.classes),
        )
        events = [*judgement.alarms(arrival.position), *events, learned]
        return state, placed(state.stream, events)

    def _crept(
        self, state: EngineState, arrival: Arrival
    ) -> tuple[EngineState, list[FeaturesDrifting]]:
        """Look from time to time for features that creep; single pixels say nothing to anybody."""
        course, model = state.sub_task.course, state.model
        if model.image_shape or state.standardiser.identity or course.sizes is None:
            return state, []
        samples = int(course.sizes.sum())
        if not course.creeping.is_due(samples):
            return state, []
        found = compared(course)
        drifting = [] if found is None else found.drifts.nonzero()[:, 0].tolist()
        creeping, news = course.creeping.looked(samples, drifting)
        state = state.with_sub_task(course=replace(course, creeping=creeping))
        if found is None or not news:
            return state, []
        event = FeaturesDrifting(
            sub_task=state.sub_task.number,
            batch_index=arrival.position.batch,
            sample_index=arrival.position.sample,
            features=rows_of(found, news),
            news=len(news),
            drifting=len(drifting),
            samples=found.samples,
            reference_samples=found.reference_samples,
            model_version=state.model.version,
        )
        return state, [event]

    def _course(self, state: EngineState, near: Tensor) -> Course:
        """The sub-task's course with a batch, and with those set aside that are of it after all.

        One wild value would hide what creeps for as long as the sub-task lasts.

        Arguments:
            near: Features of the batch, with far values pulled in, with shape (N, D).
        """
        course, samples = state.sub_task.course, state.stream.samples
        for one in state.pending.set_aside:
            course = course.observed(state.standardiser.within_reach(one.features), samples)
        return course.observed(near, samples)

    def _first(self, state: EngineState, batch: Batch) -> EngineState:
        """The first batch fixes D, the scale and the shape of images."""
        images = batch.images or self.config.images
        n_features = batch.features.shape[1]
        return state.with_model(
            standardiser=Standardiser.of(batch.features, images=images),
            panel=self.naming.first(n_features, images),
            learner=self.learner.start(n_features, self.device),
            image_shape=batch.image_shape,
        )

    def _advance(self, state: EngineState, near: Tensor, judgement: Judgement) -> EngineState:
        """Move on in the stream, and let the running statistics follow.

        Arguments:
            near: Features of the batch, with far values pulled in, with shape (N, D).
        """
        n = len(near)
        log_likelihood, marginals = state.sub_task.log_likelihood, state.sub_task.marginals
        calibration, class_shares = state.model.calibration, state.sub_task.class_shares
        learned = state.stream.samples - state.sub_task.first_sample
        if judgement.usual and judgement.scores is not None:
            marginals = marginals.observed(near)
            if learned >= UNREADY_SAMPLES:
                seen = judgement.clipped
                log_likelihood = log_likelihood.updated(n, seen.mean, seen.variance)
            if learned >= (
                UNCALIBRATED_SAMPLES if state.sub_task.number else FIRST_UNCALIBRATED_SAMPLES
            ):
                calibration = self.inliers.observed(state, judgement.scores)
        answered = judgement.answered
        if answered is not None and not judgement.repeated and learned >= UNREADY_SAMPLES:
            class_shares = class_shares.observed(
                answered.codes,
                answered.truths,
                answered.log_likelihoods,
                is_settled=learned >= SETTLED_SAMPLES,
            )
        return replace(
            state,
            stream=judgement.told(state.stream).advanced(n),
            model=replace(state.model, calibration=calibration),
            sub_task=replace(
                state.sub_task,
                log_likelihood=log_likelihood,
                marginals=marginals,
                class_shares=class_shares,
                fingerprints=judgement.fingerprints,
            ),
            watch=replace(
                state.watch,
                detector=judgement.detector,
                armed=judgement.verdict.armed if judgement.verdict else False,
                shadows=judgement.shadows.states,
            ),
        )


def _versioned(state: EngineState, arrival: Arrival) -> EngineState:
    """Under a version of its own, if it answers otherwise than before the batch."""
    same = state.model.version == arrival.version
    return state.changed() if arrival.touched and same else state
