"""Which stored samples are nearest, and what the nearest say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Labels

Array = NDArray[np.float64]


def squared_distances(a: Array, b: Array) -> Array:
    """Euclidean, squared, of every row of (N, D) to every row of (M, D), with shape (N, M).

    By differences: |a|^2 - 2ab + |b|^2 loses what is small beside the samples' distance to 0.
    """
    found = np.zeros((len(a), len(b)))
    for left, right in zip(a.T, b.T, strict=True):
        found += np.subtract.outer(left, right) ** 2
    return found


def nearest(distances: Array, k: int) -> NDArray[np.int64]:
    """Indices of the k smallest of each row of (N, M), with shape (N, min(k, M)), in no order."""
    if distances.shape[1] <= k:
        return np.broadcast_to(np.arange(distances.shape[1]), distances.shape)
    return np.argpartition(distances, k - 1, axis=1)[:, :k]


def vote(distances: Array, labels: Labels, k: int) -> Labels:
    """The class for which the k nearest speak, each by one over its distance.

    Arguments:
        distances: Squared, with shape (N, M).
        labels: Of the M.

    Returns:
        Classes, with shape (N,); the smaller number where two are equal; `NOBODY` where M is 0.
    """
    if not distances.shape[1]:
        return np.full(len(distances), NOBODY, dtype=np.int64)
    near = nearest(distances, k)
    weights = 1 / np.maximum(np.sqrt(np.take_along_axis(distances, near, 1)), 1e-12)
    classes, codes = np.unique(labels, return_inverse=True)
    votes = np.zeros((len(distances), len(classes)))
    np.add.at(votes, (np.arange(len(distances))[:, None], codes[near]), weights)
    found: Labels = classes[votes.argmax(1)]
    return found


class Scale:
    """Running standard deviation of every feature, by which samples are divided."""

    def __init__(self) -> None:
        self._n, self._mean, self._sum = 0, np.zeros(1), np.zeros(1)

    def learn(self, x: Array) -> None:
        """Count N samples, with shape (N, D), in (Chan, Golub, LeVeque 1983, equation 2.1)."""
        n, mean = len(x), x.mean(0)
        total = self._n + n
        gap = mean - self._mean
        self._sum = self._sum + ((x - mean) ** 2).sum(0) + gap**2 * (self._n * n / total)
        self._mean = self._mean + gap * (n / total)
        self._n = total

    def apply(self, x: Array) -> Array:
        """Samples without mean, divided by the deviation; a constant feature is 0."""
        deviation = np.sqrt(self._sum / max(1, self._n))
        constant = deviation <= 1e-7 * np.abs(self._mean)
        scaled: Array = np.where(constant, 0.0, (x - self._mean) / np.where(constant, 1, deviation))
        return scaled


class KNN:
    """The k nearest of the last samples, as River's `KNNClassifier` finds them by `LazySearch`.

    Arguments:
        scaled: Whether features are standardised, by what was seen of them so far.
        k: Neighbours.
        window: Samples held.
    """

    def __init__(self, *, scaled: bool, k: int = 5, window: int = 1000) -> None:
        self._k, self._window = k, window
        self._scale = Scale() if scaled else None
        self._x: Array = np.zeros((0, 0))
        self._y: Labels = np.zeros(0, dtype=np.int64)

    def predict(self, x: NDArray[np.float32]) -> Labels:
        """See `Opponent`."""
        asked, held = x.astype(np.float64), self._x
        if not len(held):
            return np.full(len(x), NOBODY, dtype=np.int64)
        if self._scale is not None:
            asked, held = self._scale.apply(asked), self._scale.apply(held)
        return vote(squared_distances(asked, held), self._y, self._k)

    def learn(self, x: NDArray[np.float32], y: Labels) -> None:
        """See `Opponent`."""
        own = x.astype(np.float64)
        if self._scale is not None:
            self._scale.learn(own)
        held = np.vstack([self._x, own]) if len(self._y) else own
        self._x = held[-self._window :]
        self._y = np.concatenate([self._y, y])[-self._window :]
