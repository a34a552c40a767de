"""Logistic regression by stochastic gradient descent, on standardised features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.nearest import Scale
from benchmarks.classification.stream import Features, Labels


class SGD:
    """scikit-learn's `SGDClassifier` with the logistic loss and a constant rate.

    Arguments:
        classes: Of the whole stream, which it must be told before.
        seed: Of the order within a batch.
    """

    def __init__(self, classes: Sequence[int], seed: int, rate: float = 0.01) -> None:
        from sklearn.linear_model import SGDClassifier

        self._classes, self._scale, self._begun = np.array(classes), Scale(), False
        self._model = SGDClassifier(
            loss="log_loss", learning_rate="constant", eta0=rate, random_state=seed
        )

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        if not self._begun:
            return np.full(len(x), NOBODY, dtype=np.int64)
        named: Labels = self._model.predict(self._scale.apply(x.astype(np.float64)))
        return named

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        own = x.astype(np.float64)
        self._scale.learn(own)
        self._model.partial_fit(self._scale.apply(own), y, classes=self._classes)
        self._begun = True
