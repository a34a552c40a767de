"""The type of a change: which samples belong to the old sub-task, and which to a new one.

An alarm says that something changed, not which samples are of what came before. They are told
apart by how likely they are to the detector's frozen model, and by their labels: a class that was
never heard of is always new. From that follows what an alarm was: a burst of outliers that has
gone away, a change of the shares of classes alone, or the beginning of a sub-task, with or
without a mixture of both.

Throughout: N samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.drift.detector import Cause, Detector, Level, Verdict
from core.engine.decision import Absorbed
from core.engine.explanation import MOST_SAMPLES, evenly
from core.engine.inliers import Inliers
from core.engine.judgement import BatchPosition, evidence_of
from core.engine.learning import Learning
from core.engine.recurrence import mostly_labelled
from core.engine.state import EngineState, joined
from core.events import (
    ChangeContinued,
    Event,
    OutlierBurst,
    OutlierBurstContinued,
    PriorShift,
    SamplesRepeated,
)
from core.learners.learner import Scores
from core.memory.burst import Burst
from core.memory.fingerprints import NEARLY_ALL, fingerprints

MIXED = (0.25, 0.9)
"""Share of typical samples from which on, and below which, a change is taken for a mixture of old
and new."""

TAIL = 0.5
"""Share of atypical samples next to the typical ones from which on they are the tail of these."""

LOWER = 2.0
"""Standard errors by which p-values of typical samples are lower where all have moved."""

A_FEW = 3
"""Samples without a label that may be atypical by chance."""


@dataclass(frozen=True)
class ChangeType:
    """Tells old from new.

    Arguments:
        detector: That spoke.
        learning: Teaches the model.
        inliers: What p-values rest on.
    """

    detector: Detector[Any]
    learning: Learning
    inliers: Inliers

    def burst(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict
    ) -> tuple[EngineState, Tensor, list[Event]]:
        """An alarm went away: keep the outliers apart, and learn what was set aside with them.

        Outliers that come again at once are more of the same burst, and told as that.

        Arguments:
            to_learn: Of the batch by which it had gone away, what is to be learned.

        Returns:
            The state, which of these samples are no outliers, (N,) bool, and the events.
        """
        before, set_aside = state, state.pending.set_aside
        kept, outliers = self._parted(state, set_aside)
        typical = self._typical(state, to_learn)
        quarantined = joined(outliers, to_learn.select((~typical).nonzero()[:, 0]))
        state = state.with_pending(set_aside=(), quarantined=quarantined)
        events: list[Event] = []
        for one in kept:
            state, learned = self.learning.learn(state, one, None)
            events += learned
        state, released = self.learning.release(state)
        start = _start_of(state, verdict)
        burst = self._burst(before, quarantined, position, start)
        state = state.with_watch(burst=burst)
        more = burst.number == before.watch.burst.number
        kind = OutlierBurstContinued if more else OutlierBurst
        event = kind(
            sub_task=state.sub_task.number,
            batch_index=position.batch,
            sample_index=position.sample,
            estimated_start_batch=state.stream.batch_at(start),
            estimated_start_sample=start,
            samples=sum(map(len, quarantined)),
            released=sum(map(len, kept)),
            set_aside_batches=len(set_aside),
            detector=self.detector.name,
            signal=verdict.signal,
            evidence=evidence_of(verdict),
            model_version=state.model.version,
            burst=burst.number,
            burst_start_sample=burst.began,
            burst_samples=burst.outliers,
        )
        return state, typical, [*events, *released, event]

    def lasting(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict
    ) -> Verdict | None:
        """The verdict on a burst that is a change, as of its first part; None where it is a burst.

        Where batches are sorted, or put together from several sources, what is new comes as a block
        in each of them and goes away every time.

        Arguments:
            to_learn: Of the batch by which it had gone away, what is to be learned.
            verdict: By which an alarm has gone away.
        """
        _, outliers = self._parted(state, joined(state.pending.set_aside, to_learn))
        burst = self._burst(state, outliers, position, _start_of(state, verdict))
        if not burst.lasts:
            return None
        return verdict._replace(change_samples=state.stream.samples - burst.began)

    def _burst(
        self, state: EngineState, outliers: Sequence[Batch], position: BatchPosition, start: int
    ) -> Burst:
        """The burst of which these outliers are a part, as far as it is known with them.

        Arguments:
            state: Before anything of the batch was learned.
            start: Where they begin, in samples of the stream.
        """
        before, start_batch = state.watch.burst, state.stream.batch_at(start)
        more = before.holds(start_batch, start, state.sub_task.first_sample)
        unheard = sum(int(self._unheard(state, one).sum()) for one in outliers)
        return (before if more else before.followed(start)).with_outliers(
            sum(map(len, outliers)), unheard, position.batch, state.stream.samples
        )

    def mixture(
        self, state: EngineState, batches: tuple[Batch, ...], verdict: Verdict
    ) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
        """What still is of the old sub-task, and what begins the new one, both in order.

        They are parted where both come together for a while, as in a gradual change. Where labels
        mean something else samples look alike, and are told by their place in the stream.
        """
        if verdict.cause is Cause.LABELS:
            return _split(batches, sum(map(len, batches)) - verdict.change_samples)
        old, new = self._parted(state, batches)
        share = sum(map(len, old)) / max(1, sum(map(len, batches)))
        mixed = verdict.cause is Cause.NOVELTY and MIXED[0] <= share < MIXED[1]
        return (old, new) if mixed else ((), batches)

    def shown(
        self,
        state: EngineState,
        old: tuple[Batch, ...],
        new: tuple[Batch, ...],
        verdict: Verdict | None,
        together: tuple[Batch, ...],
    ) -> tuple[Batch, ...]:
        """What shows a change: the new samples of a mixture, or all since it began.

        Where everything has moved a little, the atypical samples are those that happen to lie far
        out. Taken for a draw of the new, they would make the change a large one. Such a tail begins
        where typical samples end; samples of a class that is new lie apart from these.

        Arguments:
            state: Before the change.
            old: Samples that are typical, as `mixture` parts them.
            new: The others.
            verdict: Of the detector; None when a person declared the boundary.
            together: Both, in their order.
        """
        if verdict is None or verdict.cause is not Cause.NOVELTY or not old or not new:
            return new
        if any(bool(self._unheard(state, one).any()) for one in new):
            return new
        typical, atypical = self._log_likelihoods(state, old), self._log_likelihoods(state, new)
        if typical is None or atypical is None:
            return new
        since = _split(together, sum(map(len, together)) - verdict.change_samples)[1]
        near = atypical > typical.min() - typical.std(correction=0)
        if float(near.double().mean()) < TAIL and not self._moved(state, since):
            return new
        return since

    def _moved(self, state: EngineState, batches: tuple[Batch, ...]) -> bool:
        """Whether those of these samples that look typical are less so than what came before.

        Of a mixture they go on as before.
        """
        typical, _ = self._parted(state, batches)
        scores = self._scores(state, typical)
        p_values = None if scores is None else self.inliers.p_values(state, scores)
        if p_values is None or not len(p_values):
            return False
        # Uniform where nothing has changed, and above that without the outliers.
        lowest = 0.5 - LOWER / math.sqrt(12 * len(p_values))
        return float(p_values.mean()) < lowest

    def _log_likelihoods(self, state: EngineState, batches: Sequence[Batch]) -> Tensor | None:
        """By the model of a state, of at most `MOST_SAMPLES`, (N,); None where there is none."""
        scores = self._scores(state, batches)
        return None if scores is None else scores.log_likelihood.double()

    def _scores(self, state: EngineState, batches: Sequence[Batch]) -> Scores | None:
        """By the model of a state, of at most `MOST_SAMPLES`; None where there are none."""
        if not batches:
            return None
        raw = evenly([one.features for one in batches], MOST_SAMPLES)
        return self.learning.learner.score(state.model.learner, state.standardiser.apply(raw))

    def absorbed(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict | None
    ) -> Absorbed | None:
        """The change that the sub-task absorbs; None if there is none, or an alarm is a boundary.

        Arguments:
            to_learn: Of the batch by which it spoke, what is to be learned.
        """
        for kind in (self.repetition, self.prior_shift, self.continuation):
            found = kind(state, to_learn, position, verdict)
            if found:
                return found[0]
        return None

    def repetition(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict | None
    ) -> list[SamplesRepeated]:
        """The event, if the alarm comes of samples that were learned before.

        In this sub-task, that is: what comes from an earlier one is a return, and a boundary.
        A detector with a whole reference sees no batch of such samples. These began within one, or
        came before.
        """
        if verdict is None or verdict.level is not Level.ALARM:
            return []
        start = _start_of(state, verdict)
        batches = joined(state.pending.set_aside, to_learn)
        if not batches:
            return []
        # The batch in which they begin may have others before them: the newer half is asked.
        since = slice(-max(1, (state.stream.samples - start) // 2), None)
        x = torch.cat([one.features for one in batches])[since]
        own, codes = fingerprints(x), codes_of(state, batches)[since]
        share = state.sub_task.fingerprints.share_known(own, codes)
        if share is None or share < NEARLY_ALL:
            return []
        evidence = evidence_of(verdict) | {"repeated_share": share}
        return [self._repeated(state, position, start, verdict.signal, evidence)]

    def begun_again(self, state: EngineState, position: BatchPosition) -> SamplesRepeated:
        """The event of the first batch of samples that come again."""
        return self._repeated(state, position, position.sample, "", {})

    def _repeated(
        self,
        state: EngineState,
        position: BatchPosition,
        start: int,
        signal: str,
        evidence: dict[str, float],
    ) -> SamplesRepeated:
        return SamplesRepeated(
            sub_task=state.sub_task.number,
            batch_index=position.batch,
            sample_index=position.sample,
            estimated_start_batch=state.stream.batch_at(start),
            estimated_start_sample=start,
            detector=self.detector.name,
            signal=signal,
            evidence=evidence,
            model_version=state.model.version,
        )

    def prior_shift(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict | None
    ) -> list[PriorShift]:
        """The event, if what the detector calls a boundary is a matter of shares alone.

        That can be said where there are labels: all are of classes that the sub-task has
        shown, and the samples are as likely as ever, or as others of their class. A detector
        that names no signal watches the likelihood alone, which has changed if it speaks, and
        where labels mean something else, or a feature lies elsewhere in the components on which
        samples fall, shares may be what they were.
        """
        if verdict is None or verdict.level is not Level.ALARM:
            return []
        if verdict.cause in (Cause.UNKNOWN, Cause.LABELS, Cause.FEATURES):
            return []
        start = _start_of(state, verdict)
        since = state.pending.awaiting.suspect_since
        # Samples that await their labels may be of no class at all.
        waiting = state.pending.awaiting.since(start if since is None else min(start, since))
        batches = (*joined(state.pending.set_aside, to_learn), *waiting)
        codes = codes_of(state, batches)
        named = codes[codes != UNLABELLED]
        if not mostly_labelled(codes) or int(named.max()) >= len(state.model.classes):
            return []
        atypical = ~torch.cat([self._typical(state, one) for one in batches])
        # Of those without a label too: they might be of no class at all.
        unnamed = atypical[codes == UNLABELLED]
        alike = _are_few(len(codes), int(atypical.sum()))
        alike &= _are_few(len(unnamed), int(unnamed.sum()) - A_FEW)
        if not alike or not bool(state.shown[named].all()):
            return []
        return [
            PriorShift(
                sub_task=state.sub_task.number,
                batch_index=position.batch,
                sample_index=position.sample,
                estimated_start_batch=state.stream.batch_at(start),
                estimated_start_sample=start,
                detector=self.detector.name,
                signal=verdict.signal,
                evidence=evidence_of(verdict),
                model_version=state.model.version,
            )
        ]

    def continuation(
        self, state: EngineState, to_learn: Batch, position: BatchPosition, verdict: Verdict | None
    ) -> list[ChangeContinued]:
        """The event, if the alarm is more of the change at the last one.

        No label may say that a class is new, or of another sub-task; and the stream must have
        moved ever since the boundary in the direction in which it has changed now:
        `core.memory.course`.
        """
        if verdict is None or verdict.level is not Level.ALARM or not state.sub_task.number:
            return []
        if verdict.cause in (Cause.UNKNOWN, Cause.LABELS):
            return []
        start = _start_of(state, verdict)
        # Where every sample awaits its label, nothing is set aside beside them.
        batches = joined(state.pending.set_aside, to_learn) or state.pending.awaiting.since(start)
        codes = codes_of(state, batches)
        named = codes[codes != UNLABELLED]
        if not batches or (len(named) and int(named.max()) >= len(state.model.classes)):
            return []
        if not bool(state.shown[named].all()):
            return []
        x = torch.cat([one.features for one in batches])
        # Suspicion may have come before the change, or after it.
        later = x[-max(1, state.stream.samples - start) :]
        found = state.sub_task.course.continuation(later, start)
        if found is None:
            return []
        evidence = {
            "rest_p_value": found.p_value,
            "rest_p_value_early": found.p_value_early,
            "rest_p_value_lately": found.p_value_lately,
        }
        return [
            ChangeContinued(
                sub_task=state.sub_task.number,
                batch_index=position.batch,
                sample_index=position.sample,
                boundary_sample=state.sub_task.first_sample,
                estimated_start_batch=state.stream.batch_at(start),
                estimated_start_sample=start,
                detector=self.detector.name,
                signal=verdict.signal,
                evidence=evidence_of(verdict) | evidence,
                model_version=state.model.version,
            )
        ]

    def relabelled(
        self, state: EngineState, batches: tuple[Batch, ...], verdict: Verdict | None
    ) -> tuple[Batch, ...]:
        """The samples that say what labels mean now; none if labels mean the same.

        Whatever does not look like samples before the change says nothing of their names.
        """
        if verdict is None or verdict.cause is not Cause.LABELS:
            return ()
        typical, _ = self._parted(state, batches)
        return typical

    def _parted(
        self, state: EngineState, batches: tuple[Batch, ...]
    ) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
        """Samples that look like those before a change, and those that do not, in order."""
        old: tuple[Batch, ...] = ()
        new: tuple[Batch, ...] = ()
        for one in batches:
            typical = self._typical(state, one)
            old = joined(old, one.select(typical.nonzero()[:, 0]))
            new = joined(new, one.select((~typical).nonzero()[:, 0]))
        return old, new

    def _typical(self, state: EngineState, batch: Batch) -> Tensor:
        """Which samples look like those before a change, (N,) bool; a new label is always new."""
        if not len(batch):
            return torch.zeros(0, dtype=torch.bool)
        typical = self.detector.typical(state.watch.detector, batch.features)
        return typical & ~self._unheard(state, batch)

    def _unheard(self, state: EngineState, batch: Batch) -> Tensor:
        """Which samples have a label that the model has never heard, (N,) bool."""
        if batch.codes is None:
            return torch.zeros(len(batch), dtype=torch.bool)
        return (batch.codes.cpu() != UNLABELLED) & (state.model.codes_of(batch) == UNLABELLED)


def _start_of(state: EngineState, verdict: Verdict) -> int:
    """Where a change is estimated to have begun, in samples of the stream."""
    return max(state.sub_task.first_sample, state.stream.samples - verdict.change_samples)


def _are_few(n: int, atypical: int) -> bool:
    """Whether so few of n samples are atypical that it is no mixture."""
    # Not as a share of atypical ones: one less nine tenths is less than a tenth to a computer.
    return n - atypical >= MIXED[1] * n


def _split(batches: tuple[Batch, ...], n: int) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
    """The first n samples, none if n is below one, and the rest."""
    first: tuple[Batch, ...] = ()
    rest: tuple[Batch, ...] = ()
    for one in batches:
        rows, n = torch.arange(len(one)), n - len(one)
        first = joined(first, one.select(rows[: max(0, n + len(one))]))
        rest = joined(rest, one.select(rows[max(0, n + len(one)) :]))
    return first, rest


def codes_of(state: EngineState, batches: Sequence[Batch]) -> Tensor:
    """Class code of all samples in one; the number of classes where the label is new."""
    none = torch.zeros(0, dtype=torch.int64)
    return torch.cat([none, *(state.model.codes_and_new(one) for one in batches)])
