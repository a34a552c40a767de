"""The engine: state + batch -> state + events.

Rules of this module:

1. Every method takes a state and gives a new one; nothing is kept on the engine but
   its settings, and whether it has warned. If a method raises, the state given in is still whole.
2. The same state and the same batch give the same result, bit for bit, on a CPU. The
   random state is part of the state. No clock, no environment.
3. A batch is scored, then judged, then learned: whatever is reported of it is
   prequential, and what looks like a change is never learned as the old sub-task.
4. `version` grows by one whenever the model changes, or what its samples are compared with; a
   version gives one answer for ever.
5. While the model is at rest (`core.engine.modes`) no version changes but by going back to one, or
   by other settings that are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from core.batch import Batch, Label, SampleId, distinct, plain_id, plain_label
from core.config import EngineConfig
from core.counted import counted
from core.drift.detector import Arming, Detector
from core.engine.asked_settings import Value
from core.engine.boundary import BoundaryCrossing
from core.engine.candidates import Candidates
from core.engine.change_type import ChangeType
from core.engine.class_discovery import ClassDiscovery
from core.engine.class_limit import check_classes
from core.engine.delayed_labels import DelayedLabels
from core.engine.detectors import make_detector, make_shadows
from core.engine.inliers import Inliers
from core.engine.judge import Judge
from core.engine.judgement import BatchPosition
from core.engine.learners import make_learner
from core.engine.learning import Learning
from core.engine.merging import with_classes_merged
from core.engine.modes import Modes
from core.engine.naming import Naming
from core.engine.places import placed
from core.engine.renaming import with_class_renamed
from core.engine.rounding import MOST_ROWS, is_wide, rounded_columns, warn_of
from core.engine.severity import Severity
from core.engine.state import (
    EngineState,
    LearnedModel,
    Mode,
    Rest,
    Watch,
)
from core.engine.step import Step
from core.errors import (
    ClassExists,
    InvalidCheckpoint,
    InvalidLabels,
    InvalidRequest,
    ModelAtRest,
    ModelNotReady,
    ShapeMismatch,
    UnknownClass,
)
from core.events import (
    BoundaryDetected,
    ClassesMerged,
    ClassRenamed,
    Event,
    ModelRestored,
    RunTimeChanged,
    SettingsChanged,
    WindowsSettled,
)
from core.learners.learner import Learner
from core.memory.awaiting_samples import AwaitingSamples
from core.memory.class_shares import ClassShares
from core.memory.course import Course
from core.memory.fingerprints import Fingerprints
from core.memory.retention import SubTaskRetention
from core.snapshot import ModelInfo, Snapshot


class Engine:
    """One model's way of learning from a stream. Holds settings only.

    Arguments:
        config: The settings.
        device: Where the model lives.
        detector: Asked instead of the one that the settings name; None: that one.

    Example:
        >>> engine = Engine(EngineConfig(n_components=4))
        >>> state = engine.start()
        >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> state, events = engine.step(state, Batch.of(x, [0] * 50 + [1] * 50))
        >>> [event.kind for event in events]
        ['class_discovered', 'class_discovered', 'batch_learned']
        >>> engine.snapshot(state).classify(x[:2]).probabilities.shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        config: EngineConfig,
        device: torch.device | str = "cpu",
        *,
        detector: Detector[Any] | None = None,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.learner: Learner[Any] = make_learner(config)
        self.detector: Detector[Any] = detector or make_detector(config)
        self.shadows = make_shadows(config)
        self.learning = Learning(self.learner, self.device)
        self.inliers = Inliers(config, self.learner, self.device)
        self.naming = Naming(config, self.learner)
        self.judge = Judge(config, self.learner, self.detector, self.shadows, self.naming)
        self.delayed_labels = DelayedLabels(config, self.learning, self.naming)
        self.discovery = ClassDiscovery(config, Candidates(self.learner), self.delayed_labels)
        self.change_type = ChangeType(self.detector, self.learning, self.inliers)
        self.severity = Severity(self.learner, self.inliers)
        self.boundary = BoundaryCrossing(
            config,
            self.detector,
            self.learning,
            self.inliers,
            self.delayed_labels,
            self.discovery,
            self.change_type,
            self.severity,
        )
        self._step = Step(
            config,
            self.device,
            self.learner,
            self.detector,
            self.judge,
            self.naming,
            self.learning,
            self.inliers,
            self.delayed_labels,
            self.discovery,
            self.change_type,
            self.boundary,
        )
        self.modes = Modes(
            config,
            self.learner,
            self.detector,
            self.judge,
            self.change_type,
            self.delayed_labels,
            self.severity,
            self.inliers,
        )
        self._has_warned = False

    # The stream ---------------------------------------------------------------------------

    def start(self) -> EngineState:
        """The state before the first batch."""
        random = torch.Generator().manual_seed(self.config.seed).get_state()
        return EngineState(LearnedModel(random), Watch(self.detector.start()))

    def step(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Score the batch, decide what it is, then learn it or set it aside.

        Arguments:
            batch: In the sender's units; on any device. The first one fixes whether samples are
                images, which keep their scale, or a table: see `core.standardiser`.

        Returns:
            The next state and what happened, in order.

        Warns:
            PrecisionLost: Columns of float64 or integers lose what varies in them as float32. Once,
                and of the first thousand samples of a stream.

        Raises:
            InvalidBatch: The batch cannot be used; the state given in is unchanged.
        """
        if batch.features.dtype == torch.uint8 and state.model.is_table:
            raise ShapeMismatch.bytes_for_a_table()
        if is_wide(batch) and state.stream.all_samples < MOST_ROWS and not self._has_warned:
            columns = rounded_columns(batch.features)
            self._has_warned = bool(columns)
            if columns:
                warn_of(columns, stacklevel=2)
        # Checked as the model will see it: 1e300 is finite until it becomes a float32.
        batch = batch.to_float32(self.device)
        declared = self.config.image_shape
        shape = state.model.image_shape if declared is None else declared
        batch.check(state.n_features or self.config.n_features, shape)
        if not state.learns:
            return self.modes.passed(state, batch)
        return self._step.take(state, batch)

    def arming(self, state: EngineState) -> Arming:
        """When the detector may speak, and why not before.

        Of the next batch, while `Watch.armed` is of the last one.
        """
        return self.judge.arming(state)

    def change_mode(
        self,
        state: EngineState,
        mode: Mode | str,
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[EngineState, list[Event]]:
        """Bring the model to rest, or wake it: see `core.engine.modes`.

        Nothing happens where the mode is in force. A rollback and an upload leave it in force.

        Arguments:
            mode: From now on, or its value: "learn", "detect_only" or "frozen".
            by: Who asks.
            reason: Why.

        Raises:
            InvalidRequest: There is no such mode; the state given in is unchanged.
        """
        if mode not in tuple(Mode):
            raise InvalidRequest(
                f"There is no mode {mode!r:.80}; expected {', '.join(Mode)}. Name one of these."
            )
        mode = Mode(mode)
        state, events = self.modes.switch(state, mode, by, reason)
        return state, placed(state.stream, events)

    def change_settings(
        self,
        state: EngineState,
        changes: Mapping[str, Value],
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[EngineState, list[Event]]:
        """Ask for other settings from now on: see `core.engine.asked_settings`.

        Nothing happens where all of that was asked for already. A rollback and an upload leave
        them in force.

        Arguments:
            changes: Values by name; None: as configured.
            by: Who asks.
            reason: Why.

        Raises:
            InvalidRequest: One cannot be asked for, or not with this value; the state given in is
                unchanged.
        """
        asked = state.asked.with_changes(changes)
        now, before = asked.over(self.config), state.in_force(self.config)
        if asked == state.asked:
            return state, []
        if asked.of_answers(self.config) != state.asked.of_answers(self.config):
            state = state.changed() if state.model.version else state
        state = replace(state, asked=asked)
        return state, [
            SettingsChanged(
                settings={name: getattr(now, name) for name in changes},
                settings_before={name: getattr(before, name) for name in changes},
                by=by,
                reason=reason,
                sub_task=state.sub_task.number,
                model_version=state.model.version,
            )
        ]

    def rename_class(
        self,
        state: EngineState,
        label: Label,
        to: Label,
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[EngineState, list[Event]]:
        """Call a class otherwise from now on: see `core.engine.renaming`.

        All that was learned of it stays. A rollback to a version of before brings its old name
        back, and a sample that comes with the old name begins another class.

        Arguments:
            label: Of the class.
            to: Its name from now on.
            by: Who asks.
            reason: Why.

        Raises:
            UnknownClass: No class goes by this label.
            ClassExists: Another class has that name.
            InvalidLabels: It is no integer and no string. The state given in is unchanged.
        """
        label, to, known = plain_label(label), plain_label(to), self.naming.labels(state)
        names = set(map(distinct, known))
        if distinct(label) not in names:
            raise UnknownClass.among([label], list(known))
        if distinct(to) in names:
            raise ClassExists.of(to)
        state = with_class_renamed(state, label, to)
        state = state.changed() if state.model.version else state
        return state, [
            ClassRenamed(
                label=to,
                label_before=label,
                by=by,
                reason=reason,
                sub_task=state.sub_task.number,
                model_version=state.model.version,
            )
        ]

    def merge_classes(
        self,
        state: EngineState,
        label: Label,
        into: Label,
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[EngineState, list[Event]]:
        """Make two classes one from now on: see `core.engine.merging`.

        Samples that come later with the old label begin another class. A rollback to a version of
        before brings both back.

        Arguments:
            label: Of the class that becomes part of the other.
            into: Label of the other.
            by: Who asks.
            reason: Why.

        Raises:
            UnknownClass: No class goes by one of these labels.
            InvalidLabels: They are the same, or one is no integer and no string.
            ModelAtRest: Nothing is learned at the moment. The state given in is unchanged.
        """
        label, into, known = plain_label(label), plain_label(into), self.naming.labels(state)
        names = set(map(distinct, known))
        missing = [one for one in (label, into) if distinct(one) not in names]
        if missing:
            raise UnknownClass.among(missing, list(known))
        if distinct(label) == distinct(into):
            raise InvalidLabels.merged_into_itself(label)
        self._check_learns(state, "classes cannot become one")
        before = state
        state = self.watched_anew(with_classes_merged(state, self.learner, label, into))
        if state.model.version:
            state = state.changed()
            generator = torch.Generator()
            generator.set_state(state.model.random)
            state = state.with_model(calibration=self.inliers.refitted(before, state, generator))
        return state, [
            ClassesMerged(
                label=into,
                label_before=label,
                by=by,
                reason=reason,
                sub_task=state.sub_task.number,
                model_version=state.model.version,
            )
        ]

    def settle(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """The stream is quiet: learn what is set aside as the current sub-task, and what waits.

        Nothing happens, and the version stays, where neither is so, or the model is at rest.
        """
        if not state.learns:
            return state, []
        state, events = self.learning.release(state)
        events = placed(state.stream, events)
        n_waiting = self.learning.waiting(state)
        if not n_waiting:
            return state, events
        # Drawn from, but not moved on: what is learned later must not depend on pauses.
        generator = torch.Generator()
        generator.set_state(state.model.random)
        settled = state.changed(learner=self.learner.settle(state.model.learner, generator))
        state = settled.with_model(calibration=self.inliers.refitted(state, settled, generator))
        return state, [
            *events,
            WindowsSettled(n_waiting, state.sub_task.number, state.model.version),
        ]

    def is_settled(self, state: EngineState) -> bool:
        """Whether `settle` would change nothing."""
        return not state.learns or not (state.suspected or self.learning.waiting(state))

    def label(
        self, state: EngineState, ids: Sequence[SampleId], labels: Sequence[Label]
    ) -> tuple[EngineState, list[Event]]:
        """Labels for samples that came before without, or that have yet to come.

        Arguments:
            ids: Names of samples, N of them, in any order: integers or strings, of NumPy, too.
            labels: The label of each, likewise.

        Raises:
            InvalidLabels: They are not as many as ids, or of another type, or would bring too many
                classes; the state given in is unchanged.
            ModelAtRest: Too many wait for the thaw; likewise.
        """
        if len(ids) != len(labels):
            raise InvalidLabels(
                f"{counted(len(ids), 'sample id')} came with {counted(len(labels), 'label')}; "
                f"expected one label per id. Leave out the ids of samples without a label.",
                sample_ids=len(ids),
                labels=len(labels),
            )
        ids, labels = [*map(plain_id, ids)], [*map(plain_label, labels)]
        held_labels = [one.label for one in state.rest.labels]
        check_classes(state, (*labels, *held_labels), state.in_force(self.config).max_classes)
        if not state.learns:
            return self.modes.hold(state, ids, labels)
        state, events = self.delayed_labels.match(state, ids, labels)
        return state, placed(state.stream, events)

    def name(
        self, state: EngineState, proposal: int, label: Label | None
    ) -> tuple[EngineState, list[Event]]:
        """Say what the samples of a proposed class are; None: no class of their own.

        Raises:
            UnknownProposal: No such proposal is open.
            InvalidLabels: The label is no integer and no string, or there would be too many
                classes.
            ModelAtRest: Nothing is learned at the moment. The state given in is unchanged.
        """
        self._check_learns(state, "a proposed class cannot be decided about")
        label = None if label is None else plain_label(label)
        named = () if label is None else (label,)
        check_classes(state, named, state.in_force(self.config).max_classes)
        state, events = self.discovery.name(state, proposal, label)
        return state, placed(state.stream, events)

    def expire(self, state: EngineState, before: int) -> tuple[EngineState, list[Event]]:
        """Stop waiting for labels of the samples that arrived before a place in the stream.

        Arguments:
            before: As `state.stream.samples` counts. Nothing happens while the model is at rest.
        """
        if not state.learns:
            return state, []
        state, events = self.delayed_labels.expire(state, before, self.discovery.learn_late)
        return state, placed(state.stream, events)

    def declare_boundary(
        self, state: EngineState, by: str | None = None, note: str | None = None
    ) -> tuple[EngineState, list[Event]]:
        """A person says that a sub-task ends here. Nothing happens if none has begun.

        One that a restored state had begun can end at once: `EngineState.begun`.

        Arguments:
            by: Who says so.
            note: What else is said.

        Raises:
            ModelAtRest: Nothing is crossed at the moment. The state given in is unchanged.
        """
        self._check_learns(state, "no boundary is crossed")
        if not state.begun:
            return state, []
        state, events = self.boundary.cross(
            state, None, BatchPosition(state.stream.batches, state.stream.samples), None
        )
        events = [
            replace(one, by=by, note=note) if isinstance(one, BoundaryDetected) else one
            for one in events
        ]
        return state, placed(state.stream, events)

    def aim(
        self, state: EngineState, ert: float | None, *, asked: bool = False, by: str | None = None
    ) -> tuple[EngineState, list[Event]]:
        """Ask for another run time between false alarms. Detectors heed it in every mode.

        Arguments:
            ert: Samples, above 1; None: as configured.
            asked: Whether a person asks, so that no setting overrules it.
            by: Who.

        Raises:
            InvalidRequest: It is no such number.
        """
        if ert is not None and not 1 < ert < math.inf:
            raise InvalidRequest(
                f"The run time between false alarms is {ert}; it must be above 1 sample and finite."
            )
        before = state.watch.ert or self.config.ert
        run_time: dict[str, Any] = {
            "ert": ert and float(ert),
            "ert_asked": asked and ert is not None,
        }
        state, outlook = state.with_watch(**run_time), state.rest.outlook
        if outlook is not None:
            outlook = replace(outlook, watch=replace(outlook.watch, **run_time))
            state = replace(state, rest=replace(state.rest, outlook=outlook))
        now = state.watch.ert or self.config.ert
        return state, [RunTimeChanged(now, before, asked, by)]

    def restore(
        self, state: EngineState, kept: EngineState, source: str
    ) -> tuple[EngineState, list[Event]]:
        """Go on from a kept state instead of the present one.

        Arguments:
            state: The present state; its position in the stream and its largest version stay.
            kept: The state to go on from, of an engine with the same preset and detector.
            source: "rollback", whose detector goes on with what it knew, or "checkpoint", from
                elsewhere, whose detector begins anew.

        Raises:
            InvalidCheckpoint: `kept` belongs to a model with another number of features.
        """
        expected = state.n_features or self.config.n_features
        if expected is not None and kept.n_features not in (None, expected):
            raise InvalidCheckpoint.features(expected=expected, got=kept.n_features)
        if source == "rollback":
            # A kept version may or may not have let its raw samples go by now: the result of
            # reading the same stream again must not depend on it.
            kept = self.without_raw(kept)
        last = max(state.model.last_version, kept.model.last_version)
        version = kept.model.version
        if source == "checkpoint":
            # A checkpoint from elsewhere may use a version number that means another model here.
            last = version = last + 1
            # Nor is what its detector remembers known to be sound.
            detector, armed = self.detector.start(), False
        else:
            # It knows what the kept model's samples are like, and so sees at once that others come;
            # what it suspected was of samples that are dropped.
            detector, armed = self.detector.dismiss(kept.watch.detector), kept.watch.armed
        moved = (
            kept.with_stream(
                batches=state.stream.batches,
                samples=state.stream.samples,
                starts=state.stream.starts,
                passages=state.stream.passages,
                dropped=state.stream.restored(kept.stream if source == "rollback" else None),
            )
            .with_model(version=version, last_version=last)
            .with_sub_task(
                first_batch=state.stream.batches,
                first_sample=state.stream.samples,
                course=Course(),
                class_shares=ClassShares(),
                resumed=kept.begun,
            )
            .with_past(boundaries=max(state.past.boundaries, kept.past.boundaries))
            .with_watch(
                burst=state.watch.burst,
                ert=state.watch.ert,
                ert_asked=state.watch.ert_asked,
                detector=detector,
                shadows=(),
                armed=armed,
            )
            .with_pending(
                set_aside=(),
                awaiting=state.pending.awaiting.forgotten(
                    state.in_force(self.config).awaiting_limit
                ),
                proposals=state.pending.proposals.forgotten(),
            )
        )
        moved = replace(self.modes.restored(state, moved), asked=state.asked)
        answers = kept.asked.of_answers(self.config), moved.asked.of_answers(self.config)
        if source == "rollback" and version and answers[0] != answers[1]:
            moved = moved.changed()  # the kept version has one answer for ever, and this is another
        return moved, [ModelRestored(moved.model.version, state.model.version, source)]

    def watched_anew(self, state: EngineState) -> EngineState:
        """The same, watched by detectors that know nothing of the stream yet."""
        watch = replace(state.watch, detector=self.detector.start(), shadows=(), armed=False)
        return replace(state, watch=watch)

    def without_raw(self, state: EngineState) -> EngineState:
        """The same model, version and position without any raw sample: fit to be kept for long.

        What is set aside or waits is left out, so that this is no state to recover a stream from.
        What was set aside is told among the stretches that are no past of the model.
        """
        state = replace(state, stream=state.stream.without(state.set_aside_stretch))
        gone = state.pending.proposals.forgotten()
        panel = None if state.model.panel is None else state.model.panel.without_raw()
        state = replace(state, rest=Rest()).with_sub_task(fingerprints=Fingerprints())
        scale = state.model.standardiser
        scale = None if scale is None else scale.without_raw()
        state = state.with_model(panel=panel, standardiser=scale).with_pending(
            set_aside=(), awaiting=AwaitingSamples(), proposals=gone, quarantined=()
        )
        if state.model.learner is None:
            return state
        return state.with_model(learner=self.learner.without_raw(state.model.learner))

    # What is served -----------------------------------------------------------------------

    def held(self, state: EngineState) -> tuple[SubTaskRetention, ...]:
        """How well the model as it stands holds each past sub-task, oldest first.

        It is asked about samples of its own, a thousand at most: `core.memory.retention`. Classes
        are named as `Snapshot.classify` names them, but for the shifts of images.
        """
        model = None if state.model.learner is None else self.learner.model(state.model.learner)
        if model is None:
            return ()
        return state.past.retention.report(
            model,
            state.standardiser,
            state.model.classes,
            state.model.version,
            self.naming.served(state),
        )

    def snapshot(self, state: EngineState) -> Snapshot:
        """A read-only copy of the model as it stands.

        Raises:
            ModelNotReady: Nothing was learned yet.
        """
        model = None if state.model.learner is None else self.learner.model(state.model.learner)
        if model is None:
            raise ModelNotReady.nothing_learned()
        model = replace(model, density=model.density.gathered())
        tensors = model.tensors
        log_likelihood = state.log_likelihood
        info = ModelInfo(
            model_version=state.model.version,
            preset=self.config.preset,
            device=str(self.device),
            components=model.n_components,
            budget=self.config.budget,
            features=len(state.standardiser.shift),
            classes=state.model.classes,
            class_counts=state.model.class_counts,
            samples_seen=state.model.samples_seen,
            batches_seen=state.model.batches_seen,
            sub_task=state.sub_task.number,
            parameters=sum(tensor.numel() for tensor in tensors),
            bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            detector=self.detector.name,
            window=self.learner.raw_samples(state.model.learner),
            set_aside=state.pending.set_aside_samples,
            waiting=self.learning.waiting(state),
            outlier_c=state.in_force(self.config).outlier_c,
            log_likelihood_mean=log_likelihood.mean,
            log_likelihood_deviation=log_likelihood.deviation,
            awaiting=state.pending.awaiting.raw_samples,
            unknown=state.pending.proposals.raw_samples,
            recent=len(state.pending.proposals.recent),
            heard=0 if state.model.panel is None else state.model.panel.raw,
            image_shape=state.model.image_shape,
        )
        return Snapshot(
            info,
            model,
            state.standardiser,
            self.inliers.usual(state),
            state.in_force(self.config).outlier_false_positive_rate,
            None if state.model.panel is None else self.naming.panel(state).rules,
            self.naming.labels(state)[len(state.model.classes) :],
        )

    # Checks -------------------------------------------------------------------------------

    def _check_learns(self, state: EngineState, what: str) -> None:
        """Raise `ModelAtRest` while nothing is learned."""
        if not state.learns:
            raise ModelAtRest.of(state.rest.mode, what)
