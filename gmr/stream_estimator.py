"""What our estimators of scikit-learn's kind share: an engine, and the way to it."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from core.batch import Label
from core.config import EngineConfig
from core.errors import InvalidSettings
from core.snapshot import Snapshot
from gmr.online import OnlineModel, seed_of


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

    def _begin(self, *, experts: bool, false_positive_rate: float | None) -> np.random.RandomState:
        """Make a new engine; what draws whatever else is random.

        Raises:
            InvalidSettings: An argument of the estimator cannot be used.
        """
        if self.batch_size < 1:
            raise InvalidSettings(f"batch_size is {self.batch_size}; it must be at least 1.")
        random: np.random.RandomState = check_random_state(self.random_state)
        config = EngineConfig(
            preset=self.preset,
            n_components=self.n_components,
            detector=self.detector,
            ert=self.ert,
            experts=experts,
            outlier_false_positive_rate=false_positive_rate,
            seed=seed_of(random),
        )
        self._model = OnlineModel(config, self.device, quiet=True)
        self.boundaries_ = np.empty(0, dtype=np.int64)
        return random

    def _take(self, x: NDArray[np.float32], labels: list[Label | None] | None) -> Self:
        """Learn the next samples (N, D), with the label of each, or None."""
        starts = self._model.learn_all(x, labels, self.batch_size, images=self.images)
        found = [*self.boundaries_.tolist(), *starts]
        self.boundaries_ = np.asarray(found, dtype=np.int64)
        return self

    def _asked(self, x: ArrayLike) -> tuple[Snapshot, torch.Tensor]:
        """The model that answers, and samples (N, D) as it takes them."""
        check_is_fitted(self)
        features = validate_data(self, x, dtype=np.float32, reset=False)
        return self._model.snapshot, torch.from_numpy(np.ascontiguousarray(features))
