"""Factor analysers with what they stand for: how many samples, and of which classes.

The counterpart of `core.density.diagonal.components` for preset `mfa`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.density.factor_mixture import FactorMixture
from core.density.owned import NO_CLASS, Owned, ownership


@dataclass(frozen=True, eq=False)
class Analysers(Owned):
    """K factor analysers, each standing for some number of samples.

    Arguments:
        loadings: With shape (K, D, L).
        noise: Raw variances, without a floor, with shape (K, D), not negative.
    """

    loadings: Tensor
    noise: Tensor

    @classmethod
    def none(
        cls, n_features: int, n_factors: int, n_classes: int, device: torch.device
    ) -> Analysers:
        """No component at all, K = 0."""
        nothing = torch.zeros(0, n_features, device=device)
        loadings = torch.zeros(0, n_features, n_factors, device=device)
        return cls.of_owner(nothing.sum(-1), (nothing, loadings, nothing), NO_CLASS, n_classes)

    @classmethod
    def of_owner(
        cls,
        mass: Tensor,
        parameters: tuple[Tensor, Tensor, Tensor],
        owner: int,
        n_classes: int,
    ) -> Analysers:
        """Components of one owner from their masses and their means, loadings and noise."""
        means, loadings, noise = parameters
        owned = ownership(mass, owner, n_classes)
        return cls(**owned, means=means, loadings=loadings, noise=noise)

    def mixture(self, total: float | Tensor | None = None) -> FactorMixture:
        """As a mixture with raw noise.

        Arguments:
            total: Mass of all components of which these are a part; None: these are all.
        """
        whole = self.mass.sum() if total is None else total
        return FactorMixture((self.mass / whole).log(), self.means, self.loadings, self.noise)
