"""What is usual of samples that a model has not learned, where these are few.

Samples that were fitted are likelier than new ones, so they tell no rate of false alarms. Each
sample is scored here by a model that has learned all folds but its own (cross-validation); by these
scores the rate is kept as p-values keep it: conservatively, to one sample in n + 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from core.config import EngineConfig
from gmr.online import OnlineModel
from gmr.threads import few_threads

FOLDS: Final = 5
"""More take longer and keep the rate no better."""

TAIL: Final = 10
"""Beyond the lowest of n scores a tail falls exponentially, as the lowest n / TAIL say."""

MOST: Final = 1000
"""Samples held, the first ones: where a change is suspected nothing is calibrated for long."""

GROWN: Final = 1.1
"""Times as many samples as were scored before they are scored anew, which takes as long as some
fits: a stream that comes one by one must not wait for that each time."""


class EarlySamples:
    """The first samples of a model, and how likely each is held out; made when first asked for."""

    def __init__(self) -> None:
        self._x: NDArray[np.float32] | None = None
        self._scored = 0
        self._scores: NDArray[np.float64] | None = None

    def observe(self, x: NDArray[np.float32]) -> None:
        """Take the next samples, with shape (N, D), in the order of the stream."""
        known = x if self._x is None else np.concatenate([self._x, x])
        self._x = known[:MOST].copy()
        if len(self._x) >= GROWN * self._scored:
            self._scored, self._scores = len(self._x), None

    @property
    def enough(self) -> bool:
        """Whether one can be held out from others."""
        return self._scored >= 2

    def scores(
        self, config: EngineConfig, device: torch.device | str, batch_size: int, *, images: bool
    ) -> NDArray[np.float64]:
        """As `held_out` has them, of most samples so far, with shape (n,)."""
        assert self._x is not None
        if self._scores is None:
            x = self._x[: self._scored]
            self._scores = held_out(x, config, device, batch_size, images=images)
        return self._scores


def held_out(
    x: NDArray[np.float32],
    config: EngineConfig,
    device: torch.device | str,
    batch_size: int,
    *,
    images: bool,
) -> NDArray[np.float64]:
    """Log-likelihood of each sample by a model that has not learned it, in nats, with shape (n,).

    Arguments:
        x: Samples, with shape (n, D), in the order of the stream, n at least 2.
        config: Of the model that is learned with all of them.
        device: Where it computes.
        batch_size: Samples learned at a time.
        images: Whether they are images.
    """
    config = replace(config, detector="none", outlier_false_positive_rate=None)
    fold = np.arange(len(x)) % FOLDS  # every part of the stream in each
    found = np.empty(len(x))
    for number in range(min(FOLDS, len(x))):
        own = fold == number
        model = OnlineModel(config, device, quiet=True)
        model.learn_all(x[~own], None, batch_size, images=images)
        with few_threads(x.shape[1]):
            scores = model.snapshot.outliers(torch.from_numpy(x[own]))
        found[own] = scores.log_likelihoods.double().cpu().numpy()
    return found


def least_usual(scores: NDArray[np.float64], rate: float) -> float:
    """The least score of an inlier, where a share `rate` of inliers may lie below.

    Arguments:
        scores: Of inliers that were held out, with shape (n,), n at least 2.
        rate: Above 0 and below 1.

    Example:
        >>> least_usual(np.arange(1.0, 100.0), 0.05)
        5.0
    """
    ordered = np.sort(scores)
    n = len(ordered)
    below = math.floor(rate * (n + 1))
    if below:
        return float(ordered[below - 1])
    lowest = ordered[: n // TAIL + 2]
    return float(ordered[0] - (lowest[-1] - lowest[:-1]).mean() * math.log(1 / (rate * (n + 1))))
