"""Components with what they stand for: how many samples, and of which classes.

A `Components` is the currency of learning in preset `flat`: seeding makes them,
stepwise EM moves them, merging reduces them, and the mixture that is served is read
off them. Values throughout: every method returns new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.density.mixture import Mixture, Moments, means_and_variances
from core.density.owned import NO_CLASS, Owned, ownership


@dataclass(frozen=True, eq=False)
class Components(Owned):
    """K diagonal Gaussians, each standing for some number of samples.

    Arguments:
        variances: Raw, without a floor, with shape (K, D), not negative.
    """

    variances: Tensor

    @classmethod
    def none(cls, n_features: int, n_classes: int, device: torch.device) -> Components:
        """No component at all, K = 0."""
        nothing = torch.zeros(0, n_features, device=device)
        return cls.of_owner(Moments(nothing.sum(-1), nothing, nothing), NO_CLASS, n_classes)

    @classmethod
    def of_owner(cls, sums: Moments, owner: int, n_classes: int) -> Components:
        """Components from the moments of one owner's samples."""
        means, variances = means_and_variances(sums, floor=0.0)
        return cls(**ownership(sums.mass, owner, n_classes), means=means, variances=variances)

    @cached_property
    def second_moments(self) -> Tensor:
        """E[x^2] of each component, with shape (K, D)."""
        return self.means.square() + self.variances

    def moments(self) -> Moments:
        """The sums over samples that these components stand for."""
        mass = self.mass[:, None]
        return Moments(self.mass, mass * self.means, mass * self.second_moments)

    def mixture(self, floor: float) -> Mixture:
        """The mixture that scores samples.

        Arguments:
            floor: Smallest variance. Raw variances of pixels that never vary would let a
                single stray pixel decide; docs/benchmarks.md shows what the floor is worth.
        """
        # A float32 sum of many masses is exact enough: only ratios matter.
        log_weights = (self.mass / self.mass.sum()).log()
        return Mixture(log_weights, self.means, self.variances.clamp_min(floor).rsqrt())
