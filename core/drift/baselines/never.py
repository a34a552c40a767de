"""No rule at all: boundaries are declared by hand, or there are none.

The inlier rate is still reported, against plain running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.drift.detector import Arming, Level, Observation, UnarmedReason, Verdict
from core.running import Running


@dataclass(frozen=True)
class NeverDetector:
    """Watches and never speaks.

    Arguments:
        c: Deviations below the mean at which a sample stops being an inlier.
    """

    c: float = 1.0

    @property
    def state_type(self) -> type[Running]:
        return Running

    @property
    def name(self) -> str:
        return "none"

    def start(self) -> Running:
        return Running()

    def observe(
        self, state: Running, seen: Observation, converged: bool
    ) -> tuple[Running, Verdict]:
        scores = seen.log_likelihoods.double()
        n, mean, spread = len(scores), float(scores.mean()), float(scores.var(correction=0))
        inlier_rate = None  # of the first batch there is nothing to tell it by
        if state.weight:
            limit = state.mean - self.c * state.deviation
            inlier_rate = float((scores >= limit).double().mean())
        verdict = Verdict(
            level=Level.NORMAL,
            names=("none",),
            values=(0.0,),
            threshold=0.0,
            armed=False,
            inlier_rate=inlier_rate,
            inlier_rate_mean=None,
            change_samples=n,
        )
        return state.updated(n, mean, spread), verdict

    def arming(self, state: Running, since_boundary: int, converged: bool) -> Arming:
        return Arming.unknown(UnarmedReason.NO_DETECTOR)

    def typical(self, state: Running, x: Tensor) -> Tensor:
        return torch.ones(len(x), dtype=torch.bool)

    def accept(self, state: Running) -> Running:
        return self.start()

    def dismiss(self, state: Running) -> Running:
        return state
