"""Experts that ask one feature after the other: decision trees that grow sample by sample.

A leaf tries out tests at random, of a feature against a threshold (extremely randomised trees;
Geurts, Ernst and Wehenkel, 2006), and becomes a node when one of them has made the classes of its
samples much more probable (as the Hoeffding trees of Domingos and Hulten, Mining High-Speed Data
Streams, 2000, by another measure). All nodes keep counts, and each believes what its parent does
until it has samples of its own. In one forest trees stay and nothing fades; in the others they
begin anew, one after the other, and in one of these counts fade. The trees of a forest are weighed
as experts are (`core.experts.share`).

No sample is kept: nodes have a feature, a threshold and counts. A leaf that looks for a test keeps
one value of one feature of one sample until its next sample comes.

Throughout: F forests, T trees in all, N samples, D features, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.compiled.loops import Array
from core.experts.fading import FEWEST, columns_of, known
from core.experts.growing import Trees, answer, fill_leaves, grow

HORIZONS = (math.inf, math.inf, 100.0)
"""Samples after which a third is left of counts, in each forest."""

LIVES = (math.inf, 4000.0, 2000.0)
"""Samples after which each tree begins anew, in each forest: a structure does not fade."""

REACHES = tuple(map(min, HORIZONS, LIVES))
"""Samples after which a forest has forgotten most."""

TREES = 8
"""Of each forest."""

TESTS = 12
"""That a leaf tries out."""

MOST_LEAVES = 128
"""Of a tree."""

MOST_TALLIES = 2**20
"""Counts of samples on either side of all tests: with more classes, trees have fewer leaves."""

NODES = ("features", "thresholds", "children", "counts", "totals")
LEAVES = ("tests", "cuts", "tallies", "ready", "seen")
EMPTY = {"features": -1, "tests": -1}
"""Parts of `Trees` by node and by leaf, and what they hold where there is none, if not 0."""

FIRST_LEAVES = 8
"""For which there is room from the first."""

_EACH = (len(HORIZONS), TREES)
_N_TREES = len(HORIZONS) * TREES
_FADING = np.repeat(HORIZONS, TREES)
_LIVES = np.array([[0 if math.isinf(life) else int(life)] * TREES for life in LIVES])
_BIRTHS = _LIVES * np.arange(1, TREES + 1) // TREES


@dataclass(frozen=True, eq=False)
class Forests:
    """All of them, as a value.

    At most 6 MB, whatever D is, up to 1,800 classes. With more, a tree is no more than a leaf, and
    it is 3 kB per class.

    Arguments:
        trees: Of all forests, one forest after the other.
        samples: That have been learned.
    """

    trees: Trees
    samples: int = 0

    @classmethod
    def start(cls) -> Forests:
        """Before any sample and class."""
        t, leaves = _N_TREES, FIRST_LEAVES
        nodes = 2 * leaves - 1
        return cls(
            Trees(
                features=np.full((t, nodes), -1, np.int16),
                thresholds=np.zeros((t, nodes)),
                children=np.zeros((t, nodes), np.int32),
                counts=np.zeros((t, nodes, 0)),
                totals=np.zeros((t, nodes)),
                sizes=np.ones(t, np.int64),
                tests=np.full((t, leaves, TESTS), -1, np.int16),
                cuts=np.zeros((t, leaves, TESTS)),
                tallies=np.zeros((t, leaves, TESTS, 2, 0), np.float32),
                ready=np.zeros((t, leaves), np.int64),
                seen=np.zeros((t, leaves), np.int64),
                drawn=np.zeros(t, np.int64),
                weights=np.full(t, 1 / TREES),
                since=np.zeros(t, np.int64),
            )
        )

    def grown(self, n_classes: int) -> Forests:
        """Make room for C classes."""
        heard = self.trees.counts.shape[2]
        return self if n_classes <= heard else self.of_classes(torch.arange(n_classes))

    def of_classes(self, columns: Tensor) -> Forests:
        """Change to these classes: see `fading.columns_of`."""
        counts = columns_of(torch.from_numpy(self.trees.counts), columns, 2).numpy()
        tallies = columns_of(torch.from_numpy(self.trees.tallies), columns, 4).numpy()
        trees = self.trees._replace(counts=counts, totals=counts.sum(-1), tallies=tallies)
        return replace(self, trees=_pruned(trees, _most_leaves(len(columns))))

    def with_merged_classes(self, merge: ClassMerge) -> Forests:
        """Two classes in one; a test that told them apart stays, and does no harm."""
        counts = merge.added(torch.from_numpy(self.trees.counts), 2).numpy()
        tallies = merge.added(torch.from_numpy(self.trees.tallies), 4).numpy()
        return replace(self, trees=self.trees._replace(counts=counts, tallies=tallies))

    def learned(self, x: Tensor, codes: Tensor, *, in_place: bool = False) -> Forests:
        """Learn N labelled samples, in stream order.

        Arguments:
            x: Standardised, with shape (N, D).
            codes: Classes, with shape (N,), int64, below C.
            in_place: Whether nobody else holds these trees, so that they may change where they are.
        """
        rows, named = np.ascontiguousarray(x.numpy()), np.ascontiguousarray(codes.numpy())
        trees, done = self.trees if in_place else _copied(self.trees), 0
        most = 2 * _most_leaves(trees.counts.shape[2]) - 1
        horizons = _FADING.reshape(_EACH)
        while True:
            now = self.samples + done
            done += grow(trees, rows[done:], named[done:], now, most, horizons, _LIVES, _BIRTHS)
            if done == len(rows):
                return Forests(trees, self.samples + done)
            trees = _sized(trees, min(2 * trees.seen.shape[1], (most + 1) // 2))

    def rescaled(self, factor: Tensor, offset: Tensor) -> Forests:
        """Trees that samples x * factor + offset would have left, both with shape (D,)."""
        by, to = factor.numpy(), offset.numpy()
        trees = _copied(self.trees)
        for features, cuts in ((trees.features, trees.thresholds), (trees.tests, trees.cuts)):
            cuts[:] = np.where(features >= 0, cuts * by[features] + to[features], cuts)
        # Where a feature changes its sign, what was above is below.
        trees.tallies[:] = np.where(
            ((trees.tests >= 0) & (by[trees.tests] < 0))[..., None, None],
            trees.tallies[..., ::-1, :],
            trees.tallies,
        )
        if (by < 0).any():
            _turn(trees, (trees.features >= 0) & (by[trees.features] < 0))
        return replace(self, trees=trees)

    def without_few(self) -> Forests:
        """Drop counts of fewer than three samples, and values of single samples.

        A node of a few samples says what its parent does. A leaf of a few begins its search for a
        test anew.
        """
        trees = _copied(self.trees)
        least = FEWEST * self._weights
        gone = trees.counts[:, 0] < least[:, None]
        trees.counts[:] = np.where(gone[:, None], 0, trees.counts)
        trees.tallies[:] = np.where(gone[:, None, None, None], 0, trees.tallies)
        trees.counts[trees.counts.sum(-1) < least[:, None]] = 0
        trees.totals[:] = trees.counts.sum(-1)
        young = trees.seen < FEWEST
        trees.seen[young] = trees.ready[young] = 0
        unready = np.arange(TESTS) >= trees.ready[..., None]
        trees.tests[unready] = -1
        trees.cuts[unready] = trees.tallies[unready] = 0
        return replace(self, trees=trees)

    @property
    def _weights(self) -> Array:
        """What the next sample will count in each tree, with shape (T,), float64."""
        weights: Array = np.exp((self.samples - self.trees.since) / _FADING)
        return weights

    @property
    def mass(self) -> Tensor:
        """Samples of each class that each forest remembers, in all of its trees, (F, C)."""
        roots = self.trees.counts[:, 0] / self._weights[:, None]
        return torch.from_numpy(roots.reshape(*_EACH, -1).sum(1))

    def _asked(self, heard: Tensor) -> Tensor:
        """Classes that each tree may name, of those that its forest knows, with shape (T, C), bool.

        Arguments:
            heard: Those, with shape (F, C), bool.
        """
        roots = torch.from_numpy(self.trees.counts[:, 0] / self._weights[:, None])
        of_forest = _may_name(heard).repeat_interleave(TREES, 0)
        own = known(roots, torch.tensor(REACHES).repeat_interleave(TREES)) & of_forest
        return torch.where(own.any(1, keepdim=True), own, of_forest)

    def rules(self) -> ForestRules:
        """What they say of any sample; see `fading.known`."""
        return self._rules

    @cached_property
    def _rules(self) -> ForestRules:
        heard = known(self.mass, torch.tensor(REACHES))
        asked = self._asked(heard)
        trees, n_nodes = self.trees, int(self.trees.sizes.max())
        n_leaves = (n_nodes + 1) // 2
        values = np.zeros((_N_TREES, n_leaves, asked.shape[1]), np.float32)
        if values.size:  # a class has come
            fill_leaves(trees, self._weights, asked.numpy(), values)
        features, thresholds, children = (
            torch.from_numpy(np.ascontiguousarray(part[:, :n_nodes]))
            for part in (trees.features, trees.thresholds, trees.children)
        )
        return ForestRules(features, thresholds, children, torch.from_numpy(values), heard)


def _may_name(heard: Tensor) -> Tensor:
    """Classes that each may name, of those it knows, both (T, C), bool: all while it knows none."""
    return heard | ~heard.any(1, keepdim=True)


def _most_leaves(n_classes: int) -> int:
    per_leaf = _N_TREES * TESTS * 2 * max(1, n_classes)
    return min(MOST_LEAVES, max(1, MOST_TALLIES // per_leaf))


def _copied(trees: Trees) -> Trees:
    return Trees(*(part.copy() for part in trees))


def _turn(trees: Trees, turned: Array) -> None:
    """Exchange the children of nodes, given with shape (T, K), bool."""
    moved = (*(getattr(trees, name) for name in NODES), turned)
    for tree, size in enumerate(trees.sizes.tolist()):
        # Parents come first, and children take along what they lead to.
        for node in range(size):
            if turned[tree, node]:
                first = int(trees.children[tree, node])
                for part in moved:
                    part[tree, first : first + 2] = part[tree, first : first + 2][::-1].copy()


def _sized(trees: Trees, n_leaves: int) -> Trees:
    """Make room for L leaves in each tree: what is beyond goes, what is new is empty."""
    sized = {}
    for names, n in ((NODES, 2 * n_leaves - 1), (LEAVES, n_leaves)):
        for name in names:
            part = getattr(trees, name)[:, :n]
            room = [(0, 0)] * part.ndim
            room[1] = (0, n - part.shape[1])
            sized[name] = np.pad(part, room, constant_values=EMPTY.get(name, 0))
    return trees._replace(**sized)


def _pruned(trees: Trees, n_leaves: int) -> Trees:
    """Prune each tree to at most L leaves; the nodes that came first stay."""
    nodes = 2 * n_leaves - 1
    if trees.features.shape[1] <= nodes:
        return trees
    large = np.flatnonzero(trees.sizes > nodes)
    sized = _copied(_sized(trees, n_leaves))
    sized.features[sized.children >= nodes] = -1
    for tree in large:
        sized.children[tree, sized.features[tree] < 0] = np.arange(n_leaves)
        sized.sizes[tree] = nodes
        for name in LEAVES:
            getattr(sized, name)[tree] = EMPTY.get(name, 0)
    return sized


@dataclass(frozen=True, eq=False)
class ForestRules:
    """Trees by which samples can be named.

    Arguments:
        features: See `Trees`, as the next two.
        thresholds: With shape (T, K).
        children: With shape (T, K).
        values: What each leaf says, by its tree's weight, with shape (T, L, C), float32.
        known: Classes that have come within the reach of a forest, with shape (F, C), bool.
    """

    features: Tensor
    thresholds: Tensor
    children: Tensor
    values: Tensor
    known: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities, with shape (F, N, C); rows sum to one over known classes.

        Arguments:
            x: Standardised samples, with shape (N, D).
        """
        votes = np.zeros((len(self.known), len(x), self.values.shape[2]))
        features, thresholds, children, values = (
            part.numpy() for part in (self.features, self.thresholds, self.children, self.values)
        )
        asked, whole = self._asked
        rows = np.ascontiguousarray(x.numpy())
        answer(rows, features, thresholds, children, values, asked, whole, votes)
        found = torch.from_numpy(votes)
        return found / found.sum(-1, keepdim=True)

    @cached_property
    def _asked(self) -> tuple[Array, Array]:
        """Classes that each tree may name, (T, C), and which trees may name most, (T,), bool."""
        asked = (self.values > 0).any(1)
        n = asked.sum(1).reshape(len(self.known), -1)
        return asked.numpy(), (n == n.amax(1, keepdim=True)).flatten().numpy()
