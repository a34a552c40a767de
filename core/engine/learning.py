"""The engine's part of learning: batches become part of the model.

A learner knows samples, scales and codes; what belongs to a stream is here: labels become
classes, the scale of the features follows the data, versions are counted, and a random state
goes in and comes out, so that the same stream gives the same model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.compiled.loops import Array
from core.engine.judgement import replayed
from core.engine.state import EngineState
from core.events import ClassDiscovered, Event, SetAsideReleased
from core.learners.learner import Learner, Scores
from core.memory.fingerprints import fingerprints
from core.outliers.calibration import Calibration
from core.outliers.unknown import least_known

STAND_IN_WEIGHT = 50.0
"""Samples that the first surrogate for the likelihood counts as, once better is known."""


@dataclass(frozen=True)
class Learning:
    """Teaches a learner.

    Arguments:
        learner: The model's way of learning.
        device: Where the model lives.
    """

    learner: Learner[Any]
    device: torch.device

    def learn(
        self,
        state: EngineState,
        batch: Batch,
        scores: Scores | None,
        own: Array | None = None,
    ) -> tuple[EngineState, list[Event]]:
        """Learn one batch as part of the current sub-task; the version grows by one.

        Labels of samples that are unknown by their likelihood, or novel, name nothing known.

        Arguments:
            scores: By the model as it stands; None where there are none.
            own: Fingerprints of the samples, likewise.
        """
        if not len(batch):
            return state, []
        state, events = self.discover(state, batch)
        state, moved = self._follow_scale(state, batch.features)
        if moved:
            scores = None
        standardiser = state.standardiser
        x = scores.x if scores else standardiser.apply(batch.features)
        clipped = standardiser.clipped(x)
        if clipped is not x:
            scores = None
        codes = state.model.codes_of(batch)
        generator = torch.Generator()
        generator.set_state(state.model.random)
        least = math.inf
        if not batch.novel:
            # What is usual in a sub-task may be unlikely beside those before.
            all_ = state.log_likelihood
            least = (
                min(least_known(all_), least_known(state.sub_task.log_likelihood))
                + standardiser.log_volume
            )
        learner, replays = self.learner.learn(
            state.model.learner,
            clipped,
            codes,
            scores,
            generator,
            least,
        )
        own = fingerprints(batch.features) if own is None else own
        known = state.sub_task.fingerprints.learned(own, codes)
        state = state.with_sub_task(fingerprints=known).changed(
            learner=learner,
            class_counts=state.model.counted(codes),
            batches_seen=state.model.batches_seen + 1,
            samples_seen=state.model.samples_seen + len(batch),
            random=generator.get_state(),
        )
        if (
            state.past.log_likelihood.weight == 0
            and state.sub_task.log_likelihood.weight <= STAND_IN_WEIGHT
        ):
            state = self._first_likelihood(state, batch)
        return state, events + [replayed(state, replay) for replay in replays]

    def discover(self, state: EngineState, batch: Batch) -> tuple[EngineState, list[Event]]:
        """Labels that were never seen become classes, in the vocabulary's order."""
        new = state.model.new_labels(batch)
        if not new:
            return state, []
        classes = (*state.model.classes, *new)
        learner = self.learner.grow(state.model.learner, len(classes))
        counts = (*state.model.class_counts, *(0 for _ in new))
        state = state.with_model(classes=classes, class_counts=counts, learner=learner)
        at = max(0, state.stream.batches - 1)
        return state, [ClassDiscovered(label, state.sub_task.number, at) for label in new]

    def release(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Learn the batches set aside, and samples that are due, as the current sub-task."""
        awaiting = state.pending.awaiting
        if not state.pending.set_aside and awaiting.suspect_since is None:
            return state, []
        batches = (*awaiting.due, *state.pending.set_aside)
        n_samples = sum(map(len, batches))
        decided = replace(awaiting, due=(), suspect_since=None)
        state = state.with_pending(set_aside=(), awaiting=decided)
        if not batches:
            return state, []
        events: list[Event] = []
        for batch in batches:
            state, learned = self.learn(state, batch, None)
            events += learned
        released = SetAsideReleased(
            len(batches), n_samples, state.sub_task.number, state.model.version
        )
        return state, [*events, released]

    def consolidated(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """What is known becomes the generator; the version grows by one."""
        generator = torch.Generator()
        generator.set_state(state.model.random)
        learner, replays = self.learner.begin_sub_task(state.model.learner, generator)
        state = state.changed(
            learner=learner,
            random=generator.get_state(),
            standardiser=state.standardiser.discounted(),
            panel=None if state.model.panel is None else state.model.panel.in_new_sub_task(),
        )
        next_sub_task = state.with_sub_task(number=state.sub_task.number + 1)
        return state, [replayed(next_sub_task, replay) for replay in replays]

    def absorbed(self, state: EngineState) -> EngineState:
        """No raw sample is held any more: what is known learns on; the version grows by one."""
        generator = torch.Generator()
        generator.set_state(state.model.random)
        learner = self.learner.absorbed(state.model.learner, generator)
        panel = state.model.panel
        return state.changed(
            learner=learner,
            random=generator.get_state(),
            panel=None if panel is None else panel.in_new_sub_task(),
        )

    def renamed(self, state: EngineState, batches: tuple[Batch, ...], shown: Tensor) -> EngineState:
        """Labels mean something else, as these samples say; the version grows by one.

        Arguments:
            shown: Which classes the sub-task before has shown, with shape (C,), bool.
        """
        codes = torch.cat([state.model.codes_of(one) for one in batches])
        named = codes != UNLABELLED
        x = torch.cat([one.features for one in batches])[named.to(self.device)]
        x = state.standardiser.apply(x)
        panel = None if state.model.panel is None else state.model.panel.deferring()
        return state.changed(
            panel=panel,
            learner=self.learner.renamed(
                state.model.learner, x, codes[named].to(self.device), shown.to(self.device)
            ),
        )

    def waiting(self, state: EngineState) -> int:
        """Samples that count as learned, but wait in a window for more or for a quiet stream."""
        return 0 if state.model.learner is None else self.learner.waiting(state.model.learner)

    def _follow_scale(self, state: EngineState, x: Tensor) -> tuple[EngineState, bool]:
        """Let the standardiser follow the data, and the learner the standardiser."""
        old = state.standardiser
        assert old is not None
        if old.identity and not old.settling:
            return state, False
        new = old.without_unit_range(x).observed(x, rests=True)
        if not old.settling or new.identity:
            return state.with_model(standardiser=new), False
        if old.identity:
            # What is usual of images says nothing of the rows of a table.
            state = state.with_model(calibration=Calibration())
        new = new.refitted()
        factor, offset = new.change_from(old)
        learner = self.learner.rescale(state.model.learner, factor, offset)
        return state.with_model(standardiser=new, learner=learner), True

    def _first_likelihood(self, state: EngineState, batch: Batch) -> EngineState:
        """A surrogate for the likelihood of the data until the stream gave better.

        It is that of samples just learned, which flatters the model; so it is light, and
        fades once samples have been scored before they were learned.
        """
        scores = self.learner.score(state.model.learner, state.standardiser.apply(batch.features))
        if scores is None:
            return state
        values = scores.log_likelihood.double() - state.standardiser.log_volume
        surrogate = state.sub_task.log_likelihood.updated(
            len(batch), float(values.mean()), float(values.var(correction=0))
        )
        weight = min(surrogate.weight, STAND_IN_WEIGHT)
        return state.with_sub_task(log_likelihood=replace(surrogate, weight=weight))
