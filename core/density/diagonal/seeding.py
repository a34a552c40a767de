"""The first components of a group of samples: k-means++, then a few rounds of EM.

No component may be a stored sample: whoever ends up with hardly any samples, or with
copies of one, is let go, because its mean would be one of them (docs/method.md, "Nothing
is stored"). What cannot be helped is one component for samples that are all the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.blocks import one_by_one
from core.density.mixture import Mixture, Moments, log_joint, moments, responsibilities

EM_ROUNDS = 8
CANDIDATES = 3
"""Candidates per step of greedy k-means++; more gains nothing measurable here."""

FEWEST_SAMPLES = 3.0
"""A component that stands for fewer samples than this is let go."""

FEWEST_COPIES = 10.0
"""One without any spread is let go below this: one sample that was sent several times. What
more samples have in common is a fact about the data."""

ROUNDING = 1e-5
"""Spread, relative to the mean square, that float32 sums cannot tell from none."""


def k_means_plus_plus(
    x: Tensor, k: int, generator: torch.Generator, there: Tensor | None = None
) -> Tensor:
    """Pick k spread-out samples (Arthur & Vassilvitskii 2007, greedy variant).

    Arguments:
        x: Samples, with shape (N, D), N >= 1.
        k: How many, at most N.
        there: Centres to keep away from, with shape (M, D).

    Returns:
        Indices into x, with shape (k,), int64; repeats only where samples repeat.
    """
    if not one_by_one(x):
        return _picked_without_waiting(x, k, generator, there)
    n = x.shape[0]
    norms = x.square().sum(-1)
    # (N,) squared distance to what was picked
    if there is None or not len(there):
        first = int(torch.randint(n, (1,), generator=generator))
        chosen = [first]
        nearest = (norms + norms[first] - 2 * (x @ x[first])).clamp_min(0)
    else:
        chosen = []
        away = torch.addmm(there.square().sum(-1), x, there.T, alpha=-2).amin(-1)
        nearest = (norms + away).clamp_min(0)
    for _ in range(k - len(chosen)):
        odds = nearest.cpu().double() + 1e-12  # never all zero, even when all samples are equal
        picks = torch.multinomial(odds, CANDIDATES, replacement=True, generator=generator)
        picks = picks.to(x.device)
        distances = norms[:, None] + norms[picks] - 2 * (x @ x[picks].T)
        nearer = torch.minimum(nearest[:, None], distances.clamp_min(0))
        best = int(nearer.sum(0).argmin())
        chosen.append(int(picks[best]))
        nearest = nearer[:, best]
    return torch.tensor(chosen, device=x.device)


def _picked_without_waiting(
    x: Tensor, k: int, generator: torch.Generator, there: Tensor | None
) -> Tensor:
    """The same where samples lie on a device, which nobody waits for.

    Chance is drawn beforehand, as numbers from 0 to 1, and finds its samples there.
    """
    n, norms = x.shape[0], x.square().sum(-1)
    chance = torch.rand(k, CANDIDATES, generator=generator, dtype=torch.float64).to(x.device)
    chosen = []
    if there is None or not len(there):
        chosen = [torch.randint(n, (1,), generator=generator).to(x.device)]
        there = x[chosen[0]]
    # (N,) squared distance to the nearest, less the sample's own norm
    nearest = torch.addmm(there.square().sum(-1), x, there.T, alpha=-2).amin(-1)
    for draw in chance[len(chosen) :]:
        odds = (nearest + norms).double().clamp_min(1e-12)
        # Two rows: CUDA adds up a single one in any order, and other sums find other samples.
        sums = odds.expand(2, n).cumsum(1)[0]
        picks = torch.searchsorted(sums, draw * sums[-1])
        distances = torch.addmm(norms[picks], x, x[picks].T, alpha=-2)
        nearer = torch.minimum(nearest[:, None], distances)
        best = nearer.sum(0, keepdim=True).argmin(1)
        chosen.append(picks[best])
        nearest = nearer[:, best][:, 0]
    return torch.cat(chosen)


def without_spread(sums: Moments) -> Tensor:
    """Components whose samples are all the same in float32, with shape (K,), bool."""
    mass = sums.mass.clamp_min(torch.finfo(sums.mass.dtype).tiny)[:, None]
    mean_square = (sums.second / mass).sum(-1)
    spread = mean_square - (sums.first / mass).square().sum(-1)
    return spread <= ROUNDING * mean_square


def next_to_samples(sums: Moments) -> Tensor:
    """Components whose mean is (nearly) a sample: of few samples, or copies; (K,), bool."""
    copies = without_spread(sums) & (sums.mass < FEWEST_COPIES)
    return copies | (sums.mass < FEWEST_SAMPLES)


def seed_components(
    x: Tensor, k: int, floor: float, generator: torch.Generator, rounds: int = EM_ROUNDS
) -> Moments:
    """Fit at most k components to a handful of samples.

    Arguments:
        x: Samples, with shape (N, D), N >= 1.
        k: Most components, at least 1.
        floor: Smallest variance while responsibilities are computed.
        generator: On the CPU.

    Returns:
        Moments of at most k components; their masses add up to N. With N = 1 the one
        component is the sample: the caller must not keep it.
    """
    n, d = x.shape
    squared = x.square()
    k = max(1, min(k, n))
    means = x[k_means_plus_plus(x, k, generator)]
    variances = x.new_full((k, d), floor)
    shares = x.new_full((k,), 1 / k)
    for round_left in reversed(range(rounds)):
        mixture = Mixture(shares.log(), means, variances.clamp_min(floor).rsqrt())
        sums = moments(responsibilities(log_joint(mixture, x, squared)), x, squared)
        starved = next_to_samples(sums)
        if bool(starved.all()):
            # Too few samples for more than one component.
            sums = Moments(*(part.sum(0, keepdim=True) for part in sums))
        elif bool(starved.any()):
            # Early on a starved component takes half of a large one; late it is let go, and
            # the next round hands its samples to the others.
            if round_left >= 2:
                sums = _split_largest(sums, starved, generator)
            else:
                sums = Moments(*(part[~starved] for part in sums))
        mass = sums.mass[:, None]
        means = sums.first / mass
        variances = (sums.second / mass - means.square()).clamp_min(0)
        shares = sums.mass / sums.mass.sum()
    return sums.scaled(n / sums.mass.sum())


def _split_largest(sums: Moments, starved: Tensor, generator: torch.Generator) -> Moments:
    """Put each starved component beside a large one, half a deviation away at random."""
    mass, first, second = (part.clone() for part in sums)
    places = starved.nonzero()[:, 0]
    largest = sums.mass.masked_fill(starved, 0).topk(min(len(places), int((~starved).sum())))
    for place, source in zip(places.tolist(), largest.indices.tolist(), strict=False):
        mean = first[source] / mass[source]
        variance = (second[source] / mass[source] - mean.square()).clamp_min(0)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        moved = mean + 0.5 * variance.sqrt() * noise
        half = mass[source] / 2
        first[source], second[source], mass[source] = first[source] / 2, second[source] / 2, half
        first[place], second[place] = half * moved, half * (moved.square() + variance)
        mass[place] = half
    # Any starved component without a partner keeps its few samples until the next round.
    return Moments(mass.clamp_min(torch.finfo(mass.dtype).tiny), first, second)
