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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.density.blocks import ROWS
from core.density.conformity import factor_log_peaks
from core.density.factor_mixture import FactorMixture, WhitenedForm
from core.density.factors.refining import Exact, by_component, refine
from core.density.factors.versions import kept

DIRECTIONS = 64
"""P: fewer lose some samples' best component, more cost more than they find."""

FEWEST_FEATURES = 256
FEWEST_FACTORS = 8
FEWEST_COMPONENTS = 100
"""Below any of these, scoring every component exactly costs no more."""

FEATURES_PER_NAT = 12
"""A component that is more than D over this below the best, in nats, is next to nothing to a
tempered read-out, and may be scored roughly."""

CANDIDATES = 6
"""Components that a sample may belong to in the next round of EM: nearly always one or two do."""

FEWEST_TO_CHOOSE = 16
"""Components of an owner from which on it pays to keep to these."""

GROWTH = 1.25
"""So many times as many components as when directions were chosen ask for new ones."""


def pays(n_components: int, n_features: int, n_factors: int) -> bool:
    """Whether a mixture of this size is scored faster in two stages."""
    return (
        n_components >= FEWEST_COMPONENTS
        and n_features >= FEWEST_FEATURES
        and n_factors >= FEWEST_FACTORS
    )


def keeps_to_candidates(n_components: int, n_features: int, n_factors: int) -> bool:
    """Whether rounds of EM after the first are faster by `among_likeliest`."""
    return (
        n_components >= FEWEST_TO_CHOOSE
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


class Seen(NamedTuple):
    """Components as estimates take them, those of several parts side by side."""

    constant: Tensor  # (K,)
    linear: Tensor  # (K, D)
    quadratic: Tensor  # (K, D)
    whitener: Tensor  # (L, K, P)  of the whitened form, in the directions
    offset: Tensor  # (L, K)  means whitened by it

    @classmethod
    def joined(cls, parts: Sequence[Seen]) -> Seen:
        """All of them, in order; larger products are faster ones."""
        constants, linear, quadratic, whiteners, offsets = zip(*parts, strict=True)
        return cls(
            torch.cat(constants),
            torch.cat(linear),
            torch.cat(quadratic),
            torch.cat(whiteners, 1),
            torch.cat(offsets, 1),
        )

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
        # By factor first, so that squares are added up over components side by side.
        u = torch.addmm(self.offset.flatten(), projected, self.whitener.flatten(0, 1).T, beta=-1)
        joint = u.square_().view(len(x), *self.offset.shape).sum(1).mul_(0.5)
        joint.add_(self.constant).addmm_(x, self.linear.T)
        return joint.addmm_(squared, self.quadratic.T)


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
    def seen(self) -> Seen:
        """What estimates take."""
        form, k, n_factors = self.form, self.form.n_components, self.form.n_factors
        whitener = (form.whitener @ self.directions).view(k, n_factors, -1)
        offset = (whitener @ (self.mixture.means @ self.directions)[..., None])[..., 0]
        return Seen(form.constant, form.linear, form.quadratic, whitener.transpose(0, 1), offset.T)

    def beside(self, others: Sequence[Outline]) -> Seen:
        """What estimates take of this part and of others, in order; that of the last few is kept.

        Arguments:
            others: Parts after this one, in the same directions.
        """
        parts = (self, *others)
        return kept(self, "_beside", others, lambda: Seen.joined([one.seen for one in parts]))


def exact(mixture: FactorMixture, form: WhitenedForm) -> Exact:
    """What it takes to score components one by one, as arrays that share their memory.

    Arguments:
        mixture: On the CPU, weights up to a constant.
        form: Of the same.
    """
    log_weights, means, loadings, _ = mixture
    columns = (
        log_weights + factor_log_peaks(form),
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


def among_likeliest(
    mixture: FactorMixture, form: WhitenedForm, x: Tensor, before: Tensor
) -> Tensor:
    """Log-joint values of those components only that were likeliest before, (N, K); else -inf.

    For rounds of EM, between which the few components that a sample may belong to stay the same.

    Arguments:
        mixture: On the CPU; likewise:
        form: Of the same.
        x: Samples, with shape (N, D).
        before: Log-joint values of the round before, with shape (N, K).
    """
    k = before.shape[1]
    joint = torch.full_like(before, -math.inf)
    places = before.topk(min(CANDIDATES, k), -1).indices.contiguous()
    order, starts = np.empty(places.numel(), np.int64), np.empty(k + 1, np.int64)
    by_component(order, starts, places.numpy())
    refine(joint.numpy(), order, starts, 0, x.contiguous().numpy(), exact(mixture, form))
    return joint
