"""Fewer factor analysers for the same samples: analytic replay, in closed form.

What a group of components stands for has a mean and a covariance that follow from theirs
without drawing a sample:

    mu = sum_k w_k mu_k,    Sigma = sum_k w_k (psi_k + A_k A_k^T + (mu_k - mu) (mu_k - mu)^T)

The low-rank part has more than L directions; the L that stand out most from the noise
become factors, what the others explain of each feature becomes noise. So the mean and the
variance of every feature are kept exactly, and the strongest covariances.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from core.density.diagonal.merging import ward
from core.density.factors.components import Analysers
from core.density.factors.seeding import principal


def merged(old: Analysers, k: int, floor: float, n_factors: int | None = None) -> Analysers:
    """At most k components for what more of them stand for.

    Arguments:
        old: All of one owner.
        k: Most components to return, at least 1.
        floor: Smallest noise variance while scoring: less than that does not stand out.
        n_factors: Factors that each shall have, at most as many as before; None: as many.
    """
    n_factors = old.loadings.shape[-1] if n_factors is None else n_factors
    if len(old) <= k and n_factors == old.loadings.shape[-1]:
        return old
    shares = ward(old.mass, old.means, min(k, len(old)))
    groups = [rows.nonzero()[:, 0] for rows in shares.T.bool()]
    usual = old.noise.clamp_min(floor).mean(0)
    parts = [_together(old, rows, usual, n_factors) for rows in groups]
    means, loadings, noise = (torch.stack(part) for part in zip(*parts, strict=True))
    return replace(
        old,
        mass=shares.T @ old.mass,
        means=means,
        loadings=loadings,
        noise=noise,
        owner=old.owner[:1].expand(len(groups)).clone(),
        votes=shares.T @ old.votes,
        vote_baseline=shares.T @ old.vote_baseline,
    )


def _together(
    old: Analysers, rows: Tensor, usual: Tensor, n_factors: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, loadings and noise of one component for several.

    Arguments:
        rows: Which.
        usual: Noise to measure directions by, with shape (D,), positive.
    """
    if len(rows) == 1 and n_factors == old.loadings.shape[-1]:
        one = int(rows)
        return old.means[one], old.loadings[one], old.noise[one]
    weights = old.mass[rows] / old.mass[rows].sum()
    mean = weights @ old.means[rows]
    roots = weights.sqrt()
    away = (roots[:, None] * (old.means[rows] - mean)).T  # (D, M)
    spokes = (roots[:, None, None] * old.loadings[rows]).movedim(0, 1).flatten(1)  # (D, M * L)
    directions = torch.cat([spokes, away], 1)
    deviation = usual.sqrt()[:, None]
    seen = (directions / deviation).T
    values, axes = principal(seen, n_factors)
    loadings = axes * (values * len(seen)).sqrt() * deviation
    lost = (directions.square().sum(-1) - loadings.square().sum(-1)).clamp_min(0)
    return mean, loadings, weights @ old.noise[rows] + lost
