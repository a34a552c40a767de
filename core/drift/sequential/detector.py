"""The default rule: evidence accumulates over samples, whatever the size of the batches.

A frozen model, one version of the model at rest, scores the stream
(`core.drift.sequential.frozen_model`). Bets on its ranks and cells gain when something changes
(`core.drift.sequential.reference`), and what they gain is added up
(`core.drift.sequential.evidence`). One number sets the threshold: the run time between false
alarms. As the model learns, a successor is taken from it, which first watches beside the frozen
model until it has a reference of its own, and then takes its place: thresholds are set anew for
every version, by samples that it has not learned.

Six signals (`core.drift.sequential.signals`), all of the one forward pass, are fused into one
decision.

An alarm that lasts is a boundary; one that goes away was a burst of outliers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.density.blocks import ROWS
from core.drift.detector import (
    Arming,
    ForwardPass,
    Level,
    Observation,
    Probe,
    UnarmedReason,
    Verdict,
)
from core.drift.sequential.bets import BetTable
from core.drift.sequential.evidence import Evidence, Reading
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.monitor import Monitor
from core.drift.sequential.record import record
from core.drift.sequential.reference import Reference
from core.drift.sequential.reference_scores import MOST_PARTS
from core.drift.sequential.scores import (
    LIKELIHOOD_IN_CLASS,
    LIKELIHOOD_MARGIN_IN_CLASS,
    OVERALL,
    FrozenScores,
)
from core.drift.sequential.signals import BET_TABLE, CAUSES, FEATURES, FUSED

SUSPICION = 2 / 3
"""Share of the threshold's logarithm from which on a change is suspected."""

CONFIRMED = 30
"""Samples that a change must have lasted; fewer may be a handful of outliers."""

CONFIRMED_THIN = 150
"""The same where only few of the samples fall out: a contamination may be cleaned up soon."""

THIN = 0.5
"""Share that a bet on outliers is on, up to which that is so."""

LASTING = 2.0
"""Nats that what has been gained may have lost again for the change to last."""

OVER = 7.0
"""Nats that it must have lost for the change to be over."""

OVERSHOOT = 1.6
"""Factor by which R, on average, is above the threshold when it crosses it (in simulation 1.5 to
1.9, with scores that do and do not depend on each other)."""

PROBE_ERT = 1000.0
"""Run time between alarms of the probe, in samples."""

MOST_AWAITED = 4
"""Warm-ups that a reference may take where samples depend on each other."""

LEAST_TYPICAL = 0.02
"""Rank of likelihood and margin from which on a sample passes for what was there before."""

LONGEST_WATCH = 2000
"""Samples that a successor watches at most, if they do not depend on each other."""

EARLY = 0.1
"""Part of the warm-up that is learned, and then watched, before bets for few samples are open."""

LEAST_EARLY = 10
"""Samples that the early watch needs, however short the warm-up: of fewer nothing is known."""

LONGEST_LIFETIME = 40_000
"""Samples after which a successor is taken at the latest, once the sub-task is as long."""

NOTHING = FrozenScores.nothing().scores


class Chunk(NamedTuple):
    """Samples that are weighed at a time."""

    x: Tensor  # (N, D) in the sender's units
    codes: Tensor | None  # (N,) int64
    forward_pass: ForwardPass | None  # what has been said of these very samples


@dataclass(frozen=True, eq=False)
class Successor:
    """A version that will be the frozen model, with what it has seen so far, part by part."""

    frozen_model: FrozenModel
    seen: tuple[FrozenScores, ...] = ()
    wanted: int = 0  # samples, before it is looked at again
    suspected: tuple[FrozenScores, ...] = ()  # while a change is suspected


@dataclass(frozen=True)
class Alarm:
    """The threshold was passed, and it is open what follows."""

    began: int  # samples of the sub-task before the estimated start
    height: float  # largest statistic since


@record
class SequentialState:
    """Everything that is remembered.

    Arguments:
        samples: Of the sub-task so far.
        watch: None until a frozen model has a reference.
        successor: None while none is needed.
        evidence: For a change.
        alarm: None while there is none.
        probe: log R of every bet since the probe's last alarm, with shape (J,).
        suspected: Scores seen while a change is suspected, with shape (S, n).
        unsuspected: What was known before that suspicion; None while there is none.
        early: Whether a frozen model may watch before the first that has a whole reference does.
    """

    samples: int
    watch: Monitor | None
    successor: Successor | None
    evidence: Evidence
    alarm: Alarm | None
    probe: Array
    suspected: Array
    unsuspected: Reference | None = None
    early: bool = True  # a checkpoint of an earlier release has none


@dataclass(frozen=True)
class SequentialDetector:
    """Shiryaev-Roberts sums of e-values, by which bets pay where something has changed.

    Arguments:
        ert: Expected run time between false alarms, in samples, above 1.
        warm_up: Samples after a reset before all bets are open: for half of them the model only
            learns, the other half become a whole reference. A part of it before (`EARLY`), bets are
            placed that are exact for few samples.
        bet_table: The bets.
    """

    ert: float = 1e7
    warm_up: int = 1000
    bet_table: BetTable = BET_TABLE

    @property
    def state_type(self) -> type[SequentialState]:
        return SequentialState

    @property
    def name(self) -> str:
        return "sequential"

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The names of the statistics."""
        return (*self.bet_table.signals, FUSED)

    def threshold(self, ert: float | None = None) -> float:
        """The threshold of the statistic, log(1 + R), for a run time between false alarms."""
        return math.log1p((self.ert if ert is None else ert) / OVERSHOOT)

    def start(self) -> SequentialState:
        none = Evidence.none(len(self.bet_table))
        return SequentialState(0, None, None, none, None, none.totals, NOTHING)

    def observe(
        self, state: SequentialState, seen: Observation, converged: bool
    ) -> tuple[SequentialState, Verdict]:
        threshold, watched = self.threshold(seen.ert), state.watch
        reading = self._read(state)
        calm = reading.statistic <= SUSPICION * threshold
        if converged and calm and self._needs_successor(state, seen.since_boundary):
            state = replace(state, successor=Successor(FrozenModel.of(seen.version(state.samples))))
        scores: list[Array] = []
        probed, level, burst = 0, Level.NORMAL, None
        for chunk in _chunks(seen):
            before = state
            state, chunk_scores, reading, highest, alarms = self._updated(state, chunk, threshold)
            if chunk_scores is not None:
                scores.append(chunk_scores.log_likelihoods)
            probed += alarms
            state, level, over = self._judged(state, reading, highest, threshold)
            burst = burst or over
            if level is not Level.NORMAL or over:
                state = _kept_out(state, before, chunk_scores, over is not None)
                if state.successor is not None:
                    successor = _suspecting(state.successor, chunk, over is not None)
                    state = replace(state, successor=successor)
            else:
                state = self._cleared(state)
                if state.successor is not None:
                    state = self._inherited(state, state.successor, chunk)
            if level is Level.ALARM:
                burst = None
                break
        if scores:
            log_likelihoods = scores[0] if len(scores) == 1 else np.concatenate(scores)
        else:
            log_likelihoods = seen.log_likelihoods.double().cpu().numpy()
        unchanged = calm and level is Level.NORMAL and burst is None
        probe = Probe(PROBE_ERT, len(log_likelihoods), probed) if watched and unchanged else None
        return state, self._verdict(state, watched, level, burst, log_likelihoods, threshold, probe)

    def arming(self, state: SequentialState, since_boundary: int, converged: bool) -> Arming:
        if state.watch is not None:
            return Arming.after(0)
        if not converged:
            return Arming.unknown(UnarmedReason.ANNEALING)
        half, successor = math.ceil(self.warm_up / 2), state.successor
        whole = max(0, half - state.samples) + half
        if successor is None:
            early = self._early
            soon = max(0, early - since_boundary) + early
            return Arming.after(min(soon, whole) if state.early else whole)
        if not self._is_early(successor.frozen_model):
            if successor.wanted:
                # What they are worth has been too little; what more will be worth is not known.
                return Arming.unknown(UnarmedReason.DEPENDENCE)
            return Arming.after(max(1, half - sum(map(len, successor.seen))))
        if successor.wanted:
            # Only a whole reference tells by how much they depend on each other.
            return Arming(whole, UnarmedReason.DEPENDENCE)
        return Arming.after(max(1, self._early - sum(map(len, successor.seen))))

    def accept(self, state: SequentialState) -> SequentialState:
        if state.watch is None:
            return self.start()
        if state.watch.reference.online:
            # Too few are known to go on with other shares: a whole reference is waited for.
            return replace(self.dismiss(state), watch=None, successor=None, early=False)
        frozen_model, reference = state.watch.frozen_model, state.watch.reference
        reference = reference.with_more(state.suspected).with_new_shares(self.bet_table)
        return self.dismiss(replace(state, watch=Monitor(frozen_model, reference), successor=None))

    def dismiss(self, state: SequentialState) -> SequentialState:
        none, successor = Evidence.none(len(self.bet_table)), state.successor
        return replace(
            state,
            evidence=none,
            alarm=None,
            suspected=NOTHING,
            unsuspected=None,
            successor=None if successor is None else replace(successor, suspected=()),
        )

    def typical(self, state: SequentialState, x: Tensor) -> Tensor:
        if state.watch is None:
            return torch.ones(len(x), dtype=torch.bool)
        watch = state.watch
        low, high = watch.reference.ranks(watch.frozen_model.score(x).scores)
        usual = (high[:OVERALL] >= LEAST_TYPICAL).all(0)
        # What is usual for its class is so however rare the class was. Of a class that has been
        # seen too seldom, even the strangest sample would have a high rank.
        own = [LIKELIHOOD_IN_CLASS, LIKELIHOOD_MARGIN_IN_CLASS]
        fine = high[own] - low[own] <= LEAST_TYPICAL
        usual |= (fine & (high[own] >= 2 * LEAST_TYPICAL)).all(0)
        return torch.from_numpy(usual)

    @cached_property
    def _early(self) -> int:
        """Samples before the first frozen model, and as many again before it watches."""
        return max(LEAST_EARLY, math.ceil(EARLY * self.warm_up))

    def _is_early(self, frozen_model: FrozenModel) -> bool:
        """Whether a frozen model was taken before the first that gets a whole reference."""
        return frozen_model.taken_at < self.warm_up / 2

    def _needs_successor(self, state: SequentialState, since_boundary: int) -> bool:
        due = state.samples >= self.warm_up / 2
        if state.successor is not None:
            return due and self._is_early(state.successor.frozen_model)
        if state.watch is None:
            return due or (state.early and since_boundary >= self._early)
        if state.watch.reference.online:
            return due
        if state.watch.reference.outdated:
            return True
        taken = state.watch.frozen_model.taken_at
        return state.samples >= taken + min(taken, LONGEST_LIFETIME)

    def _updated(
        self, state: SequentialState, chunk: Chunk, threshold: float
    ) -> tuple[SequentialState, FrozenScores | None, Reading, float, int]:
        """Add some samples and their evidence.

        Returns:
            The state, what was seen, what the evidence comes to, the largest statistic on the
            way, and alarms of the probe.
        """
        if state.watch is None:
            state = replace(state, samples=state.samples + len(chunk.x))
            return state, None, self._read(state), 0.0, 0
        chunk_scores = state.watch.frozen_model.score(*chunk)
        gathered = state.evidence, state.probe
        if state.watch.reference.online:
            among, limit = state.suspected, threshold
            if state.alarm is not None:
                among, limit = NOTHING, -math.inf
            updated = state.watch.updated_online(
                chunk_scores, self.bet_table, among, *gathered, limit
            )
        else:
            updated = state.watch.updated(chunk_scores, self.bet_table, state.suspected, *gathered)
        watch, evidence, reading, highest, probe, probed = updated
        probe_alarm = probed >= self.threshold(PROBE_ERT)
        if probe_alarm:
            probe = np.full_like(probe, -np.inf)
        samples = state.samples + len(chunk_scores)
        state = SequentialState(
            samples,
            watch,
            state.successor,
            evidence,
            state.alarm,
            probe,
            state.suspected,
            state.unsuspected,
            state.early,
        )
        return state, chunk_scores, reading, highest, int(probe_alarm)

    def _read(self, state: SequentialState) -> Reading:
        watch = state.watch
        weights = watch.reference.dependence.weights if watch else self.bet_table.weights
        return state.evidence.read(self.bet_table, weights)

    def _cleared(self, state: SequentialState) -> SequentialState:
        """A suspicion has passed: what was suspected is like the rest."""
        if state.watch is None or not state.suspected.shape[1]:
            return state
        reference = state.watch.reference.with_more(state.suspected)
        watch = Monitor(state.watch.frozen_model, reference)
        return replace(state, watch=watch, suspected=NOTHING, unsuspected=None)

    def _inherited(
        self, state: SequentialState, successor: Successor, chunk: Chunk
    ) -> SequentialState:
        """Show samples to the successor; once they are enough, it replaces the frozen model."""
        seen = (*successor.seen, *successor.suspected, successor.frozen_model.score(*chunk))
        if len(seen) > MOST_PARTS:
            seen = (FrozenScores.joined(*seen),)
        n = sum(map(len, seen))
        if self._is_early(successor.frozen_model):
            return self._inherited_early(
                state, Successor(successor.frozen_model, seen, successor.wanted), n
            )
        watch = min(successor.frozen_model.taken_at / 4, LONGEST_WATCH)
        if n < max(self.warm_up / 2, watch, successor.wanted):
            return replace(
                state, successor=Successor(successor.frozen_model, seen, successor.wanted)
            )
        reference = Reference.of(successor.frozen_model, FrozenScores.joined(*seen), self.bet_table)
        if reference.worth < self.warm_up / 4 and n < MOST_AWAITED * self.warm_up:
            return replace(state, successor=Successor(successor.frozen_model, seen, 2 * n))
        if state.watch is not None and state.watch.reference.online:
            # Bets that have been open alone so far say nothing of what all will gain.
            state = replace(self.dismiss(state), probe=Evidence.none(len(self.bet_table)).totals)
        return replace(state, watch=Monitor(successor.frozen_model, reference), successor=None)

    def _inherited_early(
        self, state: SequentialState, successor: Successor, n: int
    ) -> SequentialState:
        """The same for the first frozen model of a sub-task, which has seen n samples."""
        if n < max(self._early, successor.wanted):
            return replace(state, successor=successor)
        seen = FrozenScores.joined(*successor.seen)
        reference = Reference.of_few(successor.frozen_model, seen, self.bet_table)
        if reference is None:
            return replace(state, successor=Successor(successor.frozen_model, (seen,), 2 * n))
        return replace(state, watch=Monitor(successor.frozen_model, reference), successor=None)

    def _judged(
        self, state: SequentialState, now: Reading, highest: float, threshold: float
    ) -> tuple[SequentialState, Level, Alarm | None]:
        """What follows, and the alarm that has just gone away, if one has."""
        alarm = state.alarm
        if alarm is None and highest >= threshold:
            alarm = Alarm(max(0, state.samples - now.age), highest)
        if alarm is not None:
            alarm = replace(alarm, height=max(alarm.height, highest))
            lasts = now.run_length >= self._confirming(now.leader) and now.lost <= LASTING
            if now.statistic >= threshold - LASTING and lasts:
                return replace(state, alarm=alarm), Level.ALARM, None
            if now.statistic <= SUSPICION * threshold or now.lost >= OVER:
                return self.dismiss(state), Level.NORMAL, alarm
            return replace(state, alarm=alarm), Level.WARNING, None
        suspect = now.statistic > SUSPICION * threshold
        return state, Level.WARNING if suspect else Level.NORMAL, None

    def _confirming(self, leader: int) -> int:
        """Samples that the change must have lasted, by the bet that has gained most."""
        thin = leader < len(self.bet_table.ranks) and self.bet_table.ranks[leader].share <= THIN
        return CONFIRMED_THIN if thin else CONFIRMED

    def _verdict(
        self,
        state: SequentialState,
        watched: Monitor | None,
        level: Level,
        burst: Alarm | None,
        log_likelihoods: Array,
        threshold: float,
        probe: Probe | None,
    ) -> Verdict:
        now = self._read(state)
        loudest = self._names[now.loudest]
        feature_shares: Sequence[float] = ()
        if state.watch and loudest == FEATURES:
            n_features = state.watch.frozen_model.model.density.n_features
            feature_shares = state.watch.reference.counts.features.feature_shares(n_features)
        n = len(log_likelihoods)
        # The batch with which a reference becomes complete is part of it.
        known = watched.reference.scores.summary if watched else None
        inlier_rate, mean = None, float(log_likelihoods.mean())
        if known is not None:
            inlier_rate, mean = known.beside(log_likelihoods)
        # What decides may have fallen a little since, until enough samples confirm it.
        over = burst or state.alarm
        highest = over.height if over else now.statistic
        began = burst.began if burst else state.samples - now.age
        return Verdict(
            level=level,
            names=self._names,
            values=now.statistics,
            threshold=threshold,
            armed=watched is not None,
            inlier_rate=inlier_rate,
            inlier_rate_mean=known.inlier_rate if known else None,
            change_samples=max(n, state.samples - began),
            signal=loudest,
            burst=burst is not None,
            log_likelihood_before=known.mean if known else None,
            log_likelihood_now=mean,
            statistic_highest=highest,
            samples=state.samples,
            probe=probe,
            feature_shares=feature_shares,
            cause=CAUSES[loudest],
            early=watched is None or watched.reference.online,
        )


def _kept_out(
    state: SequentialState, before: SequentialState, seen: FrozenScores | None, burst: bool
) -> SequentialState:
    """Keep scores out of the reference; those of a burst for good.

    Suspected samples must not enter the reference. Dropping them for good would bias the reference
    towards typical samples, so they are kept aside and added when the suspicion passes. Their
    counts stay, because bets are on the last samples, until they turn out to be a burst: long-run
    shares with outliers among them would pay a little for every usual sample ever after.
    """
    if state.watch is None or before.watch is None or seen is None:
        return state
    unsuspected = before.unsuspected or before.watch.reference
    reference = state.watch.reference.with_scores_of(before.watch.reference)
    if burst:
        watch = Monitor(state.watch.frozen_model, reference.with_counts_of(unsuspected))
        return replace(state, watch=watch)
    watch = Monitor(state.watch.frozen_model, reference)
    suspected = np.concatenate([state.suspected, seen.scores], 1)
    return replace(state, watch=watch, suspected=suspected, unsuspected=unsuspected)


def _suspecting(successor: Successor, chunk: Chunk, burst: bool) -> Successor:
    """Keep samples aside; after a burst, drop all that was kept aside."""
    if burst:
        return replace(successor, suspected=())
    return replace(
        successor, suspected=(*successor.suspected, successor.frozen_model.score(*chunk))
    )


def _chunks(seen: Observation) -> Iterable[Chunk]:
    """As many as are scored at a time: a huge batch can become a reference and be tested by it."""
    whole = Chunk(seen.features, seen.codes, seen.passed)
    return (whole,) if whole.x.size(0) <= ROWS else _parts(*whole)


def _parts(x: Tensor, codes: Tensor | None, forward_pass: ForwardPass | None) -> Iterator[Chunk]:
    for begin in range(0, len(x), ROWS):
        rows = slice(begin, begin + ROWS)
        own = None if forward_pass is None else forward_pass.of(rows)
        yield Chunk(x[rows], None if codes is None else codes[rows], own)
