"""Sampled replay where room is made: what components stand for, drawn and learned anew.

The presets `flat` and `mfa` make room by merging components, which needs no sample
(analytic replay). Where the settings ask for `constant` or `proportional` replay, typical
samples of the components that are to be merged are drawn instead, and the merged ones are
fitted to them by EM.

Throughout: N samples, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS
from core.model.model import Model
from core.model.replay import typical_threshold
from core.model.sampling import draw

UNIT = 1000
"""Samples that constant replay draws of an owner, times `replay_factor`."""

MOST = 20_000
"""Samples drawn of an owner at most, whatever its components stand for."""

PILOT = 200
"""Samples drawn to know how typical an owner's samples are in the mean."""

LEAST_PROBABILITY = 0.5
"""What the model itself must give an owner's class for a sample to be learned as one of it."""


@dataclass(frozen=True)
class SampledReplay:
    """Draws what is learned again.

    Arguments:
        mode: "analytic" draws nothing; "constant" as many whatever stands behind them,
            "proportional" one sample for each that the components stand for.
        factor: kappa, samples of constant replay in units of `UNIT`.
        c: Deviations of the log-likelihood below the mean at which a draw is untypical.
    """

    mode: str
    factor: float
    c: float

    def samples(
        self, model: Model, owner: int, mass: float, generator: torch.Generator
    ) -> Tensor | None:
        """Typical samples of one owner, with shape (N, D); None where none are to be drawn.

        Arguments:
            model: The whole one for a class, so that what it would call another is rejected;
                the owner's components alone for `NO_CLASS`.
            mass: Samples that the owner's components stand for.
            generator: On the CPU.
        """
        wanted = mass if self.mode == "proportional" else self.factor * UNIT
        n = min(round(wanted), MOST)
        if self.mode == "analytic" or n < 1:
            return None

        def codes(size: int) -> Tensor | None:
            return None if owner == NO_CLASS else torch.full((size,), owner)

        pilot = draw(model, PILOT, generator, codes(PILOT), max_draws=1).log_likelihood
        threshold = typical_threshold(float(pilot.mean()), float(pilot.std()), self.c)
        sure = 0.0 if owner == NO_CLASS else LEAST_PROBABILITY
        return draw(model, n, generator, codes(n), threshold=threshold, least_probability=sure).x
