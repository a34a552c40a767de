"""Real tables that come with River and scikit-learn, at random, sorted, and with a drift.

Nothing is downloaded: the tables are files of the two packages. (Yeast is in neither.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.stream import LabelledStream

Table = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Samples (N, D) and classes (N,)."""

DRIFT = 3.0
"""Standard deviations by which a feature moves from the first sample to the last."""


def one_hot(rows: Iterable[dict[Any, Any]]) -> NDArray[np.float64]:
    """Rows as numbers: text becomes one feature per value that occurs, in alphabetical order.

    Example:
        >>> one_hot([{"size": 2, "colour": "red"}, {"size": 1, "colour": "blue"}]).tolist()
        [[2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    known = list(rows)
    columns: list[list[float]] = []
    for name, first in known[0].items():
        values = [row[name] for row in known]
        if isinstance(first, str):
            columns += [[float(v == value) for v in values] for value in sorted(set(values))]
        else:
            columns.append([float(v) for v in values])
    return np.array(columns).T


def _classes(labels: Iterable[Any]) -> NDArray[np.int64]:
    """Classes from 0, in the labels' order."""
    return np.unique(np.array(list(labels)), return_inverse=True)[1].astype(np.int64)


def _of_river(name: str, label: Callable[[Any], Any] = lambda y: y) -> Table:
    from river import datasets

    rows, labels = zip(*getattr(datasets, name)(), strict=True)
    return one_hot(rows), _classes(map(label, labels))


def _of_scikit_learn(name: str) -> Table:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return found.data.astype(np.float64), found.target.astype(np.int64)


def _any_flare(counts: dict[str, int]) -> bool:
    """Of the three kinds that are counted."""
    return any(counts.values())


TABLES: dict[str, Callable[[], Table]] = {
    "banana": lambda: _of_river("Bananas"),
    "segments": lambda: _of_river("ImageSegments"),
    "phishing": lambda: _of_river("Phishing"),
    "flare": lambda: _of_river("SolarFlare", _any_flare),
    "cancer": lambda: _of_scikit_learn("breast_cancer"),
    "wine": lambda: _of_scikit_learn("wine"),
    "digits": lambda: _of_scikit_learn("digits"),
}
"""Name -> the table as its package has it."""

ORDERS = ("random", "sorted", "drifting")


def ordered(name: str, order: str, n: int, seed: int) -> LabelledStream:
    """A table as a stream.

    Arguments:
        name: One of `TABLES`.
        order: "random"; "sorted", by class and at random within one; or "drifting", at random,
            while one feature, drawn by the seed, moves by `DRIFT` standard deviations.
        n: Samples at most, drawn at random.
        seed: Of every choice.
    """
    x, y = TABLES[name]()
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:n]
    if order == "sorted":
        rows = rows[np.argsort(y[rows], kind="stable")]
    x, y = x[rows], y[rows]
    if order == "drifting":
        deviation = x.std(0)
        feature = rng.choice(np.flatnonzero(deviation))
        x = x.copy()
        x[:, feature] += DRIFT * deviation[feature] * np.linspace(0, 1, len(x))
    changes = tuple((np.flatnonzero(np.diff(y)) + 1).tolist()) if order == "sorted" else ()
    return LabelledStream(f"{name}-{order}", x.astype(np.float32), y, changes)
