"""A detector of your own, in a file of its own: DDM on prequential errors.

Drift Detection Method (Gama, Medas, Castillo and Rodrigues, Learning with Drift Detection, 2004):
the rate of errors p and its deviation s = sqrt(p (1 - p) / n) are compared with the lowest p + s so
far; two deviations above that are a warning, three a boundary. It needs labels, and finds what
makes the model err, and nothing else. `gmr.checks.check_detector(make)` tries it.

Offer it to the service by an entry point of your package, and choose it by its name:

    [project.entry-points."gmr.detectors"]
    ddm = "ddm:make"

    GMR_DETECTOR=ddm gmr serve
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.drift.detector import Arming, Cause, Level, Observation, Verdict
from gmr import EngineConfig


@dataclass(frozen=True)
class DDMState:
    """Labelled samples of the sub-task, how many were called wrongly, and the lowest p + s."""

    samples: int = 0
    errors: int = 0
    lowest: float = math.inf
    deviation: float = 0.0


@dataclass(frozen=True)
class DDM:
    """Reports a boundary when the model errs more often than it did at its best.

    Arguments:
        warm_up: Labelled samples after a boundary before it may speak.
    """

    warm_up: int = 1000

    @property
    def state_type(self) -> type[DDMState]:
        return DDMState

    @property
    def name(self) -> str:
        return "ddm"

    def start(self) -> DDMState:
        return DDMState()

    def observe(
        self, state: DDMState, seen: Observation, converged: bool
    ) -> tuple[DDMState, Verdict]:
        wrong = self._wrong(seen)
        samples, errors = state.samples + len(wrong), state.errors + int(wrong.sum())
        rate = errors / samples if samples else 0.0
        deviation = math.sqrt(rate * (1 - rate) / samples) if samples else 0.0
        armed = samples >= self.warm_up
        lowest, least = state.lowest, state.deviation
        if armed and rate + deviation < lowest:
            lowest, least = rate + deviation, deviation
        # How many deviations the errors are above their best.
        height = (rate + deviation - lowest) / least if armed and least > 0 else 0.0
        level = Level.ALARM if height > 3 else Level.WARNING if height > 2 else Level.NORMAL
        verdict = Verdict(
            level=level,
            names=("errors",),
            values=(height,),
            threshold=3.0,
            armed=armed,
            inlier_rate=None,
            inlier_rate_mean=None,
            change_samples=len(seen.log_likelihoods),
            signal="errors",
            cause=Cause.UNKNOWN,
        )
        return DDMState(samples, errors, lowest, least), verdict

    def _wrong(self, seen: Observation) -> Tensor:
        """Which labelled samples the model of before calls by another name, bool."""
        if seen.codes is None:
            return torch.zeros(0, dtype=torch.bool)
        version = seen.version(seen.since_boundary)
        x = version.standardiser.apply(seen.features)
        joint = version.model.density.score(x).joint
        called = version.model.class_probabilities(x, joint)
        if not called.shape[1]:
            return torch.zeros(0, dtype=torch.bool)
        labelled = seen.codes >= 0
        return called.argmax(-1).cpu()[labelled] != seen.codes[labelled]

    def arming(self, state: DDMState, since_boundary: int, converged: bool) -> Arming:
        return Arming.after(max(0, self.warm_up - state.samples))

    def typical(self, state: DDMState, x: Tensor) -> Tensor:
        return torch.ones(len(x), dtype=torch.bool)

    def accept(self, state: DDMState) -> DDMState:
        return self.start()

    def dismiss(self, state: DDMState) -> DDMState:
        return replace(state, lowest=math.inf)


def make(config: EngineConfig) -> DDM:
    """The detector for an engine's settings."""
    return DDM(config.warm_up)
