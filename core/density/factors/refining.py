"""The second stage of scoring in two stages: the likeliest few components of samples, exactly.

Of every sample the likeliest few are scored first. By how much their estimates were too low is by
how much others' may be: whatever might then still be heard is scored, too. Every sample is dealt
with by itself, so that what is said of it does not depend on the others; samples of a component
follow each other only because its parameters are at hand then.

Throughout: N samples, D features, K components, L factors.
"""

from __future__ import annotations

import numpy as np

from core.compiled.loops import Array, vectorised

FIRST = 4
"""Components of each sample that are scored exactly first ..."""

MOST = 64
"""... and more of them at most."""

Exact = tuple[Array, Array, Array, Array, Array, Array]
"""Peaks (K,), means and precisions (K, D), whiteners (K, L, D), C^-1 (K, L, L) and loadings
(K, D, L) of a part, all float32: log-joint values at the means, up to the weights' constant, and
what leads from there to those of samples."""


@vectorised
def pick(places: Array, values: Array, row: Array, least: float) -> None:
    """Fills `places`, int64, with the largest numbers of a row from `least` on, largest first.

    Arguments:
        values: Becomes these numbers, as long as `places`; float32.
    """
    most = len(places)
    for j in range(most):
        places[j], values[j] = -1, -np.inf
    for k in range(len(row)):
        value = row[k]
        if value >= least and value > values[most - 1]:
            place = most - 1
            while place > 0 and values[place - 1] < value:
                values[place], places[place] = values[place - 1], places[place - 1]
                place -= 1
            values[place], places[place] = value, k


@vectorised
def by_component(order: Array, starts: Array, places: Array) -> None:
    """Fills `order` with the rows of `places` in which each component is, one after the other.

    Arguments:
        order: With shape (N * M,), int64.
        starts: Becomes where those of each component begin, with shape (K + 1,), int64.
        places: Components of each row, -1 for none, with shape (N, M), int64.
    """
    starts[:] = 0
    for i in range(len(places)):
        for k in places[i]:
            if k >= 0:
                starts[k + 1] += 1
    for k in range(len(starts) - 1):
        starts[k + 1] += starts[k]
    filled = starts.copy()
    for i in range(len(places)):
        for k in places[i]:
            if k >= 0:
                order[filled[k]] = i
                filled[k] += 1


@vectorised
def shortlist(order: Array, starts: Array, places: Array, values: Array, joint: Array) -> None:
    """Lists the samples of each component: those to which it is among the likeliest few.

    Arguments:
        order: Of `by_component`, for M = `FIRST`, like `starts`.
        places: Becomes these components, with shape (N, M), int64.
        values: Becomes their estimates, with shape (N, M), float32.
        joint: Estimates, with shape (N, K), float32.
    """
    for i in range(len(joint)):
        pick(places[i], values[i], joint[i], -np.inf)
    by_component(order, starts, places)


@vectorised
def longlist(
    order: Array, starts: Array, places: Array, values: Array, joint: Array, gap: float
) -> None:
    """Lists the samples of each component that may be heard beside the likeliest few.

    Arguments:
        order: Of `by_component`, for M = `MOST`, like `starts`.
        places: Of `shortlist`, with `values`.
        joint: Estimates, but for the components of `places`, with shape (N, K), float32.
        gap: Nats below the best at which a component is not heard any more.
    """
    n = len(joint)
    more = np.empty((n, MOST), np.int64)
    found = np.empty(MOST, np.float32)
    row = np.empty(joint.shape[1], np.float32)
    for i in range(n):
        best, short = np.float32(-np.inf), np.float32(0)
        row[:] = joint[i]
        for j in range(FIRST):
            k = places[i, j]
            if k >= 0:
                best = max(best, joint[i, k])
                short = max(short, joint[i, k] - values[i, j])
                row[k] = -np.inf
        pick(more[i], found, row, float(best - short) - gap)
    by_component(order, starts, more)


@vectorised
def refine(joint: Array, order: Array, starts: Array, first: int, x: Array, exact: Exact) -> None:
    """Overwrites estimates with exact log-joint values, for the samples of each component.

    Arguments:
        joint: With shape (N, K of all parts), float32.
        order: Of `by_component`, for all parts; likewise:
        starts: Where the samples of each component begin.
        first: The first component of the part.
        x: Samples, with shape (N, D), float32.
        exact: Of the part.
    """
    peaks, means, precisions, whitener, _, _ = exact
    k, n_factors, d = whitener.shape
    away = np.empty(d, np.float32)
    for one in range(k):
        mean, precision, own = means[one], precisions[one], whitener[one]
        for place in range(starts[first + one], starts[first + one + 1]):
            row = x[order[place]]
            # Filled in a loop of its own: in one that also sums, the compiler goes by where arrays
            # lie whether it takes several at a time, and last bits of sums with it.
            for j in range(d):
                away[j] = row[j] - mean[j]
            apart = np.float32(0)
            for j in range(d):
                apart += away[j] * away[j] * precision[j]
            explained = np.float32(0)
            for factor in range(n_factors):
                direction = own[factor]
                u = np.float32(0)
                for j in range(d):
                    u += direction[j] * away[j]
                explained += u * u
            joint[order[place], first + one] = peaks[one] + np.float32(0.5) * (explained - apart)


@vectorised
def fit(
    stretch: Array,
    rest: Array,
    order: Array,
    starts: Array,
    first: int,
    x: Array,
    exact: Exact,
) -> None:
    """Fills the squared length of E[z | x], and of what the factors leave of x, both (N,), float32.

    Arguments:
        order: Of `by_component`, for the one component of each sample; likewise:
        starts: Where the samples of each component begin.
        first: The first component of the part.
        x: Samples, with shape (N, D), float32.
        exact: Of the part.
    """
    _, means, _, whitener, spread, loadings = exact
    k, n_factors, d = whitener.shape
    away, u = np.empty(d, np.float32), np.empty(n_factors, np.float32)
    latent = np.empty(n_factors, np.float32)
    for one in range(k):
        mean, own = means[one], whitener[one]
        for place in range(starts[first + one], starts[first + one + 1]):
            i = order[place]
            row = x[i]
            for j in range(d):
                away[j] = row[j] - mean[j]
            for factor in range(n_factors):
                direction, seen = own[factor], np.float32(0)
                for j in range(d):
                    seen += direction[j] * away[j]
                u[factor] = seen
            length = np.float32(0)
            for factor in range(n_factors):
                value = np.float32(0)
                for other in range(n_factors):
                    value += u[other] * spread[one, other, factor]  # E[z] = C^-T u
                latent[factor] = value
                length += value * value
            outside = np.float32(0)
            for j in range(d):
                explained, own_loadings = np.float32(0), loadings[one, j]
                for factor in range(n_factors):
                    explained += own_loadings[factor] * latent[factor]
                left = away[j] - explained
                outside += left * left
            stretch[i], rest[i] = length, outside
