"""Fewer components for the same samples: analytic replay.

A frozen component is a generator whose samples have known expected moments. Instead
of drawing samples and refitting, each old component enters the E-step as one atom
with features [mu, mu^2 + var] and the weight of the samples it stands for: its
expected log-joint under a new component is the same matrix product as for a sample.
Nothing is drawn, so that no sampling noise is learned (docs/method.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from core.density.diagonal.components import Components
from core.density.mixture import Mixture, Moments, log_joint, responsibilities

EM_ROUNDS = 5

LEAST_SHARE = 1e-6
"""Of the total mass: a component that ends up with less is let go, and the others take over
what it stood for."""


def merged(old: Components, k: int, floor: float) -> Components:
    """At most k components for what more of them stand for.

    Arguments:
        old: All of one owner.
        k: Most components to return, at least 1.
        floor: Smallest variance while responsibilities are computed.
    """
    if len(old) <= k:
        return old
    sums, shares = consolidate(old.moments(), k, floor)
    fewer = Components.of_owner(sums, int(old.owner[0]), old.votes.shape[1])
    votes, vote_baseline = (shares.T @ part for part in (old.votes, old.vote_baseline))
    return replace(fewer, votes=votes, vote_baseline=vote_baseline)


def consolidate(
    atoms: Moments, k: int, floor: float, rounds: int = EM_ROUNDS
) -> tuple[Moments, Tensor]:
    """Fit k components to what more components stand for.

    Arguments:
        atoms: Moments of the old components, all masses positive.
        k: Most components to return, at least 1.
        floor: Smallest variance while responsibilities are computed.

    Returns:
        Moments of at most k components, the total mass unchanged, and the share of each
        old component that each new one takes over, with shape (K old, K new).
    """
    n_atoms = atoms.mass.shape[0]
    if n_atoms <= k:
        return atoms, torch.eye(n_atoms, dtype=atoms.mass.dtype, device=atoms.mass.device)
    shares = ward(atoms.mass, atoms.first / atoms.mass[:, None], k)
    sums = _regroup(atoms, shares)
    mean = atoms.first / atoms.mass[:, None]
    second = atoms.second / atoms.mass[:, None]
    least = LEAST_SHARE * float(atoms.mass.sum())
    while rounds > 0 or not bool((sums.mass > least).all()):
        rounds -= 1
        sums = Moments(*(part[sums.mass > least] for part in sums))
        means = sums.first / sums.mass[:, None]
        variances = (sums.second / sums.mass[:, None] - means.square()).clamp_min(floor)
        mixture = Mixture((sums.mass / sums.mass.sum()).log(), means, variances.rsqrt())
        shares = responsibilities(log_joint(mixture, mean, second))
        sums = _regroup(atoms, shares)
    return sums, shares


def _regroup(atoms: Moments, shares: Tensor) -> Moments:
    """Hand out each atom's moments by `shares` (K old, K new)."""
    return Moments(shares.T @ atoms.mass, shares.T @ atoms.first, shares.T @ atoms.second)


def ward(mass: Tensor, means: Tensor, k: int) -> Tensor:
    """Merge the pair that loses least variance until k are left (Ward 1963).

    Arguments:
        mass: Samples that each component stands for, with shape (K,), positive.
        means: With shape (K, D).
        k: How many shall be left, at least 1.

    Returns:
        Which new component each old one joins, as shares of zero and one (K old, K new).
    """
    n = mass.shape[0]
    mass, means = mass.clone(), means.clone()
    group = torch.arange(n, device=mass.device)
    alive = torch.ones(n, dtype=torch.bool, device=mass.device)
    norms = means.square().sum(-1)
    distance = (norms[:, None] + norms - 2 * means @ means.T).clamp_min(0)
    cost = distance * (mass[:, None] * mass / (mass[:, None] + mass))
    cost.fill_diagonal_(math.inf)
    for _ in range(n - k):
        keep, gone = divmod(int(cost.argmin()), n)
        together = mass[keep] + mass[gone]
        means[keep] = (mass[keep] * means[keep] + mass[gone] * means[gone]) / together
        mass[keep] = together
        alive[gone] = False
        group[group == gone] = keep
        fresh = (means - means[keep]).square().sum(-1) * (mass * together / (mass + together))
        fresh[~alive] = math.inf
        fresh[keep] = math.inf
        cost[keep], cost[:, keep] = fresh, fresh
        cost[gone], cost[:, gone] = math.inf, math.inf
    survivors = alive.nonzero()[:, 0]
    return (group[:, None] == survivors).to(mass.dtype)
