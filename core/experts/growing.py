"""Decision trees that grow and answer sample by sample: compiled loops.

Throughout: T trees, K nodes at most, L leaves at most, Q tests that a leaf tries out, C classes,
N samples, D features. Arrays are changed where they are, so whoever calls this has made copies.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array, compiled

STRENGTH = 1.0
"""Samples' worth of belief, in every node, that classes are as in its parent."""

LEAST_GAIN = 3.0
"""Nats by which a test must make the classes of a leaf's samples more probable."""

FEWEST_TO_SPLIT = 6
"""Samples of a leaf before it is asked whether a test does."""

PATIENCE = 4
"""Samples after which it is asked again."""

LAST_RESORT = 32
"""Samples after which a leaf of several classes is split though no test tells these apart: on a
board two tests together do, and neither alone."""

FEWEST_OTHERS = 3.0
"""Samples of other classes than the first that such a leaf has."""

TREE_SHARE = 0.05
TREE_DOUBT = 0.1
"""As in `core.experts.share`, among the trees of one forest."""

MOST_GROWN = 30.0
"""Log of a sample's weight at which all weights are divided by it."""

NO_STEP = 1e-9
"""Values that differ by less are the same; standardised."""


class Trees(NamedTuple):
    """Trees as arrays; the root is node 0, and children come after their parents.

    Arguments:
        features: What each node tests, with shape (T, K), int16; -1 in leaves.
        thresholds: A sample above goes to the second child, with shape (T, K), float64.
        children: The first of two nodes, or, of a leaf, its row among leaves, (T, K), int32.
        counts: Samples that came through, weighed, with shape (T, K, C), float64.
        totals: Of all classes, with shape (T, K), float64.
        sizes: Nodes in use, with shape (T,), int64; there are half as many leaves, and a half.
        tests: Features that leaves try to split by, with shape (T, L, Q), int16.
        cuts: Thresholds for these, with shape (T, L, Q), float64.
        tallies: Samples on both sides of these, with shape (T, L, Q, 2, C), float32.
        ready: Tests in use, the first ones, with shape (T, L), int64. Of the next one, where its
            feature is not below 0, the cut is a value by which the next sample draws it.
        seen: Samples of each leaf since it is one, with shape (T, L), int64.
        drawn: Random numbers so far, with shape (T,), int64.
        weights: Of each tree in its forest, with shape (T,), float64; they sum to one there.
        since: The sample that weighs one, with shape (T,), int64.
    """

    features: Array
    thresholds: Array
    children: Array
    counts: Array
    totals: Array
    sizes: Array
    tests: Array
    cuts: Array
    tallies: Array
    ready: Array
    seen: Array
    drawn: Array
    weights: Array
    since: Array


@compiled
def uniform(tree: int, number: int) -> float:
    """A random number in [0, 1), the same one for the same tree and number.

    SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014) of a
    counter.
    """
    z = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(tree + 1) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return float(z >> np.uint64(11)) / 9007199254740992.0


BULKS = np.array([count * math.log(max(1, count)) for count in range(1024)])
"""n log n of small numbers: logarithms would be most of the time that trees take."""


@compiled
def _bulk(count: int) -> float:
    return float(BULKS[count]) if count < len(BULKS) else count * math.log(count)


@compiled
def _best(tallies: Array) -> tuple[int, float]:
    """The test that makes classes the most probable, or -1, and by how many nats.

    Arguments:
        tallies: Samples on both sides of tests, with shape (tests, 2, C).
    """
    best, most = -1, -1.0
    for test in range(len(tallies)):
        lefts, rights = tallies[test, 0], tallies[test, 1]
        below, above, gain = 0, 0, 0.0
        for code in range(tallies.shape[2]):
            left, right = int(lefts[code]), int(rights[code])
            below += left
            above += right
            # Of one side only, it is the same with the test as without.
            if left > 0 and right > 0:
                gain += _bulk(left) + _bulk(right) - _bulk(left + right)
        if below < 1 or above < 1:
            continue
        gain += _bulk(below + above) - _bulk(below) - _bulk(above)
        if gain > most:
            best, most = test, gain
    return best, most


@compiled
def _others(counts: Array) -> float:
    """Samples of all classes but the most frequent one, from counts with shape (parts, C)."""
    total, most = 0.0, 0.0
    for code in range(counts.shape[1]):
        count = 0.0
        for part in range(len(counts)):
            count += counts[part, code]
        total += count
        most = max(most, count)
    return total - most


@compiled
def _begin(trees: Trees, tree: int, now: int) -> None:
    """Leave nothing but an empty root."""
    trees.features[tree] = -1
    trees.thresholds[tree] = 0
    trees.children[tree] = 0
    trees.counts[tree] = 0
    trees.totals[tree] = 0
    trees.sizes[tree] = 1
    trees.since[tree] = now
    for leaf in range(trees.seen.shape[1]):
        _search_anew(trees, tree, leaf)


@compiled
def _search_anew(trees: Trees, tree: int, leaf: int) -> None:
    trees.tests[tree, leaf] = -1
    trees.cuts[tree, leaf] = 0
    trees.tallies[tree, leaf] = 0
    trees.ready[tree, leaf] = 0
    trees.seen[tree, leaf] = 0


@compiled
def _weight(trees: Trees, tree: int, now: int, horizon: float) -> float:
    """What a sample counts.

    Weights grow, instead of sums fading: so only those are touched that a sample comes through
    (forward decay; Cormode et al., 2009).
    """
    age = (now - trees.since[tree]) / horizon
    if age > MOST_GROWN:
        kept = math.exp(-age)
        for node in range(trees.sizes[tree]):
            trees.totals[tree, node] *= kept
            for code in range(trees.counts.shape[2]):
                trees.counts[tree, node, code] *= kept
        trees.since[tree] = now
        age = 0.0
    return math.exp(age)


@compiled
def _fall(trees: Trees, tree: int, x: Array, code: int, weight: float) -> tuple[int, float]:
    """Count a sample on its way; its leaf's node, and how probable its class was before.

    Arguments:
        x: With shape (D,).
    """
    counts, totals = trees.counts[tree, :, code], trees.totals[tree]
    features, thresholds, children = (
        trees.features[tree],
        trees.thresholds[tree],
        trees.children[tree],
    )
    belief = STRENGTH * weight
    node, probability = 0, 1.0 / trees.counts.shape[2]
    while True:
        probability = (counts[node] + belief * probability) / (totals[node] + belief)
        counts[node] += weight
        totals[node] += weight
        feature = features[node]
        if feature < 0:
            return node, probability
        node = int(children[node]) + (1 if x[feature] > thresholds[node] else 0)


@compiled
def _try(trees: Trees, tree: int, leaf: int, x: Array, code: int) -> None:
    """Count a sample on either side of a leaf's tests, and draw another one.

    A cut lies between values of two samples at random. Of the first of these no more is kept
    than that value, until the second comes.

    Arguments:
        x: With shape (D,).
    """
    tests, cuts = trees.tests[tree, leaf], trees.cuts[tree, leaf]
    tallies = trees.tallies[tree, leaf, :, :, code]
    trees.seen[tree, leaf] += 1
    ready = trees.ready[tree, leaf]
    for test in range(ready):
        tallies[test, 1 if x[tests[test]] > cuts[test] else 0] += 1
    if ready == len(tests):
        return
    if tests[ready] >= 0:
        step = x[tests[ready]] - cuts[ready]
        if abs(step) > NO_STEP:
            trees.drawn[tree] += 1
            cuts[ready] += step * uniform(tree, trees.drawn[tree])
            ready += 1
            trees.ready[tree, leaf] = ready
            if ready == len(tests):
                return
    trees.drawn[tree] += 1
    tests[ready] = int(uniform(tree, trees.drawn[tree]) * len(x))
    cuts[ready] = x[tests[ready]]


@compiled
def _split(trees: Trees, tree: int, node: int, weight: float) -> None:
    """Give a leaf children, if a test of its is worth it or it has come to the last resort."""
    leaf = int(trees.children[tree, node])
    seen = trees.seen[tree, leaf]
    if seen < FEWEST_TO_SPLIT or seen % PATIENCE:
        return
    if _others(trees.counts[tree, node : node + 1]) < weight:
        return
    best, gain = _best(trees.tallies[tree, leaf, : trees.ready[tree, leaf]])
    if best < 0:
        return
    sides = trees.tallies[tree, leaf, best]
    if gain <= LEAST_GAIN and (seen % LAST_RESORT or _others(sides) < FEWEST_OTHERS):
        return
    first = trees.sizes[tree]
    fresh = (first + 1) // 2
    trees.features[tree, node] = trees.tests[tree, leaf, best]
    trees.thresholds[tree, node] = trees.cuts[tree, leaf, best]
    trees.children[tree, node] = first
    trees.sizes[tree] += 2
    trees.features[tree, first : first + 2] = -1
    trees.totals[tree, first : first + 2] = 0
    for code in range(sides.shape[1]):
        # Of a class that has stayed away since the leaf began to tally, nobody knows the side.
        away = sides[0, code] + sides[1, code] == 0
        for side in range(2):
            count = sides[side, code] * weight
            if away:
                count = trees.counts[tree, node, code] / 2
            trees.counts[tree, first + side, code] = count
            trees.totals[tree, first + side] += count
    trees.children[tree, first] = leaf
    trees.children[tree, first + 1] = fresh
    _search_anew(trees, tree, leaf)
    _search_anew(trees, tree, fresh)


@compiled
def grow(
    trees: Trees,
    x: Array,
    codes: Array,
    samples: int,
    most_nodes: int,
    horizons: Array,
    lives: Array,
    births: Array,
) -> int:
    """Learn samples, in stream order; how many of the N there was room for.

    Arguments:
        trees: Of all forests.
        x: With shape (N, D), float64.
        codes: Classes, with shape (N,), int64, below C.
        samples: How many came before these.
        most_nodes: That a tree may have: with fewer than these, there may be no room.
        horizons: Samples after which a third is left, with shape (F, trees of a forest).
        lives: Samples after which a tree begins anew, with the same shape, int64; 0 for none.
        births: Samples at which the first life ends, with the same shape, int64.
    """
    n_nodes, n_classes = trees.counts.shape[1:]
    n_forests, per_forest = horizons.shape
    for i in range(len(codes)):
        for tree in range(len(trees.sizes)):
            if trees.sizes[tree] + 2 > n_nodes and n_nodes < most_nodes:
                return i
        now, code = samples + i, codes[i]
        for forest in range(n_forests):
            total = 0.0
            for one in range(per_forest):
                tree = forest * per_forest + one
                life = lives[forest, one]
                if life > 0 and now > 0 and (now - births[forest, one]) % life == 0:
                    _begin(trees, tree, now)
                weight = _weight(trees, tree, now, horizons[forest, one])
                node, probability = _fall(trees, tree, x[i], code, weight)
                probability = (1 - TREE_DOUBT) * probability + TREE_DOUBT / n_classes
                trees.weights[tree] *= probability
                total += trees.weights[tree]
                _try(trees, tree, int(trees.children[tree, node]), x[i], code)
                if trees.sizes[tree] + 2 <= n_nodes:
                    _split(trees, tree, node, weight)
            for tree in range(forest * per_forest, (forest + 1) * per_forest):
                kept = trees.weights[tree] / total
                trees.weights[tree] = (1 - TREE_SHARE) * kept + TREE_SHARE / per_forest
    return len(codes)


@compiled
def fill_leaves(trees: Trees, weights: Array, asked: Array, values: Array) -> None:
    """What each leaf says, by its tree's weight.

    Each node believes of its samples' classes what its parent does, unless they say otherwise.

    Arguments:
        trees: Of all forests.
        weights: What a sample counts in each tree, with shape (T,), float64.
        asked: Classes that each may name, with shape (T, C), bool.
        values: Of all leaves, with shape (T, L, C), float32: what is found.
    """
    n_trees, n_nodes, n_classes = trees.counts.shape
    shares = np.empty((n_nodes, n_classes))
    for tree in range(n_trees):
        belief = STRENGTH * weights[tree]
        shares[0] = 1.0 / n_classes
        for node in range(trees.sizes[tree]):
            total = trees.totals[tree, node] + belief
            for code in range(n_classes):
                count = trees.counts[tree, node, code] + belief * shares[node, code]
                shares[node, code] = count / total
            child = int(trees.children[tree, node])
            if trees.features[tree, node] >= 0:
                for code in range(n_classes):
                    shares[child, code] = shares[child + 1, code] = shares[node, code]
                continue
            heard = 0.0
            for code in range(n_classes):
                if asked[tree, code]:
                    heard += shares[node, code]
            for code in range(n_classes):
                part = shares[node, code] / heard if asked[tree, code] else 0.0
                values[tree, child, code] = trees.weights[tree] * part


@compiled
def answer(
    x: Array,
    features: Array,
    thresholds: Array,
    children: Array,
    values: Array,
    asked: Array,
    whole: Array,
    votes: Array,
) -> None:
    """Sum up, over the trees of each forest, what samples' leaves say.

    A tree that has just begun anew may have met one class alone, and would give every sample that
    name. So it parts among its classes what the trees that know most classes give these together;
    and where they find a class likeliest that it does not know, it says what they do.

    Arguments:
        x: With shape (N, D), float64.
        features: See `Trees`, as the next two.
        values: Of `fill_leaves`, as the next.
        whole: Trees that know most classes of those of their forest, with shape (T,), bool.
        votes: With shape (F, N, C), float64: what is found is added.
    """
    n_trees, n_classes = len(features), values.shape[2]
    per_forest = n_trees // len(votes)
    for tree in range(n_trees):
        if not whole[tree]:
            continue
        forest = tree // per_forest
        for i in range(len(x)):
            leaf = _leaf_of(x[i], features[tree], thresholds[tree], children[tree])
            for code in range(n_classes):
                votes[forest, i, code] += values[tree, leaf, code]
    base = np.empty(n_classes)
    for forest in range(len(votes)):
        own = slice(forest * per_forest, (forest + 1) * per_forest)
        if whole[own].all():
            continue
        for i in range(len(x)):
            base[:] = votes[forest, i] / votes[forest, i].sum()
            likeliest = base.argmax()
            for tree in range(own.start, own.stop):
                if whole[tree]:
                    continue
                leaf = _leaf_of(x[i], features[tree], thresholds[tree], children[tree])
                weight = values[tree, leaf].sum()
                given = base[asked[tree]].sum() if asked[tree, likeliest] else 0.0
                for code in range(n_classes):
                    if given > 0 and asked[tree, code]:
                        votes[forest, i, code] += values[tree, leaf, code] * given
                    else:
                        votes[forest, i, code] += weight * base[code]


@compiled
def _leaf_of(sample: Array, features: Array, thresholds: Array, children: Array) -> int:
    """The leaf of one tree that a sample, with shape (D,), comes to."""
    node = 0
    while features[node] >= 0:
        above = sample[features[node]] > thresholds[node]
        node = int(children[node]) + (1 if above else 0)
    return int(children[node])
