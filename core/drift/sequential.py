"""The default rule: evidence accumulates over samples, whatever the size of the batches.

Two signals are read off the one forward pass, the inlier rate (`core.drift.inlier_rate`)
and component occupancy (`core.drift.occupancy`); either may speak. While one is past a
quarter of its threshold a change is suspected, and nothing that they are compared with moves.
A suspicion must come early: a first batch that is learned after all may bring a new class,
for which components are merged, and counts of components begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.drift.cusum import Cusum
from core.drift.detector import Level, Observation, Verdict
from core.drift.inlier_rate import BatchInliers, InlierRate, InlierRateState
from core.drift.occupancy import Occupancy, OccupancyState

INLIERS = "inliers"
OCCUPANCY = "occupancy"


@dataclass(frozen=True, eq=False)
class SequentialState:
    """Everything both signals remember."""

    samples: int  # since the last reset, suspects left out
    inliers: InlierRateState
    occupancy: OccupancyState


@dataclass(frozen=True)
class SequentialDetector:
    """Inlier-rate CUSUM and component-occupancy CUSUM, fused by "either".

    Arguments:
        threshold: Of both sums. Larger means fewer false alarms and later detection.
        suspicion: Share of the threshold from which on a change is suspected.
        warm_up: Samples after a reset before it may speak. The first half of them is
            ignored: those are scores of a model that does not know the data yet.
    """

    threshold: float = 20.0
    suspicion: float = 0.25
    warm_up: int = 1000
    inlier_rate: InlierRate = InlierRate()
    occupancy: Occupancy = Occupancy()

    @property
    def state_type(self) -> type[SequentialState]:
        return SequentialState

    @property
    def name(self) -> str:
        return "sequential"

    def start(self) -> SequentialState:
        return SequentialState(0, InlierRateState(), OccupancyState.empty())

    def observe(
        self, state: SequentialState, seen: Observation, settled: bool
    ) -> tuple[SequentialState, Verdict]:
        inliers = state.inliers
        occupancy = self.occupancy.aligned(state.occupancy, seen.partition, seen.n_components)
        scores = self.inlier_rate.read(inliers, seen.log_likelihoods)
        winners = self.occupancy.read(occupancy, seen.components)
        armed = settled and state.samples >= self.warm_up and inliers.scores.weight > 0
        if armed:
            inliers = self.inlier_rate.weigh(inliers, scores)
            occupancy = self.occupancy.weigh(occupancy, winners)
        verdict = self._verdict(inliers, occupancy.evidence, scores, armed)

        if verdict.level is not Level.NORMAL:
            occupancy = self.occupancy.hold(occupancy, winners)
            return replace(state, inliers=inliers, occupancy=occupancy), verdict
        samples = state.samples + scores.samples
        if samples > self.warm_up / 2:
            inliers = self.inlier_rate.absorb(inliers, scores)
            occupancy = self.occupancy.absorb(occupancy, winners)
        return SequentialState(samples, inliers, occupancy), verdict

    def dismiss(self, state: SequentialState) -> SequentialState:
        return replace(
            state,
            inliers=replace(state.inliers, evidence=Cusum()),
            occupancy=replace(state.occupancy, evidence=Cusum()),
        )

    def _verdict(
        self, inliers: InlierRateState, occupancy: Cusum, batch: BatchInliers, armed: bool
    ) -> Verdict:
        sums = {INLIERS: inliers.evidence, OCCUPANCY: occupancy}
        speaker = max(sums, key=lambda name: sums[name].value)
        loudest = sums[speaker]
        level = Level.NORMAL
        if loudest.value > self.threshold:
            level = Level.BOUNDARY
        elif loudest.value > self.suspicion * self.threshold:
            level = Level.WARNING
        known = inliers.scores.weight > 0
        return Verdict(
            level=level,
            statistics={name: total.value for name, total in sums.items()},
            thresholds=dict.fromkeys(sums, self.threshold),
            armed=armed,
            inlier_rate=batch.rate,
            inlier_rate_mean=inliers.inliers.mean if known else None,
            change_samples=max(batch.samples, loudest.samples),
            speaker=speaker,
            evidence={
                "log_likelihood_before": inliers.scores.mean if known else batch.mean,
                "log_likelihood_now": batch.mean,
            },
        )
