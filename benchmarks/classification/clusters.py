"""Clusters whose classes keep moving, and classes that come one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.stream import LabelledStream

CLASSES = 5
SPREAD = 0.8
RADIUS = 3.0

WALKERS, WALK_FEATURES, WALK_STEP, WALK_BOX = 12, 4, 0.04, 4.0
"""Clusters, two per class; their features; the deviation of a step, which every sample makes, in
each feature; half the side of the box that they stay in."""

SQUARES, SQUARE_GAP, SQUARE_SPEED = 4, 1.5, 0.0024
"""Squares of side 1 in a row; from one to the next; how far they move with every sample."""

BLOBS, BLOB_FEATURES, BLOB_DISTANCE = 10, 10, 2.0
"""Classes; features; standard deviation of their centres, that within one being 1."""


def circle(name: str, turn: float, n: int, seed: int) -> LabelledStream:
    """Gaussian classes on a circle that turns, so that each comes where others were.

    Arguments:
        turn: Share of a turn that is made with every sample.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    angle = 2 * np.pi * (y / CLASSES + turn * np.arange(n))
    centre = RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _stream(name, centre + SPREAD * rng.normal(size=(n, 2)), y)


def walk(name: str, n: int, seed: int) -> LabelledStream:
    """Gaussian clusters on random walks in a box; two of them are one class."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(-WALK_BOX, WALK_BOX, size=(WALKERS, WALK_FEATURES))
    steps = rng.normal(size=(n, WALKERS, WALK_FEATURES)) * WALK_STEP
    # A walk that is folded at the walls: a triangle wave of the free one.
    free = start + np.cumsum(steps, axis=0) + WALK_BOX
    centre = np.abs((free - 2 * WALK_BOX) % (4 * WALK_BOX) - 2 * WALK_BOX) - WALK_BOX
    which = rng.integers(WALKERS, size=n)
    x = centre[np.arange(n), which] + SPREAD * rng.normal(size=(n, WALK_FEATURES))
    return _stream(name, x, which // 2)


def squares(name: str, n: int, seed: int) -> LabelledStream:
    """Uniform squares in a row, each a class, that move along the row and back.

    Source: "Moving Squares" of Losing, Hammer, Wersing (2016), "KNN classifier with self
    adjusting memory for heterogeneous concept drift", section V.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(SQUARES, size=n)
    row = SQUARES * SQUARE_GAP
    way = SQUARE_SPEED * np.arange(n) % (2 * row)
    moved = np.minimum(way, 2 * row - way)
    x = rng.uniform(0, 1, size=(n, 2))
    x[:, 0] += SQUARE_GAP * y + moved
    return _stream(name, x, y)


def blobs(name: str, growing: bool, n: int, seed: int) -> LabelledStream:
    """Gaussian classes, of which a new one comes every `n / BLOBS` samples.

    Arguments:
        growing: Whether all that have come go on, or only the newest one is shown.
    """
    rng = np.random.default_rng(seed)
    centres = BLOB_DISTANCE * rng.normal(size=(BLOBS, BLOB_FEATURES))
    newest = np.arange(n) * BLOBS // n
    y = rng.integers(newest + 1) if growing else newest
    x = centres[y] + rng.normal(size=(n, BLOB_FEATURES))
    changes = tuple((np.flatnonzero(np.diff(newest)) + 1).tolist())
    return _stream(name, x, y, changes)


def _stream(
    name: str, x: NDArray[np.float64], y: NDArray[np.int64], changes: tuple[int, ...] = ()
) -> LabelledStream:
    return LabelledStream(name, x.astype(np.float32), y.astype(np.int64), changes)
