"""What our estimators of scikit-learn's kind share: an engine, and the way to it."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from core.batch import Label
from core.snapshot import Snapshot
from gmr.arguments import batch_size_of, config_of
from gmr.named_features import LARGEST
from gmr.offsets import moved, offsets
from gmr.online import OnlineModel, seed_of

PRECISE: Final = (np.float64, np.float32)
"""Of samples that come; others become the first."""


class StreamEstimator(BaseEstimator):  # type: ignore[misc]  # of no types
    """An estimator that is an engine. Whoever inherits takes these arguments, each by its name."""

    preset: str
    n_components: int | None
    detector: str
    ert: float
    images: bool
    batch_size: int
    random_state: int | np.random.RandomState | None
    device: str

    _offsets: NDArray[np.float64] | None = None
    """Taken off each column before float32, with shape (D,); none where float32 holds them."""

    def _begin(
        self, *, experts: bool, false_positive_rate: float | None, **settings: object
    ) -> np.random.RandomState:
        """Make a new engine; what draws whatever else is random.

        Raises:
            InvalidSettings: An argument of the estimator cannot be used.
        """
        batch_size_of(self.batch_size)
        random: np.random.RandomState = check_random_state(self.random_state)
        config = config_of(
            preset=self.preset,
            n_components=self.n_components,
            detector=self.detector,
            ert=self.ert,
            experts=experts,
            outlier_false_positive_rate=false_positive_rate,
            seed=seed_of(random),
            **settings,
        )
        self._model = OnlineModel(config, self.device, quiet=True)
        self.boundaries_ = np.empty(0, dtype=np.int64)
        return random

    def _samples(self, x: ArrayLike, reset: bool) -> NDArray[Any]:
        """Samples (N, D), float64 or float32, as scikit-learn checks them.

        Raises:
            ValueError: They cannot be used.
        """
        found = validate_data(self, x, dtype=list(PRECISE), reset=reset)
        check_range(found)
        return np.asarray(found)

    def _take(self, x: NDArray[Any], labels: list[Label | None] | None) -> Self:
        """Learn the next samples (N, D), with the label of each, or None."""
        if self._model.state.stream.samples == 0:
            self._offsets = None if self.images else offsets(x)
        features = moved(x, self._offsets)
        starts = self._model.learn_all(features, labels, self.batch_size, images=self.images)
        found = [*self.boundaries_.tolist(), *starts]
        self.boundaries_ = np.asarray(found, dtype=np.int64)
        self._learned(features)
        return self

    def _learned(self, x: NDArray[np.float32]) -> None:
        """Samples (N, D) have been learned; as the model has them."""

    def _asked(self, x: ArrayLike) -> tuple[Snapshot, torch.Tensor]:
        """The model that answers, and samples (N, D) as it takes them."""
        check_is_fitted(self)
        features = moved(self._samples(x, reset=False), self._offsets)
        return self._model.snapshot, torch.from_numpy(np.ascontiguousarray(features))


def check_range(x: NDArray[Any]) -> None:
    """Refuse finite samples that no float32 holds, in the words of scikit-learn.

    Raises:
        ValueError: There are some.
    """
    if x.size and max(x.max(), -x.min()) > LARGEST:
        raise ValueError("Input X contains infinity or a value too large for dtype('float32').")
