"""Modes: what becomes of a batch while somebody wants nothing to be learned.

Rules of this module:

1. What passes by leaves no trace. Whatever comes between a freeze and the thaw, model, detectors,
   p-values and what waits are after the thaw as they were before the freeze. Only the place in the
   stream, the prequential accuracy and its estimate go on.
2. Nothing passes by untold: every batch is scored by the model at rest, and reported.
3. While the mode is `DETECT_ONLY`, detectors go on in a state of their own (`Outlook`), which is
   dropped at the end. So a change that was told and not crossed is found again by detectors that
   know the sub-task, and is crossed then.
4. Labels that come by id are held and matched at the thaw, as if they had come right after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.batch import Batch, Label, SampleId
from core.config import EngineConfig
from core.drift.detector import Detector, Level
from core.engine.change_type import ChangeType
from core.engine.delayed_labels import DelayedLabels
from core.engine.explanation import explain
from core.engine.inliers import Inliers
from core.engine.judge import Judge
from core.engine.judgement import BatchPosition, Judgement, evidence_of
from core.engine.severity import Severity
from core.engine.state import EngineState, HeldLabel, Mode, Outlook, Rest
from core.errors import ModelAtRest
from core.events import (
    BatchPassed,
    ChangeDetected,
    Event,
    LabelsHeld,
    ModeChanged,
    PriorShift,
)
from core.learners.learner import Learner


@dataclass(frozen=True)
class Modes:
    """Brings a model to rest, and wakes it.

    Arguments:
        config: The engine's.
        learner: The model's way of learning.
        detector: The one that decides.
        judge: Scores batches.
        change_type: Tells shifts of shares from changes.
        delayed_labels: Samples that await a label.
        severity: Says how large a change is.
        inliers: Say what is usual.
    """

    config: EngineConfig
    learner: Learner[Any]
    detector: Detector[Any]
    judge: Judge
    change_type: ChangeType
    delayed_labels: DelayedLabels
    severity: Severity
    inliers: Inliers

    def switch(
        self, state: EngineState, mode: Mode, by: str | None, reason: str | None
    ) -> tuple[EngineState, list[Event]]:
        """Go over to a mode. Nothing happens where it is in force."""
        before = state.rest.mode
        if mode is before:
            return state, []
        held_labels = state.rest.labels
        outlook = Outlook(state.watch, state.stream) if mode is Mode.DETECT_ONLY else None
        state = replace(state, rest=Rest(mode, outlook, held_labels))
        stream = state.stream
        changed = ModeChanged(
            mode=mode.value,
            mode_before=before.value,
            by=by,
            reason=reason,
            passed_batches=stream.all_batches - stream.batches,
            passed_samples=stream.all_samples - stream.samples,
            sub_task=state.sub_task.number,
            model_version=state.model.version,
        )
        if mode is not Mode.LEARN or not held_labels:
            return state, [changed]
        state = replace(state, rest=Rest())
        ids, labels = zip(*held_labels, strict=True)
        state, matched = self.delayed_labels.match(state, ids, labels)
        return state, [changed, *matched]

    def restored(self, state: EngineState, kept: EngineState) -> EngineState:
        """A kept state, in the mode of the present one; detectors that are alone go on from it."""
        rest = state.rest
        if rest.outlook is not None:
            rest = replace(rest, outlook=Outlook(kept.watch, kept.stream))
        return replace(kept, rest=rest)

    def hold(
        self, state: EngineState, ids: Sequence[SampleId], labels: Sequence[Label]
    ) -> tuple[EngineState, list[Event]]:
        """Keep labels for the thaw.

        Raises:
            ModelAtRest: There would be more than samples may wait.
        """
        limit = state.in_force(self.config).awaiting_limit
        held_labels = (*state.rest.labels, *map(HeldLabel, ids, labels))
        if len(held_labels) > limit:
            raise ModelAtRest.of(
                state.rest.mode,
                f"labels are held until it learns again; with these there would be "
                f"{len(held_labels)}, and at most {limit} (GMR_AWAITING_LIMIT) are",
            )
        state = replace(state, rest=replace(state.rest, labels=held_labels))
        return state, [LabelsHeld(len(ids), len(held_labels))]

    def passed(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Score and count a batch that is not learned.

        Arguments:
            batch: Checked, as the model takes it.
        """
        judgement = self.judge.judge(state.seen, batch)
        position = BatchPosition(state.stream.all_batches, state.stream.all_samples)
        stream = judgement.told(state.stream.passed(len(batch)))
        state, events = replace(state, stream=stream), list[Event]()
        state = state.with_pending(quarantined=())  # as with every batch
        if state.rest.outlook is not None:
            state, events = self._watched(state, batch, position, judgement)
        event = BatchPassed(
            **judgement.report(state, batch, position, self.judge.arming(state)),
            mode=state.rest.mode.value,
        )
        return state, [*events, event]

    def _watched(
        self, state: EngineState, batch: Batch, position: BatchPosition, judgement: Judgement
    ) -> tuple[EngineState, list[Event]]:
        """The detectors' outlook after a batch, and what they found."""
        outlook, verdict = state.rest.outlook, judgement.verdict
        assert outlook is not None
        before = state.seen
        stream = outlook.stream.advanced(len(batch))
        watch = replace(
            outlook.watch,
            detector=judgement.detector,
            armed=verdict.armed if verdict else False,
            shadows=judgement.shadows.states,
        )
        events = judgement.alarms(position)
        if verdict is not None and judgement.level is Level.ALARM:
            after = replace(before, stream=stream)
            shifts = self.change_type.prior_shift(after, batch, position, verdict)
            first = max(state.sub_task.first_sample, stream.samples - verdict.change_samples)
            start = BatchPosition(stream.batch_place(stream.batch_at(first)), stream.place(first))
            if shifts:
                watch = replace(watch, detector=self.detector.accept(watch.detector))
                events += [_placed(shift, start) for shift in shifts]
            else:
                model = self.learner.model(state.model.learner)
                severity, view = self.severity.of(before, (batch,), verdict)
                events.append(
                    ChangeDetected(
                        sub_task=state.sub_task.number,
                        batch_index=position.batch,
                        sample_index=position.sample,
                        estimated_start_batch=start.batch,
                        estimated_start_sample=start.sample,
                        detector=self.detector.name,
                        signal=verdict.signal,
                        evidence=evidence_of(verdict),
                        model_version=state.model.version,
                        explanation=explain(model, before, (batch,), verdict, self.inliers),
                        severity=severity,
                        severity_view=view,
                    )
                )
                watch = replace(watch, detector=self.detector.start(), shadows=(), armed=False)
        outlook = Outlook(watch, stream, judgement.level is Level.WARNING)
        return replace(state, rest=replace(state.rest, outlook=outlook)), events


def _placed(shift: PriorShift, start: BatchPosition) -> PriorShift:
    return replace(shift, estimated_start_batch=start.batch, estimated_start_sample=start.sample)
