"""A concept that never changes, of which one part at a time is shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.stream import LabelledStream

SIDE = 8
"""Fields of a chessboard in a row."""

PASSES = 2
"""How often every field comes."""

FIELDS_BETWEEN = 4
"""Fields that come before the whole board is shown."""

PLANE_SIDE, PLANE_CLASSES, PLANE_PASSES = 3, 3, 4
"""Regions of the plane in a row; classes; how often every region comes."""


def fields(name: str, n: int, seed: int) -> LabelledStream:
    """A chessboard, one field after the other in random order; black and white are the classes."""
    rng = np.random.default_rng(seed)
    shown = np.concatenate([rng.permutation(SIDE**2) for _ in range(PASSES)])
    which = np.arange(n) * len(shown) // n
    x = _within(shown[which], SIDE, rng)
    return _stream(name, x, _colour(x), which)


def transient(name: str, n: int, seed: int) -> LabelledStream:
    """The same, but after every four fields the whole board is shown for as long.

    Source: "Transient Chessboard" of Losing, Hammer, Wersing (2016), section V.
    """
    rng = np.random.default_rng(seed)
    shown = rng.permutation(SIDE**2).reshape(-1, FIELDS_BETWEEN)
    # Minus one: anywhere on the board.
    plan = np.hstack([shown, np.full_like(shown, -1)]).ravel()
    which = np.arange(n) * len(plan) // n
    anywhere = rng.integers(SIDE**2, size=n)
    field = np.where(plan[which] < 0, anywhere, plan[which])
    x = _within(field, SIDE, rng)
    whole = which // (2 * FIELDS_BETWEEN) * (2 * FIELDS_BETWEEN) + FIELDS_BETWEEN
    return _stream(name, x, _colour(x), np.where(plan[which] < 0, whole, which))


def plane(name: str, n: int, seed: int) -> LabelledStream:
    """Waves in the plane cut into classes, one region after the other."""
    rng = np.random.default_rng(seed)
    regions = np.concatenate([rng.permutation(PLANE_SIDE**2) for _ in range(PLANE_PASSES)])
    which = np.arange(n) * len(regions) // n
    x = _within(regions[which], PLANE_SIDE, rng)
    phase = rng.uniform(0, 2 * np.pi, size=2)
    height = np.sin(2 * np.pi * 1.5 * x[:, 0] + phase[0] + 3 * x[:, 1]) + np.cos(
        2 * np.pi * 1.2 * x[:, 1] + phase[1]
    )
    y = np.digitize(height, [-0.5, 0.5])
    return _stream(name, x, y, which)


def _within(field: NDArray[np.int64], side: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A place in [0, 1]^2 within each field, numbered row by row, with shape (N, 2)."""
    corner = np.stack([field % side, field // side], axis=1)
    return (corner + rng.uniform(size=corner.shape)) / side


def _colour(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of the field that a place is on."""
    place: NDArray[np.int64] = np.minimum(x * SIDE, SIDE - 1).astype(np.int64).sum(1)
    return place % 2


def _stream(
    name: str, x: NDArray[np.float64], y: NDArray[np.int64], part: NDArray[np.int64]
) -> LabelledStream:
    changes = tuple((np.flatnonzero(np.diff(part)) + 1).tolist())
    return LabelledStream(name, x.astype(np.float32), y.astype(np.int64), changes)
