"""Factor analysers with what they stand for: how many samples, and of which classes.

The counterpart of `core.density.diagonal.components` for preset `mfa`. Values throughout: every
method returns new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from core.density.diagonal.components import NO_CLASS
from core.density.factor_mixture import FactorMixture


@dataclass(frozen=True, eq=False)
class Analysers:
    """K factor analysers, each standing for some number of samples.

    Arguments:
        mass: Samples that each stands for, with shape (K,), positive.
        means: With shape (K, D).
        loadings: With shape (K, D, L).
        noise: Raw variances, without a floor, with shape (K, D), not negative.
        owner: Class whose samples each was learned from, or `NO_CLASS`; shape (K,), int64.
        votes: Labelled samples per class that fell on each, with shape (K, C).
    """

    mass: Tensor
    means: Tensor
    loadings: Tensor
    noise: Tensor
    owner: Tensor
    votes: Tensor

    def __len__(self) -> int:
        return self.mass.shape[0]

    @classmethod
    def none(
        cls, n_features: int, n_factors: int, n_classes: int, device: torch.device
    ) -> Analysers:
        """No component at all, K = 0."""
        return cls(
            torch.zeros(0, device=device),
            torch.zeros(0, n_features, device=device),
            torch.zeros(0, n_features, n_factors, device=device),
            torch.zeros(0, n_features, device=device),
            torch.zeros(0, dtype=torch.int64, device=device),
            torch.zeros(0, n_classes, device=device),
        )

    @classmethod
    def of_owner(
        cls,
        mass: Tensor,
        parameters: tuple[Tensor, Tensor, Tensor],
        owner: int,
        n_classes: int,
    ) -> Analysers:
        """Components of one owner from their masses and their means, loadings and noise."""
        votes = mass.new_zeros(len(mass), n_classes)
        if owner != NO_CLASS:
            votes[:, owner] = mass
        owners = torch.full((len(mass),), owner, dtype=torch.int64, device=mass.device)
        return cls(mass, *parameters, owners, votes)

    @classmethod
    def concatenated(cls, parts: Sequence[Analysers]) -> Analysers:
        """All parts, in order. There must be at least one."""
        filled = [part for part in parts if len(part)]
        if len(filled) <= 1:
            return filled[0] if filled else parts[0]
        return cls(
            *(torch.cat([getattr(part, field.name) for part in filled]) for field in fields(cls))
        )

    def select(self, rows: Tensor) -> Analysers:
        """The named components, by index or mask."""
        return Analysers(*(getattr(self, field.name)[rows] for field in fields(self)))

    def mixture(self, total: float | Tensor | None = None) -> FactorMixture:
        """As a mixture with raw noise.

        Arguments:
            total: Mass of all components of which these are a part; None: these are all.
        """
        whole = self.mass.sum() if total is None else total
        return FactorMixture((self.mass / whole).log(), self.means, self.loadings, self.noise)
