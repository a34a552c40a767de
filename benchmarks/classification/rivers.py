"""River's classifiers, with their defaults, but for the window of the nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Features, Labels


class Rivers:
    """A classifier of River's, sample by sample.

    Arguments:
        model: With `predict_one` and `learn_one`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        named = [self._model.predict_one(row) for row in _rows(x)]
        return np.array([NOBODY if one is None else one for one in named], dtype=np.int64)

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        for row, label in zip(_rows(x), y.tolist(), strict=True):
            self._model.learn_one(row, label)


def _rows(x: Features) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in x.astype(float).tolist()]


def _naive_bayes(seed: int) -> Any:
    from river import naive_bayes

    made: Any = naive_bayes.GaussianNB
    return made()


def _hoeffding(seed: int) -> Any:
    from river import tree

    return tree.HoeffdingTreeClassifier()


def _hoeffding_adaptive(seed: int) -> Any:
    from river import tree

    return tree.HoeffdingAdaptiveTreeClassifier(seed=seed)


def _forest(seed: int) -> Any:
    from river import forest

    return forest.ARFClassifier(seed=seed)


def _random_patches(seed: int) -> Any:
    from river import ensemble, tree

    return ensemble.SRPClassifier(tree.HoeffdingTreeClassifier(), seed=seed)


def _leveraging(seed: int) -> Any:
    from river import ensemble, tree

    return ensemble.LeveragingBaggingClassifier(tree.HoeffdingTreeClassifier(), seed=seed)


def _neighbours(seed: int) -> Any:
    from river import neighbors

    return neighbors.KNNClassifier(engine=neighbors.LazySearch(window_size=1000))


MODELS: dict[str, Callable[[int], Any]] = {
    "naive-bayes": _naive_bayes,
    "hoeffding": _hoeffding,
    "hoeffding-adaptive": _hoeffding_adaptive,
    "arf": _forest,
    "srp": _random_patches,
    "leveraging": _leveraging,
    "river-knn": _neighbours,
}
"""Name -> classifier, by seed."""
