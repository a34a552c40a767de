"""scikit-learn's other learners of a stream: by `partial_fit`, or fitted again and again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Features, Labels


class PartialFit:
    """An estimator of scikit-learn's that has `partial_fit`, on features as they come.

    Arguments:
        model: The estimator.
        classes: Of the whole stream, which it must be told before.
    """

    def __init__(self, model: Any, classes: Sequence[int]) -> None:
        self._model, self._classes, self._begun = model, np.array(classes), False

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        if not self._begun:
            return np.full(len(x), NOBODY, dtype=np.int64)
        named: Labels = self._model.predict(x)
        return named

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        self._model.partial_fit(x, y, classes=self._classes)
        self._begun = True


class RefittedMixtures:
    """A `BayesianGaussianMixture` a class, fitted anew to its last samples, which are kept.

    scikit-learn's mixtures have no `partial_fit`; this is what its users do instead.

    Arguments:
        seed: Of the fits.
        n_components: At most, of a class; variances are diagonal.
        window: Samples of a class that are kept, and fitted.
        every: Samples of a class after which it is fitted again.
    """

    LEAST: Final = 50
    """Samples of a class before its first fit."""

    def __init__(
        self, seed: int, n_components: int = 10, window: int = 2000, every: int = 500
    ) -> None:
        self._seed, self._components = seed, n_components
        self._window, self._every = window, every
        self._kept: dict[int, Features] = {}
        self._fitted: dict[int, Any] = {}
        self._since: dict[int, int] = {}

    def predict(self, x: Features) -> Labels:
        """See `Opponent`; every class is as likely as any other."""
        if not self._fitted:
            return np.full(len(x), NOBODY, dtype=np.int64)
        classes = sorted(self._fitted)
        scores = np.stack([self._fitted[label].score_samples(x) for label in classes], axis=1)
        named: Labels = np.array(classes, dtype=np.int64)[scores.argmax(axis=1)]
        return named

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        for label in np.unique(y).tolist():
            new = x[y == label]
            kept = self._kept.get(label)
            kept = new if kept is None else np.concatenate((kept, new))[-self._window :]
            self._kept[label] = kept
            self._since[label] = self._since.get(label, self._every) + len(new)
            if self._since[label] >= self._every and len(kept) >= self.LEAST:
                self._fitted[label] = self._fit(kept)
                self._since[label] = 0

    def _fit(self, x: Features) -> Any:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import BayesianGaussianMixture

        model = BayesianGaussianMixture(
            n_components=self._components,
            covariance_type="diag",
            reg_covar=1e-3,
            max_iter=30,
            random_state=self._seed,
        )
        with warnings.catch_warnings():
            # A fit that ends after its rounds is what was asked for.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(x)
