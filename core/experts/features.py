"""Random cosine features: a linear function of them is nearly any smooth function of a sample.

Rahimi and Recht, Random Features for Large-Scale Kernel Machines, 2007. A cosine along a random
direction stands for an isotropic kernel. In tables few features often decide: so some cosines are
of two features, some of all.

Throughout: N samples, D features, P cosines and what goes with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

AMPLITUDE = 3.0
"""Deviations of all cosines together, against a ridge of one."""

PAIRS = 70
PAIR_SCALES = (0.7, 1.5, 3.0, 6.0)
FULL = 130
FULL_SCALES = (1.0, 1.5, 2.0)
"""Cosines of two features, and of all, with the deviations of their frequencies."""

REACH = 6.0
"""Deviations at which the linear part is cut off: one extreme value must not bend it."""


@dataclass(frozen=True, eq=False)
class Cosines:
    """A fixed map from samples to features for least squares.

    Arguments:
        directions: With shape (D, F), float64.
        phases: With shape (F,), float64.
    """

    directions: Tensor
    phases: Tensor

    @property
    def size(self) -> int:
        """P: the cosines, the sample itself, and a constant."""
        return len(self.phases) + len(self.directions) + 1

    def of(self, x: Tensor) -> Tensor:
        """Features of samples, with shape (N, P), float64.

        Arguments:
            x: Standardised samples, with shape (N, D), float64.
        """
        scale = AMPLITUDE * math.sqrt(2 / max(1, len(self.phases)))
        waves = torch.addmm(self.phases, x, self.directions).cos_().mul_(scale)
        return torch.cat([waves, x.clamp(-REACH, REACH), x.new_ones(len(x), 1)], 1)


@lru_cache(maxsize=8)
def joint(n_features: int) -> Cosines:
    """Cosines along random directions of two features, and of all; the same ones for one D."""
    generator = torch.Generator().manual_seed(n_features)
    directions = torch.zeros(n_features, PAIRS + FULL, dtype=torch.float64)
    together = min(2, n_features)
    for one in range(PAIRS):
        pair = torch.randperm(n_features, generator=generator)[:together]
        spread = PAIR_SCALES[one % len(PAIR_SCALES)] / math.sqrt(together)
        directions[pair, one] = _normal(together, generator) * spread
    for one in range(FULL):
        spread = FULL_SCALES[one % len(FULL_SCALES)] / math.sqrt(n_features)
        directions[:, PAIRS + one] = _normal(n_features, generator) * spread
    turns = torch.rand(PAIRS + FULL, generator=generator, dtype=torch.float64)
    return Cosines(directions, turns * (2 * math.pi))


def _normal(n: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, generator=generator, dtype=torch.float64)
