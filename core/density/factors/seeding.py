"""The first factor analysers of a group of samples: k-means, then PCA of every cluster.

EM (`core.density.factor_mixture`) goes on from here. No mean may be a stored sample: a cluster
of few samples is dissolved among the others (docs/method.md, "Nothing is stored").
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.diagonal.seeding import k_means_plus_plus, without_spread
from core.density.mixture import Moments

K_MEANS_ROUNDS = 5

FEWEST_SAMPLES = 10
"""A cluster of fewer samples is dissolved, unless it is the largest."""

FEWEST_COPIES = 40
"""So is one of fewer samples that are all the same: a sample that was sent that often. What more
samples have in common is a fact about the data."""

PRIOR_SAMPLES = 10.0
"""Samples' worth of belief that noise is half of what varies, and doubt in loadings."""

INITIAL_LOADING = 1e-2
"""Size of factors that the samples are too few to show, in deviations: EM can grow a small
loading, but not one that is zero."""


def seed_analysers(
    x: Tensor,
    k: int,
    n_factors: int,
    generator: torch.Generator,
    beside: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Place at most k factor analysers.

    Arguments:
        x: Samples, with shape (N, D), N >= 1.
        k: Most components, at least 1.
        n_factors: L.
        generator: On the CPU.
        beside: Means that there are already, with shape (M, D): what is nearest to one of them
            is left to it.

    Returns:
        The masses, with shape (K,), and means, loadings and raw noise, with shapes
        (K, D), (K, D, L) and (K, D).
    """
    there = x[:0] if beside is None else beside
    which = _clusters(x, max(1, min(k, len(x))), there, generator)
    spread = x.var(0, correction=0)
    x, which = x[which >= 0], which[which >= 0]
    counts = which.bincount().tolist()
    order = which.argsort(stable=True)
    parts = [
        _analysed(x[rows], n_factors, spread, generator)
        for rows in torch.split(order, counts)
        if len(rows)
    ]
    if not parts:
        none = x.new_zeros(0, x.shape[1])
        return x.new_zeros(0), (none, x.new_zeros(0, x.shape[1], n_factors), none)
    means, loadings, noise = (torch.stack(part) for part in zip(*parts, strict=True))
    mass = x.new_tensor([count for count in counts if count])
    return mass, (means, loadings, noise)


def are_copies(sums: Moments) -> Tensor:
    """Components whose samples are one sample, sent too seldom to be a fact; (K,), bool."""
    return without_spread(sums) & (sums.mass < FEWEST_COPIES)


def _clusters(x: Tensor, k: int, there: Tensor, generator: torch.Generator) -> Tensor:
    """k-means beside centres that stay: the new cluster of every sample, or -1; none is tiny."""
    new = x[k_means_plus_plus(x, k, generator, there)]
    for _ in range(K_MEANS_ROUNDS):
        which = _nearest(x, torch.cat([there, new])) - len(there)
        sums = torch.zeros_like(new).index_add_(0, which[which >= 0], x[which >= 0])
        counts = which[which >= 0].bincount(minlength=len(new))
        new = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], new)
    which = _nearest(x, torch.cat([there, new])) - len(there)
    counts = which[which >= 0].bincount(minlength=len(new))
    mine, rows = which[which >= 0], x[which >= 0]
    gathered = Moments(
        counts.to(x.dtype),
        torch.zeros_like(new).index_add_(0, mine, rows),
        torch.zeros_like(new).index_add_(0, mine, rows.square()),
    )
    kept = (counts >= FEWEST_SAMPLES) & ~are_copies(gathered)
    if not len(there) and not bool(kept.any()):
        kept[counts.argmax()] = True
    return _nearest(x, torch.cat([there, new[kept]])) - len(there)


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre of every sample; |x|^2 is the same for all of them."""
    return torch.addmm(centres.square().sum(-1), x, centres.T, alpha=-2).argmin(-1)


def _analysed(
    x: Tensor, n_factors: int, spread: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilistic PCA of one cluster (Tipping & Bishop 1999): mean, loadings and noise.

    Arguments:
        spread: Variance of each feature in all clusters, with shape (D,).
    """
    n, d = x.shape
    mean = x.mean(0)
    centred = x - mean
    values, directions = principal(centred, min(n_factors, n - 1))
    left = (centred.square().sum() / n - values.sum()).clamp_min(0) / d
    # The fewer the samples, the more of their directions is chance.
    sizes = ((values - left).clamp_min(0) * (n / (n + PRIOR_SAMPLES / 2))).sqrt()
    found = directions * sizes
    missing = n_factors - found.shape[1]
    sparks = (
        torch.randn(d, missing, generator=generator).to(x)
        * spread.sqrt()[:, None]
        * INITIAL_LOADING
    )
    explained = found.square().sum(-1)
    noise = (centred.square().mean(0) - explained).clamp_min(0)
    noise = (n * noise + PRIOR_SAMPLES * 0.5 * spread) / (n + PRIOR_SAMPLES)
    return mean, torch.cat([found, sparks], 1), noise


def principal(centred: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Largest variances, with shape (Q,), and their directions, with shape (D, Q); Q <= most.

    Arguments:
        centred: Samples without their mean, with shape (N, D).
    """
    n, d = centred.shape
    if most <= 0:
        return centred.new_zeros(0), centred.new_zeros(d, 0)
    # Fewer samples than features: the small matrix has the same variances.
    gram = (centred.T @ centred if n > d else centred @ centred.T) / n
    # In double: in single precision the solver gives up where many directions never vary.
    values, vectors = (part.to(gram) for part in torch.linalg.eigh(gram.double()))
    values, vectors = values[-most:].clamp_min(0), vectors[:, -most:]
    if n > d:
        return values, vectors
    directions = centred.T @ vectors
    lengths = (n * values).sqrt()
    return values, directions / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
