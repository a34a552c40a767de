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

NO_CLASS = -1
"""Owner of components learned from unlabelled samples."""


@dataclass(frozen=True, eq=False)
class Components:
    """K diagonal Gaussians, each standing for some number of samples.

    Arguments:
        mass: Samples that each component stands for, with shape (K,), positive.
        means: With shape (K, D).
        variances: Raw, without a floor, with shape (K, D), not negative.
        owner: Class whose samples each was learned from, or `NO_CLASS`; shape (K,), int64.
        votes: Labelled samples per class that fell on each, with shape (K, C).
    """

    mass: Tensor
    means: Tensor
    variances: Tensor
    owner: Tensor
    votes: Tensor

    def __len__(self) -> int:
        return self.mass.shape[0]

    @classmethod
    def none(cls, n_features: int, n_classes: int, device: torch.device) -> Components:
        """No component at all, K = 0."""
        return cls(
            torch.zeros(0, device=device),
            torch.zeros(0, n_features, device=device),
            torch.zeros(0, n_features, device=device),
            torch.zeros(0, dtype=torch.int64, device=device),
            torch.zeros(0, n_classes, device=device),
        )

    @classmethod
    def of_owner(cls, sums: Moments, owner: int, n_classes: int) -> Components:
        """Components from the moments of one owner's samples."""
        means, variances = means_and_variances(sums, floor=0.0)
        votes = means.new_zeros(len(means), n_classes)
        if owner != NO_CLASS:
            votes[:, owner] = sums.mass
        owners = torch.full((len(means),), owner, dtype=torch.int64, device=means.device)
        return cls(sums.mass, means, variances, owners, votes)

    @classmethod
    def concatenated(cls, parts: list[Components]) -> Components:
        """All parts, in order. There must be at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            torch.cat([part.mass for part in parts]),
            torch.cat([part.means for part in parts]),
            torch.cat([part.variances for part in parts]),
            torch.cat([part.owner for part in parts]),
            torch.cat([part.votes for part in parts]),
        )

    def select(self, rows: Tensor | slice) -> Components:
        """The named components, by index, mask or slice."""
        return Components(
            self.mass[rows],
            self.means[rows],
            self.variances[rows],
            self.owner[rows],
            self.votes[rows],
        )

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
                single stray pixel decide; docs/method.md shows what the floor is worth.
        """
        # A float32 sum of many masses is exact enough: only ratios matter.
        log_weights = (self.mass / self.mass.sum()).log()
        return Mixture(log_weights, self.means, self.variances.clamp_min(floor).rsqrt())
