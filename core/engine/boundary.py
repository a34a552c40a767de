"""Crosses boundaries: what is known becomes the generator, then the new is learned.

What was set aside while the change was suspected is parted into old and new, what ended is
remembered by samples that the model draws of it, and the event says what changed, and where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Detector, Verdict
from core.engine.change_type import ChangeType, codes_of
from core.engine.class_discovery import ClassDiscovery
from core.engine.delayed_labels import DelayedLabels
from core.engine.explanation import explain
from core.engine.inliers import Inliers
from core.engine.judgement import BatchPosition, evidence_of
from core.engine.learning import Learning
from core.engine.recurrence import mostly_labelled, recurring
from core.engine.severity import Severity
from core.engine.state import EngineState, SubTask, joined
from core.events import BoundaryDetected, Event
from core.model.model import Model


@dataclass(frozen=True)
class BoundaryCrossing:
    """Ends a sub-task and begins the next.

    Arguments:
        config: The engine's.
        detector: The one that decides.
        learning: Teaches the model.
        inliers: What p-values rest on.
        delayed_labels: Samples that await a label.
        discovery: Samples that the model does not know.
        change_type: Tells old from new.
        severity: Says how large a change is.
    """

    config: EngineConfig
    detector: Detector[Any]
    learning: Learning
    inliers: Inliers
    delayed_labels: DelayedLabels
    discovery: ClassDiscovery
    change_type: ChangeType
    severity: Severity

    def cross(
        self,
        state: EngineState,
        batch: Batch | None,
        position: BatchPosition,
        verdict: Verdict | None,
    ) -> tuple[EngineState, list[Event]]:
        """Cross a boundary: what is known becomes the generator, then the new is learned.

        Arguments:
            batch: The one that decided it, learned last; None when a person declared it.
            position: Where that batch begins in the stream.
            verdict: Of the detector; None when a person declared it.
        """
        # 1. Place it: since when the stream has changed.
        before = state
        set_aside, n_set_aside = state.pending.set_aside, state.pending.set_aside_samples
        change = (
            verdict.change_samples if verdict else n_set_aside + state.pending.awaiting.suspects
        )
        start_sample = max(state.sub_task.first_sample, state.stream.samples - change)
        start_batch = state.stream.batch_at(start_sample)
        since = state.pending.awaiting.suspect_since
        first = min(start_sample, position.sample if since is None else since)
        # 2. Learn what is still of the old sub-task: what waited for a label, what came mixed.
        state, left, events = self.delayed_labels.leave(state, first)
        beginning = set_aside if batch is None else joined(set_aside, batch)
        together = beginning
        mixed: tuple[Batch, ...] = ()
        if verdict is not None:
            mixed, beginning = self.change_type.mixture(state, beginning, verdict)
        state, learned = self._learned(state, mixed)
        events += learned
        relabelled, shown = self.change_type.relabelled(state, beginning, verdict), state.shown
        state, fresh, of_proposals, unknown = self.discovery.leave(state, first)
        events += unknown
        # 3. Explain it by the model of before, and ask whether the new has come before.
        #    What step 2 has learned may hold some of the new, as the start is estimated.
        model = self.learning.learner.model(before.model.learner)
        # Samples that await their labels show it as well: nearly all may do so.
        waiting = state.pending.awaiting.since(first)
        together, new = (*together, *waiting), waiting
        if mixed and verdict is not None:
            _, new = self.change_type.mixture(before, waiting, verdict)
        shown_new = (*beginning, *new)
        changed = self.change_type.shown(before, mixed, shown_new, verdict, together)
        explanation = explain(model, before, changed, verdict, self.inliers)
        severity, view = self.severity.of(before, changed, verdict)
        codes, recurrence = codes_of(state, shown_new), None
        # Where labels mean something else, samples are as those of many an earlier sub-task.
        if verdict is not None and not relabelled:
            recurrence = self._recurring(state, shown_new, codes, len(codes) if mixed else change)
        # 4. Put the old away: the model becomes the generator, and is remembered by its samples.
        ended = state
        # Labels lead samples back to the components of their class. Without them they would be
        # learned by those of the sub-task that has ended, which must be put away first.
        led_back = recurrence is not None and mostly_labelled(codes)
        if not led_back:
            state, replays = self.learning.consolidated(state)
            events += replays
        state = self._remembered(state, ended)
        if led_back:
            state = self.learning.absorbed(state)
        # 5. Call components by what labels mean from now on.
        if relabelled:
            state = self.learning.renamed(state, relabelled, shown)
        # 6. Begin the new sub-task, with nothing known of it.
        # A state of an earlier release has not counted.
        number = max(state.past.boundaries, state.sub_task.number) + 1
        state = replace(
            state,
            watch=replace(
                state.watch,
                detector=self.detector.start(),
                shadows=(),
                armed=False,
                burst=state.watch.burst.over(),
            ),
            sub_task=SubTask(state.sub_task.number + 1, start_batch, start_sample, recurrence),
            past=replace(state.past, log_likelihood=state.log_likelihood, boundaries=number),
            pending=replace(state.pending, set_aside=()),
        )
        # 7. What waits on is a mean of the model's own, no sample.
        state = self.delayed_labels.left_behind(state, left)
        state, closed = self.discovery.left_behind(state, of_proposals)
        events += closed
        # 8. Learn the new.
        state, learned = self._learned(state, (*fresh, *beginning))
        events += learned
        boundary = BoundaryDetected(
            boundary=number,
            sub_task=state.sub_task.number,
            batch_index=position.batch,
            sample_index=position.sample,
            estimated_start_batch=start_batch,
            estimated_start_sample=start_sample,
            detector=self.detector.name if verdict else "declared",
            signal=verdict.signal if verdict else "",
            evidence=evidence_of(verdict),
            set_aside_batches=len(set_aside),
            set_aside_samples=n_set_aside,
            version_before=before.model.version,
            version_after=state.model.version,
            recurrence_of=recurrence,
            mixed_samples=sum(map(len, mixed)),
            explanation=explanation,
            severity=severity,
            severity_view=view,
        )
        return state, [boundary, *events]

    def _learned(
        self, state: EngineState, batches: Sequence[Batch]
    ) -> tuple[EngineState, list[Event]]:
        """Learn batches, one after the other."""
        events: list[Event] = []
        for batch in batches:
            state, learned = self.learning.learn(state, batch, None)
            events += learned
        return state, events

    def _remembered(self, state: EngineState, ended: EngineState) -> EngineState:
        """What is remembered of a sub-task that has ended, unless that is there.

        Arguments:
            state: At rest, wherever what was learned has been put away.
            ended: Before that.
        """
        if state.sub_task.recurrence is not None:
            past = state.past.retention.passed(state.model.class_counts, state.model.samples_seen)
            calibration = state.model.calibration.crossed(torch.zeros(0, 1))
            return state.with_model(calibration=calibration).with_past(retention=past)
        learner = self.learning.learner
        model = learner.model(state.model.learner)
        past = state.past.retention.crossed(
            model,
            state.standardiser,
            sub_task=state.sub_task.number,
            class_counts=state.model.class_counts,
            samples_seen=state.model.samples_seen,
            version=state.model.version,
            seed=self.config.seed,
            level=state.sub_task.log_likelihood,
            marginals=state.sub_task.marginals,
            latest=None if model is None else self._latest(model, ended),
            served=self.delayed_labels.naming.served(state),
        )
        return state.with_model(calibration=self.inliers.ended(state, past)).with_past(
            retention=past
        )

    def _latest(self, model: Model, ended: EngineState) -> Tensor | None:
        """Which components hold the sub-task that has ended, with shape (K,), bool.

        Those that lie where components did that had learned from it.
        """
        learner, law = self.learning.learner, model.density.feature_law
        if law is None:
            return None
        scores = learner.score(ended.model.learner, law[0])
        return (
            None if scores is None else learner.latest(ended.model.learner)[scores.joint.argmax(-1)]
        )

    def _recurring(
        self, state: EngineState, batches: Sequence[Batch], codes: Tensor, newest: int
    ) -> int | None:
        """The earlier sub-task that these batches belong to, if any.

        Arguments:
            newest: How many of the last samples came since the change.
        """
        model = self.learning.learner.model(state.model.learner)
        if model is None or not batches:
            return None
        x = torch.cat([one.features for one in batches])
        past = {state.sub_task.number, state.sub_task.recurrence}
        sets = tuple(one for one in state.past.retention.sets if one.sub_task not in past)
        return recurring(sets, model, state.standardiser, x, codes, newest)
