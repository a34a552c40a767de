"""What is taken off columns that lie far from zero, so that a float32 holds what varies in them.

Seconds since 1970 are near 1.8e9, where neighbouring float32 are 128 apart. All that the model
knows of a feature is in float32; so a column whose spread is lost there is moved before the cast.
Other columns stay as they are, bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clients.rounding import WHOLE, lost

LOST: Final = 1e-3
"""Part of a column's width which the distance of neighbouring float32 may be. An offset does no
harm where it was not needed, so that this is far less than what is warned of."""


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
    columns, centre = lost(x, LOST)
    # Whole numbers stay whole.
    found = np.where(columns, np.where(np.abs(centre) > WHOLE, centre.round(), centre), 0.0)
    return found if found.any() else None


def moved(x: NDArray[Any], away: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """Samples (N, D) as float32, with what `offsets` says taken off."""
    with np.errstate(over="ignore"):  # what no float32 holds is infinite, and found to be
        return np.asarray(x if away is None else x - away, dtype=np.float32)
