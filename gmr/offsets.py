"""What is taken off columns that lie far from zero, so that a float32 holds what varies in them.

Seconds since 1970 are near 1.8e9, where neighbouring float32 are 128 apart. All that the model
knows of a feature is in float32; so a column whose spread is lost there is moved before the cast.
Other columns stay as they are, bit for bit.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LOST: Final = 1e-3
"""Part of a column's width which the distance of neighbouring float32 may be."""

WHOLE: Final = 2.0**24
"""Up to this every integer is a float32."""

ENOUGH: Final = 1000
"""Samples, spread evenly, that tell a column's width."""


def offsets(x: NDArray[Any]) -> NDArray[np.float64] | None:
    """What to take off each column, with shape (D,), zero for most; None where all are zero.

    Arguments:
        x: Samples, with shape (N, D); NaN where a value is missing.

    Example:
        >>> offsets(np.array([[0.5, 1.7e9], [1.5, 1.7e9 + 100.0]]))
        array([0.00000000e+00, 1.70000005e+09])
        >>> offsets(np.array([[0.5, 2024.0], [1.5, 2025.0]]))
    """
    if x.dtype != np.float64 or not x.size:
        return None  # what came as float32 has lost it already
    some = x[:: math.ceil(len(x) / ENOUGH)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column without any value
        low, centre, high = np.nanquantile(some, (0.1, 0.5, 0.9), axis=0)
        widest = np.nanmax(some, axis=0) - np.nanmin(some, axis=0)
    width = np.where(high > low, high - low, widest)  # strays must not widen it
    held = np.abs(centre).clip(max=float(np.finfo(np.float32).max))
    spacing = np.spacing(held.astype(np.float32)).astype(np.float64)
    lost = np.where(width > 0, spacing > LOST * width, np.abs(centre) > WHOLE)
    # Whole numbers stay whole.
    found = np.where(lost, np.where(np.abs(centre) > WHOLE, centre.round(), centre), 0.0)
    return found if found.any() else None


def moved(x: NDArray[Any], away: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """Samples (N, D) as float32, with what `offsets` says taken off."""
    with np.errstate(over="ignore"):  # what no float32 holds is infinite, and found to be
        return np.asarray(x if away is None else x - away, dtype=np.float32)
