"""The first factor analysers of a group of samples: k-means, then PCA of every cluster.

EM (`core.density.factor_mixture`) goes on from here. No mean may be a stored sample: a cluster
of few samples is dissolved among the others (docs/method.md, "Nothing is stored").
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.blocks import one_by_one
from core.density.diagonal.seeding import k_means_plus_plus, without_spread
from core.density.grouping import Grouping
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

POWER_ROUNDS = 4
"""Rounds by which the directions of all clusters are found at once. EM turns them further."""

DEPENDENT = 1e-10
"""Share of a cluster's variance that is added to that of each direction, so that directions can be
told apart where samples vary in fewer."""


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
    which, k = _clusters(x, max(1, min(k, len(x))), there, generator)
    spread = x.var(0, correction=0)
    if not one_by_one(x):
        return _analysed_at_once(x, which, k, n_factors, spread, generator)
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


def _clusters(x: Tensor, k: int, there: Tensor, generator: torch.Generator) -> tuple[Tensor, int]:
    """k-means beside centres that stay; no cluster is tiny before samples are handed on.

    Returns:
        The new cluster of every sample, or -1; and how many there are, perhaps empty ones.
    """
    new = x[k_means_plus_plus(x, k, generator, there)]
    for _ in range(K_MEANS_ROUNDS):
        counts, sums, _ = _gathered(x, _nearest(x, there, new), len(new), squares=False)
        new = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], new)
    gathered = _gathered(x, _nearest(x, there, new), len(new))
    counts = gathered.mass
    kept = (counts >= FEWEST_SAMPLES) & ~are_copies(gathered)
    if not len(there) and not bool(kept.any()):
        kept[counts.argmax()] = True
    new = new[kept]
    return _nearest(x, there, new), len(new)


def _gathered(x: Tensor, which: Tensor, k: int, squares: bool = True) -> Moments:
    """Counts of clusters and sums of their samples, and of their squares where these are wanted.

    Arguments:
        which: The cluster of each sample, with shape (N,), or -1.
        k: Clusters.
    """
    if one_by_one(x):
        which, x = which[which >= 0], x[which >= 0]
    clusters = Grouping(which, k)
    sums = clusters.summed(x)
    second = clusters.summed(x.square()) if squares else sums
    return Moments(clusters.summed(x.new_ones(len(x))), sums, second)


def _nearest(x: Tensor, there: Tensor, new: Tensor) -> Tensor:
    """The nearest new centre of every sample, or below 0 where one that is there is nearer."""
    centres = torch.cat([there, new])
    # |x|^2 is the same for all of them.
    return torch.addmm(centres.square().sum(-1), x, centres.T, alpha=-2).argmin(-1) - len(there)


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


def _analysed_at_once(
    x: Tensor, which: Tensor, k: int, n_factors: int, spread: Tensor, generator: torch.Generator
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The same of all clusters, by the block power method: few operations, whatever their number.

    Halko, Martinsson and Tropp 2011, algorithm 4.4. No covariance is formed: samples are projected
    and summed up again, those of other clusters as nothing.

    Arguments:
        which: The cluster of each sample, with shape (N,), or below 0.
        k: Clusters.

    Returns:
        As `seed_analysers` does.
    """
    n, d = x.shape
    own = Grouping(which, k).members
    mass = own.sum(0)
    counts = mass.clamp_min(1)[:, None]
    mean = own.T @ x / counts
    variance = (own.T @ x.square() / counts - mean.square()).clamp_min(0)
    start = torch.randn(n_factors, d, generator=generator).to(x)

    def projected(directions: Tensor) -> Tensor:
        """Of all samples without their cluster's mean, with shape (N, K, L)."""
        seen = (x @ directions.reshape(-1, d).T).view(n, k, n_factors)
        return (seen - (directions @ mean[..., None])[..., 0]) * own[..., None]

    directions = start.expand(k, n_factors, d)
    total = variance.sum(-1)[:, None]
    for _ in range(POWER_ROUNDS if n_factors else 0):
        turned = projected(directions).reshape(n, -1).T @ x
        turned = turned.view(k, n_factors, d).double() / counts[..., None]
        directions = _orthonormal(turned).to(x)
    seen = projected(directions)
    small = seen.permute(1, 2, 0) @ seen.transpose(0, 1) / counts[..., None]
    values, vectors = (part.to(x).flip(-1) for part in torch.linalg.eigh(small.double()))
    # As many as samples can show: the largest, which come first now.
    shown = torch.arange(1, n_factors + 1, device=x.device) < mass[:, None]
    values = values.clamp_min(0) * shown
    left = (total - values.sum(-1, keepdim=True)).clamp_min(0) / d
    sizes = ((values - left).clamp_min(0) * (counts / (counts + PRIOR_SAMPLES / 2))).sqrt()
    found = directions.transpose(1, 2) @ vectors * sizes[:, None]
    sparks = start.T * spread.sqrt()[:, None] * INITIAL_LOADING
    loadings = torch.where(shown[:, None], found, sparks)
    explained = found.square().sum(-1)
    noise = (variance - explained).clamp_min(0)
    noise = (counts * noise + PRIOR_SAMPLES * 0.5 * spread) / (counts + PRIOR_SAMPLES)
    filled = mass.nonzero()[:, 0]
    return mass[filled], (mean[filled], loadings[filled], noise[filled])


def _orthonormal(rows: Tensor) -> Tensor:
    """Rows of matrices (K, L, D) made orthonormal, as far as they are independent; in double."""
    gram = rows @ rows.transpose(1, 2)
    sizes = gram.diagonal(dim1=1, dim2=2)
    least = DEPENDENT * sizes.sum(-1, keepdim=True) + torch.finfo(torch.float32).tiny
    root, _ = torch.linalg.cholesky_ex(gram + torch.diag_embed(least.expand_as(sizes)))
    found: Tensor = torch.linalg.solve_triangular(root, rows, upper=False)
    return found


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
