"""How good are the samples that a model draws, beside test samples that it never saw?

Definitions, of N real and M drawn samples, with k nearest neighbours by Euclidean distance:

* purity: share of drawn samples whose k nearest test samples are mostly of the class that was
  asked for. The judge is no part of the model. What it says of test samples, each left out in its
  turn, stands beside it: more than that no sample can be expected to reach;
* accepted: share of drawn samples that the model itself found as surely of their class as it wants
  them (the others are the best that came);
* Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models":
  precision, the share of drawn samples that lie in the ball of a test sample, whose radius is the
  distance to its k-th neighbour; recall, the share of test samples in the ball of a drawn one;
* Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models": density, in
  how many balls of test samples a drawn one lies, over k (about 1 for real samples, and unbounded);
  coverage, the share of test samples in whose ball a drawn one lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clients.http.answers import Samples

PER_CLASS: Final = 100
"""Samples drawn of each class, and at most as many test samples of it."""

NEIGHBOURS: Final = 5
"""k, as Naeem et al. have it."""

Features = NDArray[np.float32]


@dataclass(frozen=True)
class ClassQuality:
    """The samples drawn of one class."""

    label: int | str
    accepted: float
    purity: float


@dataclass(frozen=True)
class SampleQuality:
    """What is measured of the samples of a model; NaN where a class has too few test samples."""

    classes: tuple[ClassQuality, ...]
    accepted: float
    purity: float
    purity_of_test_samples: float
    precision: float
    recall: float
    density: float
    coverage: float


def sample_quality(
    drawn: Mapping[int | str, Samples],
    x: NDArray[Any],
    y: Sequence[int | str],
    *,
    images: bool,
    k: int = NEIGHBOURS,
) -> SampleQuality | None:
    """Compare drawn samples with test samples.

    Arguments:
        drawn: Class -> the samples drawn of it.
        x: Test samples, with shape (N, D), in the units of those that were learned; uint8 is an
            image of 0 to 255, which the service draws in 0 to 1.
        y: Their classes, N of them.
        images: Whether features are pixels, and distances those of pixels; else each feature is
            divided by its deviation among the test samples.
        k: Neighbours that are asked.

    Returns:
        None where nothing was drawn.
    """
    if not drawn:
        return None
    kinds = list(drawn)
    codes = {label: code for code, label in enumerate(kinds)}
    mine = np.array([codes.get(label, -1) for label in y])
    chosen = np.concatenate([np.flatnonzero(mine == code)[:PER_CLASS] for code in codes.values()])
    real = np.asarray(x, dtype=np.float64).reshape(len(x), -1)[chosen]
    if x.dtype == np.uint8:
        real /= 255
    fake = np.concatenate([np.asarray(one.features, np.float64) for one in drawn.values()])
    asked = np.repeat(np.arange(len(kinds)), [len(one.features) for one in drawn.values()])
    accepted = np.concatenate([~np.asarray(one.short, dtype=bool) for one in drawn.values()])
    if not images and len(real):
        spread = real.std(axis=0)
        spread[spread == 0] = 1.0
        real, fake = real / spread, fake / spread
    fewest = min(np.bincount(mine[chosen], minlength=len(kinds)), default=0)
    shares = [float(accepted[asked == code].mean()) for code in range(len(kinds))]
    if fewest <= k or len(fake) <= k:
        unknown = tuple(
            ClassQuality(label, share, math.nan) for label, share in zip(kinds, shares, strict=True)
        )
        return SampleQuality(unknown, float(accepted.mean()), *([math.nan] * 6))

    across, within = _distances(fake, real), _distances(real, real)
    np.fill_diagonal(within, np.inf)
    votes = _votes(across, mine[chosen], k, len(kinds))
    pure = votes == asked
    radius = np.sort(within, axis=1)[:, k - 1]
    in_real = across <= radius[None, :]
    among = _distances(fake, fake)
    np.fill_diagonal(among, np.inf)
    in_fake = across <= np.sort(among, axis=1)[:, k - 1][:, None]
    left_out = _votes(within, mine[chosen], k, len(kinds)) == mine[chosen]
    return SampleQuality(
        classes=tuple(
            ClassQuality(label, shares[code], float(pure[asked == code].mean()))
            for code, label in enumerate(kinds)
        ),
        accepted=float(accepted.mean()),
        purity=float(pure.mean()),
        purity_of_test_samples=float(left_out.mean()),
        precision=float(in_real.any(axis=1).mean()),
        recall=float(in_fake.any(axis=0).mean()),
        density=float(in_real.sum(axis=1).mean() / k),
        coverage=float(in_real.any(axis=0).mean()),
    )


def _distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared Euclidean distances, with shape (len(a), len(b)).

    Example:
        >>> _distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[25.0, 0.0]]
    """
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * (a @ b.T)
    distances: NDArray[np.float64] = np.maximum(squares, 0.0)
    return distances


def _votes(
    distances: NDArray[np.float64], classes: NDArray[np.int64], k: int, n_classes: int
) -> NDArray[np.int64]:
    """The class of most of the k nearest; among equals the first by number.

    Arguments:
        distances: Of M samples to N others, with shape (M, N).
        classes: Of these N.
    """
    nearest = classes[np.argsort(distances, axis=1, kind="stable")[:, :k]]
    counts = np.stack([(nearest == code).sum(axis=1) for code in range(n_classes)], axis=1)
    named: NDArray[np.int64] = counts.argmax(axis=1)
    return named
