"""Experts that ask what lies nearest: micro-clusters, means of labelled samples that lie together.

Where classes are a fine pattern, no sum over all of it tells them apart, and nearest neighbours do
(Fix and Hodges, 1951). The newest samples are clusters of their own. When there are as many as
may be, older ones that lie together and are called alike become one, the cheapest first (Ward,
1963), unless one that is called otherwise lies between. One expert asks the nearest of all, one
the nearest of the newest.

A cluster of one sample is a raw one. It goes when it is joined, at the next boundary, or when 2,048
samples have come since and room is wanted.

Throughout: H horizons, P clusters, N samples, D features, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.compiled.loops import Array
from core.experts.fading import FEWEST, known
from core.experts.nearest import MicroClusters, add_masses, condense, packed, vote
from core.experts.opinions import share_out

HORIZONS = (500.0, math.inf)
"""Samples: what is older is not asked."""

NEIGHBOURS = 5

DOUBT = 0.5
"""Votes that are even over all classes that an expert knows."""

MOST = 2048
MOST_VALUES = 2**16
LEAST_CLUSTERS = 512
"""Clusters at most, in few features; their values in all; clusters that there may be anyhow."""

RAW = 2048
"""Samples after which a cluster of fewer than three samples is let go."""

FIRST = 64
"""For which there is room from the first."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """All micro-clusters, as a value: 1 MB at most.

    Arguments:
        clusters: The first ones are in use.
        size: How many.
        classes: C.
        samples: That have been learned.
    """

    clusters: MicroClusters
    size: int = 0
    classes: int = 0
    samples: int = 0

    @classmethod
    def start(cls, n_features: int) -> Neighbours:
        """Before any sample and class."""
        return cls(
            MicroClusters(
                np.zeros((n_features, FIRST)),
                np.zeros(FIRST, np.int64),
                np.zeros(FIRST),
                np.zeros(FIRST, np.int64),
            )
        )

    @property
    def most(self) -> int:
        """MicroClusters at most."""
        return max(LEAST_CLUSTERS, min(MOST, MOST_VALUES // max(1, len(self.clusters.places))))

    def grown(self, n_classes: int) -> Neighbours:
        """Make room for C classes."""
        return self if n_classes <= self.classes else replace(self, classes=n_classes)

    def of_classes(self, columns: Tensor) -> Neighbours:
        """Change to these classes: see `fading.columns_of`."""
        table = np.full(self.classes, -1)
        for code, column in enumerate(columns.tolist()):
            if 0 <= column < self.classes:
                table[column] = code
        clusters = _copied(self.clusters)
        clusters.codes[: self.size] = table[clusters.codes[: self.size]]
        size = packed(clusters, self.size, clusters.codes < 0)
        _clear(clusters, size)
        return replace(self, clusters=clusters, size=size, classes=len(columns))

    def with_merged_classes(self, merge: ClassMerge) -> Neighbours:
        """Two classes in one."""
        if merge.gone >= self.classes:
            return self
        clusters = _copied(self.clusters)
        own = clusters.codes[: self.size]
        own[:] = merge.codes(torch.from_numpy(own)).numpy()
        return replace(self, clusters=clusters, classes=max(self.classes, merge.into + 1) - 1)

    def learned(self, x: Tensor, codes: Tensor) -> Neighbours:
        """Learn N labelled samples, in stream order.

        Arguments:
            x: Standardised, with shape (N, D).
            codes: Classes, with shape (N,), int64, below C.
        """
        rows, named = x.numpy(), codes.numpy()
        clusters = _sized(self.clusters, self.size + len(rows), self.most)
        size, done = self.size, 0
        while done < len(rows):
            if size == self.most:
                size = _condensed(clusters, size, self.samples + done)
            n = min(len(rows) - done, self.most - size)
            new, mine = slice(size, size + n), slice(done, done + n)
            clusters.places[:, new] = rows[mine].T
            clusters.codes[new] = named[mine]
            clusters.masses[new] = 1
            clusters.newest[new] = np.arange(self.samples + done, self.samples + done + n)
            size, done = size + n, done + n
        return replace(self, clusters=clusters, size=size, samples=self.samples + len(rows))

    def rescaled(self, factor: Tensor, offset: Tensor) -> Neighbours:
        """MicroClusters that samples x * factor + offset would have left, both with shape (D,)."""
        places = self.clusters.places * factor.numpy()[:, None] + offset.numpy()[:, None]
        return replace(self, clusters=self.clusters._replace(places=places))

    def without_few(self) -> Neighbours:
        """Join clusters of fewer than three samples with their like, or let them go."""
        clusters, size = _copied(self.clusters), self.size
        while True:
            before = size
            asked = np.ones(size, np.bool_)
            size = condense(clusters, size, asked, FEWEST, 0)
            if size == before:
                break
        size = packed(clusters, size, clusters.masses < FEWEST)
        _clear(clusters, size)
        return replace(self, clusters=clusters, size=size)

    @property
    def raw(self) -> int:
        """MicroClusters of so few samples that they may be one."""
        return int((self.clusters.masses[: self.size] < FEWEST).sum())

    @property
    def mass(self) -> Tensor:
        """Samples of each class that clusters stand for, at each horizon, (H, C)."""
        found = np.zeros((len(HORIZONS), self.classes))
        add_masses(self.clusters, self.size, self._since, found)
        return torch.from_numpy(found)

    @property
    def _since(self) -> Array:
        """The first sample within each horizon, with shape (H,), int64."""
        return np.array([0 if math.isinf(h) else self.samples - int(h) for h in HORIZONS])

    def rules(self) -> NeighbourRules:
        """What they say of any sample; see `fading.known`."""
        heard = known(self.mass, torch.tensor(HORIZONS))
        places, codes, masses, newest = map(torch.from_numpy, self.clusters)
        since = torch.from_numpy(self._since)
        return NeighbourRules(places, codes, masses, newest, since, heard, self.size)


def _copied(clusters: MicroClusters) -> MicroClusters:
    return MicroClusters(*(part.copy() for part in clusters))


def _sized(clusters: MicroClusters, wanted: int, most: int) -> MicroClusters:
    """A copy with room for as many, at most."""
    room = clusters.places.shape[1]
    while room < min(wanted, most):
        room = min(2 * room, most)
    more = room - clusters.places.shape[1]
    if not more:
        return _copied(clusters)
    return MicroClusters(
        *(np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, more)]) for part in clusters)
    )


def _condensed(clusters: MicroClusters, size: int, samples: int) -> int:
    """Make room; how many are left. What the finite horizon asks stays as it is."""
    newest, masses = clusters.newest, clusters.masses
    gone = (masses < FEWEST) & (newest < samples - RAW)
    size = packed(clusters, size, gone)
    recent = min(HORIZONS[0], size // 2)
    asked = newest[:size] < samples - recent
    size = condense(clusters, size, asked, math.inf, len(newest) // 2)
    most = len(newest) * 3 // 4
    if size > most:
        order = np.lexsort((newest[:size], masses[:size], newest[:size] >= samples - recent))
        gone = np.zeros(len(newest), np.bool_)
        gone[order[: size - most]] = True
        size = packed(clusters, size, gone)
    _clear(clusters, size)
    return size


def _clear(clusters: MicroClusters, size: int) -> None:
    """Leave nothing of samples beyond the clusters that are in use."""
    for part in clusters:
        part[..., size:] = 0


@dataclass(frozen=True, eq=False)
class NeighbourRules:
    """MicroClusters by which samples can be named.

    Arguments:
        places: See `MicroClusters`, as the next three.
        codes: With shape (P,).
        masses: With shape (P,).
        newest: With shape (P,).
        since: From which sample on each horizon asks, with shape (H,), int64.
        known: Classes that have come within the horizon, with shape (H, C), bool.
        size: MicroClusters in use, the first ones.
    """

    places: Tensor
    codes: Tensor
    masses: Tensor
    newest: Tensor
    since: Tensor
    known: Tensor
    size: int

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> NeighbourRules:
        """The inverse of `tensors`."""
        places, codes, masses, newest, since, heard = tensors
        return cls(places, codes, masses, newest, since, heard, len(codes))

    def tensors(self) -> tuple[Tensor, ...]:
        """Of the clusters in use; then `since` and `known`."""
        parts = (self.places, self.codes, self.masses, self.newest)
        own = (part[..., : self.size].contiguous() for part in parts)
        return (*own, self.since, self.known)

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities, with shape (H, N, C); rows sum to one over known classes.

        Arguments:
            x: Standardised samples, with shape (N, D).
        """
        votes = np.zeros((len(self.known), len(x), self.known.shape[1]))
        parts = (self.places, self.codes, self.masses, self.newest)
        clusters = MicroClusters(*(part.numpy() for part in parts))
        rows = np.ascontiguousarray(x.numpy())
        vote(clusters, self.size, rows, self.since.numpy(), NEIGHBOURS, votes)
        share_out(votes, self.known.numpy(), DOUBT)
        return torch.from_numpy(votes)


NOBODY = Neighbours.start(0)
"""In what an earlier release wrote down, which knew none."""
