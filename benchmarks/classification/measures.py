"""How well was a stream named? Pure functions of what was said and what was true.

Throughout: N samples; `named` and `true` hold classes, with shape (N,), and `NOBODY` in `named`
stands for no answer, which is wrong. All are *prequential* (Gama, Sebastião, Rodrigues 2013):
a sample is named before its label, or that of any sample of its batch, is learned.

Rule of this module: no I/O, no clock; what cannot be said is NaN, never zero.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
"""What is named where no class is known yet. No class is called so."""

TENTHS = 10

Classes = NDArray[np.int64]


def accuracy(named: Classes, true: Classes) -> float:
    """Share named right, 0 to 1.

    Example:
        >>> accuracy(np.array([1, 1, 0, -1]), np.array([1, 1, 1, 1]))
        0.5
    """
    return float((named == true).mean()) if len(true) else math.nan


def kappa(named: Classes, true: Classes) -> float:
    """Cohen's kappa: (p - q) / (1 - q), with q the agreement of independent answers.

    At most 1; 0 where nothing but the classes' shares is known. NaN where q is 1: there is one
    class, and it is always named.

    Source: Cohen (1960), "A coefficient of agreement for nominal scales", equation 1.

    Example:
        >>> kappa(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
        0.5
    """
    if not len(true):
        return math.nan
    classes, codes = np.unique(np.concatenate([named, true]), return_inverse=True)
    ours, theirs = (
        np.bincount(part, minlength=len(classes)) / len(true)
        for part in (codes[: len(true)], codes[len(true) :])
    )
    chance = float(ours @ theirs)
    return (accuracy(named, true) - chance) / (1 - chance) if chance < 1 else math.nan


def tenths(named: Classes, true: Classes) -> tuple[float, ...]:
    """Accuracy of each tenth of the stream, in order; tenths differ by one sample at most.

    Fewer than ten where there are fewer samples.
    """
    parts = np.array_split(named == true, min(TENTHS, len(true)) or 1)
    return tuple(float(part.mean()) for part in parts if len(part))
