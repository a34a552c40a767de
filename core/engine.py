"""The engine: state + batch -> state + events.

Rules of this module:

1. Every method takes a state and gives a new one; nothing is kept on the engine but
   its settings. If a method raises, the state given in is still whole.
2. The same state and the same batch give the same result, bit for bit, on a CPU. The
   random state is part of the state. No clock, no environment.
3. A batch is scored, then judged, then learned: whatever is reported of it is
   prequential, and what looks like a change is never learned as the old sub-task.
4. `version` grows by one whenever the model changes; a version names one model for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from core.awaiting import Awaiting
from core.batch import UNLABELLED, Batch, Label, SampleId
from core.calibration import DRAWN, Calibration, chosen
from core.config import EngineConfig
from core.drift.detector import Detector, Level, Observation, Verdict
from core.drift.registry import make_detector, make_shadows
from core.drift.sentinel import Sentinel
from core.drift.shadows import Said
from core.errors import InvalidCheckpoint, InvalidLabels, InvalidRequest, ModelNotReady
from core.events import (
    BatchLearned,
    BatchSetAside,
    BoundaryDetected,
    ClassDiscovered,
    Event,
    ModelRestored,
    Replayed,
    SetAsideReleased,
    WindowsSettled,
)
from core.explanation import explain
from core.held import Held, SubTaskHeld
from core.judgement import Judgement, Position, evidence_of, replayed
from core.late_labels import LateLabels
from core.learners.learner import Learner, Scores
from core.learners.registry import make_learner
from core.novelty import Novelty
from core.parting import Parting, codes_of
from core.recurrence import mostly_labelled, recurring
from core.running import Running
from core.snapshot import ModelInfo, Snapshot
from core.standardiser import Standardiser
from core.state import EngineState, distinct, joined
from core.typicality import Typicality

REMEMBERED_STARTS = 256
"""Batches whose place in the stream is remembered, to name the one at which a change began."""

UNREADY_SAMPLES = 500
"""First samples of a sub-task, whose scores are not yet those of a model that knows them."""

STAND_IN_WEIGHT = 50.0
"""Samples that the first stand-in for the likelihood counts as, once better is known."""


class Engine:
    """One model's way of learning from a stream. Holds settings only.

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

    def __init__(self, config: EngineConfig, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.learner: Learner[Any] = make_learner(config)
        self.detector: Detector[Any] = make_detector(config)
        self.shadows = make_shadows(config)
        self.late = LateLabels(config, self.learner, self.device, self._learn, self._discover)
        self.novelty = Novelty(config, self.late)
        self.parting = Parting(self.detector, self._learn, self._release)

    # The stream ---------------------------------------------------------------------------

    def start(self) -> EngineState:
        """The state before the first batch."""
        return EngineState(
            learner=None,
            detector=self.detector.start(),
            standardiser=None,
            classes=(),
            class_counts=(),
            likelihood=Running(),
            past_likelihood=Running(),
            prequential=Running(),
            set_aside=(),
            sub_task=0,
            stream_batches=0,
            stream_samples=0,
            batches_seen=0,
            samples_seen=0,
            boundary_batch=0,
            boundary_sample=0,
            recent_starts=(),
            version=0,
            last_version=0,
            random=torch.Generator().manual_seed(self.config.seed).get_state(),
        )

    def step(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Score the batch, look for a boundary, then learn from it or set it aside.

        Arguments:
            batch: In the sender's units; on any device.

        Returns:
            The next state and what happened, in order.

        Raises:
            InvalidBatch: The batch cannot be used; the state given in is unchanged.
        """
        # Checked as the model will see it: 1e300 is finite until it becomes a float32.
        batch = replace(batch, features=batch.features.to(self.device, torch.float32))
        batch.check(state.n_features or self.config.n_features)
        state, batch, claimed = self.late.claim(state, batch)
        self._check_classes(state, state.new_labels(batch))
        if state.standardiser is None:
            state = self._first(state, batch)

        state = replace(state, quarantined=())
        judgement = self._judge(state, batch)
        begun = Position(state.stream_batches, state.stream_samples)
        unknown = self.novelty.unknown(state, judgement.scores)
        state = self._advance(state, len(batch), judgement)
        state, rest, rows = self.late.hold_back(state, batch, judgement.scores)
        judged, awaiting = state.version, len(batch) - len(rest)
        n_unknown = n_outliers = 0
        events: list[Event]
        shift = self.parting.prior_shift(state, rest, begun, judgement.verdict)
        if judgement.level is Level.BOUNDARY and not shift:
            state, events = self._cross(state, rest, begun, judgement.verdict)
        else:
            suspect = judgement.level is Level.WARNING
            if suspect:
                state = replace(state, awaiting=state.awaiting.suspecting(begun.sample))
            suspects = state.set_aside_samples + state.awaiting.suspects + len(rest)
            if suspect and suspects <= self.config.set_aside_limit:
                state = replace(state, set_aside=joined(state.set_aside, rest))
                state, overdue = self.late.overdue(state)
                aside = BatchSetAside(
                    **judgement.report(state, batch, begun),
                    awaiting=awaiting,
                    set_aside_batches=state.set_aside_batches,
                    set_aside_samples=state.set_aside_samples,
                )
                return state, [*claimed, *judgement.alarms(begun), *overdue, aside]
            if suspect:
                # A suspicion must not hold up learning for ever: give it up, look again.
                state = replace(state, detector=self.detector.dismiss(state.detector))
            if judgement.verdict and judgement.verdict.burst:
                state, typical, events = self.parting.burst(state, rest, begun, judgement.verdict)
                n_outliers = len(rest) - int(typical.sum())
                rest, rows = rest.select(typical.nonzero()[:, 0]), rows[typical]
            else:
                if shift:
                    state = replace(state, detector=self.detector.start(), shadows=(), armed=False)
                state, events = self._release(state)
                events += shift
            if unknown is not None:
                places = begun.sample + rows
                state, known_rest = self.novelty.hold_back(state, rest, places, unknown[rows])
                n_unknown, rest = len(rest) - len(known_rest), known_rest
            known = state.version == judged and len(rest) == len(batch)
            state, learned = self._learn(state, rest, judgement.scores if known else None)
            events += learned
            state, proposed = self.novelty.look(state)
            events += proposed
        state, overdue = self.late.overdue(state)
        events = [*claimed, *events, *overdue]
        replays = [event for event in events if isinstance(event, Replayed)]
        learned_event = BatchLearned(
            **judgement.report(state, batch, begun),
            awaiting=awaiting,
            unknown=n_unknown,
            replayed=sum(event.samples for event in replays if event.reason == "batch"),
            quarantined=n_outliers,
            components=self.learner.n_components(state.learner),
            classes=len(state.classes),
        )
        return state, [*judgement.alarms(begun), *events, learned_event]

    def settle(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """The stream is quiet: learn what is set aside as the current sub-task, and what waits.

        Nothing happens, and the version stays, where neither is so.
        """
        state, events = self._release(state)
        n_waiting = self._waiting(state)
        if not n_waiting:
            return state, events
        # Drawn from, but not moved on: what is learned later must not depend on pauses.
        generator = torch.Generator()
        generator.set_state(state.random)
        state = replace(
            state,
            learner=self.learner.settle(state.learner, generator),
            version=state.last_version + 1,
            last_version=state.last_version + 1,
        )
        return state, [*events, WindowsSettled(n_waiting, state.sub_task, state.version)]

    def is_settled(self, state: EngineState) -> bool:
        """Whether `settle` would change nothing."""
        return not state.set_aside and not self._waiting(state)

    def label(
        self, state: EngineState, ids: Sequence[SampleId], labels: Sequence[Label]
    ) -> tuple[EngineState, list[Event]]:
        """Labels for samples that came before without, or that have yet to come.

        Arguments:
            ids: Names of samples, N of them, in any order.
            labels: The label of each.

        Raises:
            InvalidLabels: They would bring too many classes; the state given in is unchanged.
        """
        self._check_classes(state, labels)
        return self.late.match(state, ids, labels)

    def name(
        self, state: EngineState, proposal: int, label: Label | None
    ) -> tuple[EngineState, list[Event]]:
        """Say what the samples of a proposed class are; None: no class of their own.

        Raises:
            InvalidRequest: No such proposal is open.
            InvalidLabels: There would be too many classes. The state given in is unchanged.
        """
        self._check_classes(state, () if label is None else (label,))
        return self.novelty.name(state, proposal, label)

    def expire(self, state: EngineState, before: int) -> tuple[EngineState, list[Event]]:
        """The wait of all samples that arrived before a place in the stream has been too long."""
        return self.late.expire(state, before)

    def declare_boundary(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """A person says that a sub-task ends here. Nothing happens if none has begun."""
        if state.learner is None or state.stream_samples == state.boundary_sample:
            return state, []
        return self._cross(state, None, Position(state.stream_batches, state.stream_samples), None)

    def aim(self, state: EngineState, ert: float) -> tuple[EngineState, list[Event]]:
        """Ask for another run time between false alarms, in samples, above 1.

        Raises:
            InvalidRequest: It is no such number.
        """
        if not 1 < ert < math.inf:
            raise InvalidRequest(
                f"The run time between false alarms is {ert}; it must be above 1 sample and finite."
            )
        return replace(state, ert=float(ert)), []

    def restore(
        self, state: EngineState, kept: EngineState, source: str
    ) -> tuple[EngineState, list[Event]]:
        """Go on from a kept state instead of the present one.

        Arguments:
            state: The present state; its position in the stream and its largest version stay.
            kept: The state to go on from, of an engine with the same preset and detector.
            source: "rollback" or "checkpoint".

        Raises:
            InvalidCheckpoint: `kept` belongs to a model with another number of features.
        """
        expected = state.n_features or self.config.n_features
        if expected is not None and kept.n_features not in (None, expected):
            raise InvalidCheckpoint(
                f"The checkpoint is of a model with {kept.n_features} features, but this stream "
                f"has {expected}. Load it into a service of its own.",
                expected=expected,
                got=kept.n_features,
            )
        if source == "rollback":
            # A kept version may or may not have let its raw samples go by now: the result of
            # reading the same stream again must not depend on it.
            kept = self.without_raw(kept)
        last = max(state.last_version, kept.last_version)
        version = kept.version
        if source == "checkpoint":
            # A checkpoint from elsewhere may use a version number that means another model here.
            last = version = last + 1
        moved = replace(
            kept,
            stream_batches=state.stream_batches,
            stream_samples=state.stream_samples,
            boundary_batch=state.stream_batches,
            boundary_sample=state.stream_samples,
            recent_starts=state.recent_starts,
            ert=state.ert,
            detector=self.detector.start(),
            shadows=(),
            set_aside=(),
            awaiting=state.awaiting.forgotten(self.config.awaiting_limit),
            proposals=state.proposals.forgotten(),
            version=version,
            last_version=last,
        )
        return moved, [ModelRestored(version, state.version, source)]

    def without_raw(self, state: EngineState) -> EngineState:
        """The same model, version and position without any raw sample: fit to be kept for long.

        What is set aside or waits is left out, so that this is no state to recover a stream from.
        """
        gone = state.proposals.forgotten()
        state = replace(state, set_aside=(), awaiting=Awaiting(), proposals=gone, quarantined=())
        if state.learner is None:
            return state
        return replace(state, learner=self.learner.without_raw(state.learner))

    # What is served -----------------------------------------------------------------------

    def held(self, state: EngineState) -> tuple[SubTaskHeld, ...]:
        """How well the model as it stands holds each past sub-task, oldest first.

        It is asked about samples of its own, a thousand at most: `core.held`.
        """
        model = None if state.learner is None else self.learner.model(state.learner)
        if model is None or state.standardiser is None:
            return ()
        return state.held.report(model, state.standardiser, state.classes, state.version)

    def snapshot(self, state: EngineState) -> Snapshot:
        """A read-only copy of the model as it stands.

        Raises:
            ModelNotReady: Nothing was learned yet.
        """
        model = None if state.learner is None else self.learner.model(state.learner)
        if model is None or state.standardiser is None:
            raise ModelNotReady(
                "Nothing has been learned yet, so there is no model to ask. "
                "Send samples to POST /ingest first."
            )
        tensors = model.tensors
        likelihood = state.past_likelihood.pooled(state.likelihood)
        info = ModelInfo(
            model_version=state.version,
            preset=self.config.preset,
            device=str(self.device),
            components=model.n_components,
            budget=self.config.budget,
            features=len(state.standardiser.shift),
            classes=state.classes,
            class_counts=state.class_counts,
            samples_seen=state.samples_seen,
            batches_seen=state.batches_seen,
            sub_task=state.sub_task,
            parameters=sum(tensor.numel() for tensor in tensors),
            bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            detector=self.detector.name,
            window=self.learner.raw_samples(state.learner),
            set_aside=state.set_aside_samples,
            waiting=self._waiting(state),
            outlier_c=self.config.outlier_c,
            log_likelihood_mean=likelihood.mean,
            log_likelihood_deviation=likelihood.deviation,
            awaiting=state.awaiting.raw_samples,
            unknown=state.proposals.raw_samples,
        )
        return Snapshot(
            info,
            model,
            state.standardiser,
            self._usual(state),
            self.config.outlier_false_positive_rate,
        )

    # Parts of a step ----------------------------------------------------------------------

    def _waiting(self, state: EngineState) -> int:
        """Samples that count as learned, but wait in a window for more or for a quiet stream."""
        return 0 if state.learner is None else self.learner.waiting(state.learner)

    def _check_classes(self, state: EngineState, labels: Iterable[Label]) -> None:
        """Raise `InvalidLabels` if these labels, with those not learned yet, are too many."""
        awaiting = state.awaiting
        pending = (*state.set_aside, *awaiting.due)
        new = {
            *map(distinct, labels),
            *(distinct(one.label) for one in awaiting.early),
            *(distinct(label) for one in pending for label in state.new_labels(one)),
        } - set(map(distinct, state.classes))
        total = len(state.classes) + len(new)
        if total > self.config.max_classes:
            raise InvalidLabels(
                f"This batch would bring the number of classes to {total}; at most "
                f"{self.config.max_classes} are allowed. Check that the labels are classes and not "
                f"identifiers, or raise GMR_MAX_CLASSES.",
                classes=total,
                limit=self.config.max_classes,
            )

    def _first(self, state: EngineState, batch: Batch) -> EngineState:
        """The first batch fixes D and the scale."""
        n_features = batch.features.shape[1]
        return replace(
            state,
            standardiser=Standardiser.of(batch.features),
            learner=self.learner.start(n_features, self.device),
        )

    def _judge(self, state: EngineState, batch: Batch) -> Judgement:
        """What the model of before the batch, and then the detector, say of it."""
        assert state.standardiser is not None
        scores = self.learner.score(state.learner, state.standardiser.apply(batch.features))
        if scores is None:
            beside = Said(state.shadows, {})
            return Judgement(None, None, state.detector, None, 0, None, Running(), beside)
        seen = Observation(
            scores.log_likelihood - state.standardiser.log_volume,
            batch.features,
            lambda samples: self._sentinel(state, samples),
            state.ert,
        )
        settled = self.learner.settled(state.learner)
        detector, verdict = self.detector.observe(state.detector, seen, settled)
        beside = self.shadows.observe(state.shadows, seen, settled)
        likelihoods = seen.log_likelihoods.double()
        tamed = likelihoods.clamp(min=state.likelihood.lowest)
        tame = Running(len(batch), float(tamed.mean()), float(tamed.var(correction=0)))
        mean = float(likelihoods.mean())
        accuracy, guessed = self._accuracy(state, batch, scores)
        return Judgement(scores, verdict, detector, accuracy, guessed, mean, tame, beside)

    def _sentinel(self, state: EngineState, samples: int) -> Sentinel:
        """The model as it stands, to watch the stream by."""
        model = self.learner.model(state.learner)
        assert model is not None
        assert state.standardiser is not None
        return Sentinel(model, state.standardiser, samples)

    def _accuracy(
        self, state: EngineState, batch: Batch, scores: Scores
    ) -> tuple[float | None, int]:
        """Share of the labelled samples whose class the model names, 0 to 1, and how many."""
        if batch.codes is None or not state.classes:
            return None, 0
        labelled = batch.codes.cpu() != UNLABELLED
        if not bool(labelled.any()):
            return None, 0
        probabilities = self.learner.class_probabilities(state.learner, scores.joint)
        guesses = probabilities.argmax(-1).cpu()
        hits = guesses == state.codes_of(batch)
        return float(hits[labelled].double().mean()), int(labelled.sum())

    def _advance(self, state: EngineState, n: int, judgement: Judgement) -> EngineState:
        """Move on in the stream, and let the running statistics follow."""
        prequential = state.prequential
        if judgement.accuracy is not None:
            prequential = prequential.updated(judgement.guessed, judgement.accuracy)
        likelihood, calibration = state.likelihood, state.calibration
        known = state.stream_samples - state.boundary_sample >= UNREADY_SAMPLES
        if judgement.unsuspected and judgement.scores is not None and known:
            seen = judgement.tame
            likelihood = likelihood.updated(n, seen.mean, seen.variance)
            calibration = self._calibrated(state, judgement.scores)
        return replace(
            state,
            detector=judgement.detector,
            armed=judgement.verdict.armed if judgement.verdict else False,
            shadows=judgement.beside.shadows,
            prequential=prequential,
            likelihood=likelihood,
            calibration=calibration,
            stream_batches=state.stream_batches + 1,
            stream_samples=state.stream_samples + n,
            recent_starts=(*state.recent_starts, state.stream_samples)[-REMEMBERED_STARTS:],
        )

    def _calibrated(self, state: EngineState, scores: Scores) -> Calibration:
        """With traits of some of a batch's samples, which the model has not learned yet."""
        rows = chosen(len(scores.x)).to(scores.x.device)
        some = Scores(scores.x[rows], None, scores.joint[rows], scores.log_likelihood[rows])
        traits = self._traits(state, some)
        return state.calibration.observed(traits, len(scores.x), state.sub_task)

    def _ended(self, state: EngineState, past: Held) -> Calibration:
        """The calibration at the end of a sub-task, given the samples that were drawn of it."""
        drawn = torch.zeros(0, 1)
        if past.sets and past.sets[-1].sub_task == state.sub_task:
            drawn = self._traits_of(state, past.sets[-1].first(DRAWN).features)
        return state.calibration.crossed(drawn)

    def _usual(self, state: EngineState) -> Typicality:
        """What p-values rest on, as the model stands."""
        sets = {one.sub_task: one for one in state.held.sets}
        wanted = {
            sub_task: sets[sub_task].first(n).features
            for sub_task, n in state.calibration.wanted.items()
            if n and sub_task in sets
        }
        if not wanted:
            return state.calibration.typicality({})
        traits = self._traits_of(state, torch.cat([x.float() for x in wanted.values()]))
        parts = torch.split(traits, [len(x) for x in wanted.values()])
        return state.calibration.typicality(dict(zip(wanted, parts, strict=True)))

    def _p_values(self, state: EngineState, scores: Scores) -> Tensor | None:
        """P-values of scored samples, with shape (n,), float64; None while nothing tells them."""
        usual = self._usual(state)
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
        return self.learner.traits(state.learner, scores._replace(log_likelihood=likelihood))

    def _learn(
        self, state: EngineState, batch: Batch, scores: Scores | None
    ) -> tuple[EngineState, list[Event]]:
        """Learn one batch as part of the current sub-task; the version grows by one."""
        if not len(batch):
            return state, []
        state, events = self._discover(state, batch)
        state, moved = self._follow_scale(state, batch.features)
        if moved:
            scores = None
        standardiser = state.standardiser
        assert standardiser is not None
        x = scores.x if scores else standardiser.apply(batch.features)
        tamed = standardiser.tamed(x)
        if tamed is not x:
            scores = None
        codes = state.codes_of(batch)
        generator = torch.Generator()
        generator.set_state(state.random)
        learner, replays = self.learner.learn(
            state.learner,
            tamed,
            codes.to(self.device),
            scores,
            generator,
        )
        state = replace(
            state,
            learner=learner,
            class_counts=state.counted(codes),
            batches_seen=state.batches_seen + 1,
            samples_seen=state.samples_seen + len(batch),
            version=state.last_version + 1,
            last_version=state.last_version + 1,
            random=generator.get_state(),
        )
        if state.past_likelihood.weight == 0 and state.likelihood.weight <= STAND_IN_WEIGHT:
            state = self._first_likelihood(state, batch)
        return state, events + [replayed(state, replay) for replay in replays]

    def _discover(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Labels that were never seen become classes, in the vocabulary's order."""
        new = state.new_labels(batch)
        if not new:
            return state, []
        classes = (*state.classes, *new)
        learner = self.learner.grow(state.learner, len(classes))
        counts = (*state.class_counts, *(0 for _ in new))
        state = replace(state, classes=classes, class_counts=counts, learner=learner)
        at = max(0, state.stream_batches - 1)
        return state, [ClassDiscovered(label, state.sub_task, at) for label in new]

    def _follow_scale(self, state: EngineState, x: Tensor) -> tuple[EngineState, bool]:
        """Let the standardiser follow the data, and the learner the standardiser."""
        old = state.standardiser
        assert old is not None
        if old.identity and not old.settling:
            return state, False
        new = old.outgrown(x).observed(x)
        if not old.settling or new.identity:
            return replace(state, standardiser=new), False
        new = new.refitted()
        factor, offset = new.change_from(old)
        learner = self.learner.rescale(state.learner, factor, offset)
        return replace(state, standardiser=new, learner=learner), True

    def _first_likelihood(self, state: EngineState, batch: Batch) -> EngineState:
        """A stand-in for the likelihood of the data until the stream gave better.

        It is that of samples just learned, which flatters the model; so it is light, and
        fades once samples have been scored before they were learned.
        """
        assert state.standardiser is not None
        scores = self.learner.score(state.learner, state.standardiser.apply(batch.features))
        if scores is None:
            return state
        values = scores.log_likelihood.double() - state.standardiser.log_volume
        stand_in = state.likelihood.updated(
            len(batch), float(values.mean()), float(values.var(correction=0))
        )
        weight = min(stand_in.weight, STAND_IN_WEIGHT)
        return replace(state, likelihood=replace(stand_in, weight=weight))

    def _release(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Learn the batches set aside, and what waits for that, as the current sub-task."""
        awaiting = state.awaiting
        if not state.set_aside and awaiting.suspect_since is None:
            return state, []
        held = (*awaiting.due, *state.set_aside)
        n_samples = sum(map(len, held))
        decided = replace(awaiting, due=(), suspect_since=None)
        state = replace(state, set_aside=(), awaiting=decided)
        if not held:
            return state, []
        events: list[Event] = []
        for batch in held:
            state, learned = self._learn(state, batch, None)
            events += learned
        released = SetAsideReleased(len(held), n_samples, state.sub_task, state.version)
        return state, [*events, released]

    def _recurring(self, state: EngineState, batches: Sequence[Batch], codes: Tensor) -> int | None:
        """The earlier sub-task that these batches belong to, if any."""
        model = self.learner.model(state.learner)
        if model is None or state.standardiser is None or not batches:
            return None
        x = torch.cat([one.features for one in batches])
        ended = {state.sub_task, state.recurrence}
        sets = tuple(one for one in state.held.sets if one.sub_task not in ended)
        return recurring(sets, model, state.standardiser, x, codes)

    def _cross(
        self,
        state: EngineState,
        batch: Batch | None,
        begun: Position,
        verdict: Verdict | None,
    ) -> tuple[EngineState, list[Event]]:
        """Cross a boundary: what is known becomes the generator, then the new is learned.

        Arguments:
            batch: The one that decided it, learned last; None when a person declared it.
            begun: Where that batch begins in the stream.
            verdict: Of the detector; None when a person declared it.
        """
        before, held, n_held = state.version, state.set_aside, state.set_aside_samples
        change = verdict.change_samples if verdict else n_held + state.awaiting.suspects
        start_sample = max(state.boundary_sample, state.stream_samples - change)
        start_batch = state.batch_at(start_sample)
        since = state.awaiting.suspect_since
        first = min(start_sample, begun.sample if since is None else since)
        state, left, events = self.late.leave(state, first)
        beginning = held if batch is None else joined(held, batch)
        mixed: tuple[Batch, ...] = ()
        if verdict is not None:
            mixed, beginning = self.parting.mixture(state, beginning, verdict)
        for one in mixed:
            state, learned = self._learn(state, one, None)
            events += learned
        strange = self.novelty.strange(state, beginning, self._p_values)
        state, fresh, of_proposals, unknown = self.novelty.leave(state, first)
        events += unknown
        model = self.learner.model(state.learner)
        explanation = explain(model, state, beginning, verdict, self.config.outlier_c)
        state = self._remembered(state)
        codes = codes_of(state, beginning)
        recurrence = self._recurring(state, beginning, codes) if verdict else None
        # Labels lead samples back to the components of their class. Without them they would be
        # learned by those of the sub-task that has ended, which must be put away first.
        if recurrence is None or not mostly_labelled(codes):
            state, replays = self._consolidated(state)
            events += replays
        state = replace(
            state,
            detector=self.detector.start(),
            shadows=(),
            past_likelihood=state.past_likelihood.pooled(state.likelihood),
            likelihood=Running(),
            set_aside=(),
            sub_task=state.sub_task + 1,
            recurrence=recurrence,
            armed=False,
            boundary_batch=start_batch,
            boundary_sample=start_sample,
        )
        state = self.late.left_behind(state, left)
        state, closed = self.novelty.left_behind(state, of_proposals)
        events += closed
        for one in (*fresh, *beginning):
            state, learned = self._learn(state, one, None)
            events += learned
        state, proposed = self.novelty.after_boundary(state, beginning, strange)
        events += proposed
        boundary = BoundaryDetected(
            boundary=state.sub_task,
            sub_task=state.sub_task,
            batch_index=begun.batch,
            sample_index=begun.sample,
            estimated_start_batch=start_batch,
            estimated_start_sample=start_sample,
            detector=self.detector.name if verdict else "declared",
            signal=verdict.signal if verdict else "",
            evidence=evidence_of(verdict),
            set_aside_batches=len(held),
            set_aside_samples=n_held,
            version_before=before,
            version_after=state.version,
            recurrence_of=recurrence,
            mixed_samples=sum(map(len, mixed)),
            explanation=explanation,
        )
        return state, [boundary, *events]

    def _remembered(self, state: EngineState) -> EngineState:
        """A sub-task has ended: draw what it will be remembered by, unless that is there."""
        if state.recurrence is not None:
            return replace(state, calibration=state.calibration.crossed(torch.zeros(0, 1)))
        assert state.standardiser is not None
        past = state.held.crossed(
            self.learner.model(state.learner),
            state.standardiser,
            sub_task=state.sub_task,
            class_counts=state.class_counts,
            samples_seen=state.samples_seen,
            version=state.version,
            seed=self.config.seed,
            level=state.likelihood,
        )
        return replace(state, held=past, calibration=self._ended(state, past))

    def _consolidated(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """What is known becomes the generator; the version grows by one."""
        assert state.standardiser is not None
        generator = torch.Generator()
        generator.set_state(state.random)
        learner, replays = self.learner.begin_sub_task(state.learner, generator)
        state = replace(
            state,
            learner=learner,
            random=generator.get_state(),
            standardiser=state.standardiser.eased(),
            version=state.last_version + 1,
            last_version=state.last_version + 1,
        )
        told = replace(state, sub_task=state.sub_task + 1)
        return state, [replayed(told, replay) for replay in replays]
