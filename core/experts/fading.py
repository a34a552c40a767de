"""How what was told fades: by a third after a horizon of samples.

Throughout: H horizons, N samples, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST = 3.0
"""Samples of a class whose sums are kept beyond its sub-task: fewer are no more than a sample."""

AT_HOME = 0.25
"""Part of an even share of what an expert remembers that makes a class one it knows."""


def ageing(horizons: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """What is left of earlier samples, with shape (H,), and what N newer ones count, (H, N).

    The same however a stream is cut into batches.

    Arguments:
        horizons: With shape (H,), float64; infinite for what never fades.
        n: N.
    """
    ages = torch.arange(n - 1, -1, -1, dtype=torch.float64)
    return (-n / horizons).exp(), (-ages / horizons[:, None]).exp()


def known(mass: Tensor) -> Tensor:
    """Which classes have come within each horizon, (H, C), bool.

    Arguments:
        mass: Faded samples of each class, with shape (H, C).
    """
    shown = mass > 0
    return shown & (mass * shown.sum(-1, keepdim=True) >= AT_HOME * mass.sum(-1, keepdim=True))


def few(mass: Tensor) -> Tensor:
    """Of which classes too little came within each horizon to be kept for long, (H, C), bool."""
    return mass < FEWEST
