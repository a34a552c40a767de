"""Micro-clusters that gather samples and are asked for the nearest: compiled loops.

Throughout: P micro-clusters at most, the first of them in use; D features, C classes, N samples.
Arrays are changed where they are, so whoever calls this has made copies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array, compiled, vectorised

FAR = np.inf
"""Squared distance to nobody."""

SOFTNESS = 0.1
"""Part of the mean squared distance of the nearest that is added to each: one that lies where a
sample lies does not decide alone."""

LEAST = 1e-9
"""Added likewise; standardised, squared."""


class MicroClusters(NamedTuple):
    """Means of samples of one class that lie together.

    Arguments:
        places: With shape (D, P), float64: a feature's values lie side by side.
        codes: Their classes, with shape (P,), int64.
        masses: Samples that each stands for, with shape (P,), float64.
        newest: The newest of these, as samples are counted, with shape (P,), int64.
    """

    places: Array
    codes: Array
    masses: Array
    newest: Array


@vectorised
def _distances(x: Array, places: Array, size: int, found: Array) -> None:
    """Squared distances of a sample (D,) to the first clusters, with shape (P,)."""
    for p in range(size):
        found[p] = 0.0
    for d in range(len(x)):
        value, own = x[d], places[d]
        for p in range(size):
            step = own[p] - value
            found[p] += step * step


@compiled
def _nearest(distances: Array, newest: Array, size: int, since: int, near: Array) -> int:
    """The nearest clusters that are new enough, the nearest first; how many there are.

    Arguments:
        distances: With shape (P,).
        since: The newest sample of a cluster is at least this one.
        near: With shape (k,), int64: what is found. The first of two that are as near.
    """
    k, n = len(near), 0
    worst = FAR
    for p in range(size):
        distance = distances[p]
        if (n == k and distance >= worst) or newest[p] < since:
            continue
        place = n if n < k else k - 1
        while place > 0 and distances[near[place - 1]] > distance:
            near[place] = near[place - 1]
            place -= 1
        near[place] = p
        n = min(n + 1, k)
        worst = distances[near[n - 1]]
    return n


@compiled
def vote(
    clusters: MicroClusters,
    size: int,
    x: Array,
    since: Array,
    neighbours: int,
    votes: Array,
) -> None:
    """What the nearest clusters say of samples; each horizon's votes sum to the neighbours.

    Arguments:
        clusters: The first ones are in use.
        size: How many.
        x: With shape (N, D), float64.
        since: From which sample on clusters are asked, with shape (H,), int64.
        neighbours: How many are asked.
        votes: With shape (H, N, C): what is found is added.
    """
    distances, near = np.empty(len(clusters.codes)), np.empty(neighbours, np.int64)
    weights = np.empty(neighbours)
    for i in range(len(x)):
        _distances(x[i], clusters.places, size, distances)
        for h in range(len(since)):
            n = _nearest(distances, clusters.newest, size, since[h], near)
            if n == 0:
                continue
            mean, total = 0.0, 0.0
            for one in range(n):
                mean += distances[near[one]] / n
            for one in range(n):
                weights[one] = clusters.masses[near[one]] / (
                    distances[near[one]] + SOFTNESS * mean + LEAST
                )
            for one in range(n):
                total += weights[one]
            for one in range(n):
                votes[h, i, clusters.codes[near[one]]] += n * weights[one] / total


@compiled
def add_masses(clusters: MicroClusters, size: int, since: Array, masses: Array) -> None:
    """Samples of each class that clusters stand for.

    Arguments:
        clusters: The first ones are in use.
        size: How many.
        since: As for `vote`.
        masses: With shape (H, C): what is found is added.
    """
    for h in range(len(since)):
        for p in range(size):
            if clusters.newest[p] >= since[h]:
                masses[h, clusters.codes[p]] += clusters.masses[p]


@compiled
def _kin(clusters: MicroClusters, size: int, asked: Array, kin: Array, costs: Array) -> None:
    """Whom each cluster could become one with, and what is lost by that.

    That is the nearest one of its class, where none of another class is nearer: -1 where one is.
    What is lost is the growth of the sum of squared distances to means (Ward, 1963).

    Arguments:
        asked: Which may, with shape (P,), bool: both of two.
        kin: With shape (P,), int64: what is found.
        costs: With shape (P,): likewise.
    """
    distances = np.empty(size)
    n_features = len(clusters.places)
    x = np.empty(n_features)
    codes, masses = clusters.codes, clusters.masses
    for p in range(size):
        kin[p], costs[p] = -1, FAR
        if not asked[p]:
            continue
        for d in range(n_features):
            x[d] = clusters.places[d, p]
        _distances(x, clusters.places, size, distances)
        own, other, who = FAR, FAR, -1
        for q in range(size):
            if codes[q] != codes[p]:
                other = min(other, distances[q])
            elif q != p and asked[q] and distances[q] < own:
                own, who = distances[q], q
        if who >= 0 and own <= other:
            kin[p] = who
            costs[p] = own * masses[p] * masses[who] / (masses[p] + masses[who])


@compiled
def _joined(clusters: MicroClusters, p: int, q: int) -> None:
    """Make p the mean of p and q."""
    masses = clusters.masses
    part = masses[q] / (masses[p] + masses[q])
    for d in range(len(clusters.places)):
        step = clusters.places[d, q] - clusters.places[d, p]
        clusters.places[d, p] += part * step
    masses[p] += masses[q]
    clusters.newest[p] = max(clusters.newest[p], clusters.newest[q])


@compiled
def packed(clusters: MicroClusters, size: int, gone: Array) -> int:
    """Let those go that are gone, (P,), bool; the others keep their order. How many are left."""
    left = 0
    for p in range(size):
        if gone[p]:
            continue
        if left < p:
            for d in range(len(clusters.places)):
                clusters.places[d, left] = clusters.places[d, p]
            clusters.codes[left] = clusters.codes[p]
            clusters.masses[left] = clusters.masses[p]
            clusters.newest[left] = clusters.newest[p]
        left += 1
    return left


@compiled
def condense(clusters: MicroClusters, size: int, asked: Array, small: float, most: int) -> int:
    """Make one of two, the cheapest first, once each; how many clusters are left.

    Arguments:
        asked: Which may be joined, with shape (P,), bool.
        small: Only those are joined of which one stands for fewer samples than this.
        most: How many are to be left: no more are joined than that takes.
    """
    kin, costs = np.empty(size, np.int64), np.empty(size)
    _kin(clusters, size, asked, kin, costs)
    gone = np.zeros(size, np.bool_)
    done = np.zeros(size, np.bool_)
    left = size
    for p in np.argsort(costs, kind="mergesort"):
        if left <= most:
            break
        q = kin[p]
        if q < 0 or done[p] or done[q]:
            continue
        if min(clusters.masses[p], clusters.masses[q]) >= small:
            continue
        first, second = min(p, q), max(p, q)
        _joined(clusters, first, second)
        done[first] = done[second] = gone[second] = True
        left -= 1
    return packed(clusters, size, gone)
