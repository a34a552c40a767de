"""Wide mixtures of many factor analysers, scored in two stages.

Of hundreds of components a handful matter to a sample; which they are can be told from a few
directions. So every component is first scored by its *outline*: exactly as far as its noise goes,
and by its factors as they are seen in those directions, to which samples are projected once. The
likeliest few of each sample are then scored exactly (`core.density.factors.refining`); the others,
which only tempered read-outs and margins hear, keep their estimates.

Directions are those in which the means of the components differ most. What is lost is measured in
docs/benchmarks.md; where it does not pay (few features, few components, a device other than the
CPU) every component is scored exactly.

Throughout: N samples, D features, K components, L factors, P directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.density.blocks import ROWS
from core.density.factor_mixture import FactorMixture, WhitenedForm
from core.density.factors.refining import Exact
from core.density.traits import factor_heights

DIRECTIONS = 64
"""P: fewer lose some samples' best component, more cost more than they find."""

FEWEST_FEATURES = 256
FEWEST_FACTORS = 8
FEWEST_COMPONENTS = 100
"""Below any of these, scoring every component exactly costs no more."""

FEATURES_PER_NAT = 12
"""A component that is more than D over this below the best, in nats, is next to nothing to a
tempered read-out, and may be scored roughly."""

GROWTH = 1.25
"""So many times as many components as when directions were chosen ask for new ones."""


def pays(n_components: int, n_features: int, n_factors: int) -> bool:
    """Whether a mixture of this size is scored faster in two stages."""
    return (
        n_components >= FEWEST_COMPONENTS
        and n_features >= FEWEST_FEATURES
        and n_factors >= FEWEST_FACTORS
    )


def directions_of(means: Tensor) -> Tensor:
    """Orthonormal directions in which means differ most, with shape (D, P).

    Arguments:
        means: Of all components, with shape (K, D); K above P.
    """
    away = (means - means.mean(0)).double()
    k, d = away.shape
    if k > d:
        vectors = torch.linalg.eigh(away.T @ away).eigenvectors[:, -DIRECTIONS:]
    else:
        _, vectors = torch.linalg.eigh(away @ away.T)
        vectors = torch.linalg.qr(away.T @ vectors[:, -DIRECTIONS:]).Q
    found: Tensor = vectors.to(means).contiguous()
    return found


@dataclass(frozen=True, eq=False)
class Outline:
    """Components as they are seen in a few directions.

    Arguments:
        mixture: Of K components, weights up to a constant.
        form: Of the same, for scoring.
        directions: Orthonormal, with shape (D, P).
    """

    mixture: FactorMixture
    form: WhitenedForm
    directions: Tensor

    @cached_property
    def _seen(self) -> tuple[Tensor, Tensor]:
        """Whiteners as seen, with shape (L * K, P), and means whitened by them, (L * K,)."""
        k, n_factors = self.form.n_components, self.form.n_factors
        seen = (self.form.whitener @ self.directions).view(k, n_factors, -1)
        offset = (seen @ (self.mixture.means @ self.directions)[..., None])[..., 0]
        # By factor first, so that squares are added up over components side by side.
        return seen.transpose(0, 1).reshape(k * n_factors, -1), offset.T.reshape(-1)

    @cached_property
    def exact(self) -> Exact:
        """What it takes to score components one by one."""
        form = self.form
        log_weights, means, loadings, _ = self.mixture
        columns = (
            log_weights + factor_heights(form),
            means,
            -2 * form.quadratic,
            form.whitener.view(form.n_components, form.n_factors, means.shape[1]),
            form.spread,
            loadings,
        )
        peaks, centres, precisions, whitener, spread, factors = (
            column.contiguous().numpy() for column in columns
        )
        return peaks, centres, precisions, whitener, spread, factors

    def estimated(self, x: Tensor, squared: Tensor, projected: Tensor) -> Tensor:
        """Log-joint values up to the constant of the weights, roughly, with shape (N, K).

        Arguments:
            x: Samples, with shape (N, D).
            squared: Their squares.
            projected: Samples as they are seen in the directions, with shape (N, P).
        """
        if len(x) > ROWS:
            parts = (torch.split(one, ROWS) for one in (x, squared, projected))
            return torch.cat([self.estimated(*block) for block in zip(*parts, strict=True)])
        form = self.form
        seen, offset = self._seen
        u = torch.addmm(offset, projected, seen.T, beta=-1).square_()
        joint = u.view(len(x), form.n_factors, form.n_components).sum(1).mul_(0.5)
        return joint.add_(form.constant).addmm_(x, form.linear.T).addmm_(squared, form.quadratic.T)
