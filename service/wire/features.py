"""Samples as numbers: the types they may have, and what they must be like.

A table has shape (N, D). Images are declared as such by their shape, (N, H, W) or (N, H, W, C),
which is D = H W C, or by being uint8. Images keep their scale; a table's features are
standardised one by one (`core.standardiser`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.errors import NonFiniteFeature, ShapeMismatch
from service.wire.arrays import Array
from service.wire.limits import Limits

FEATURE_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "f4": np.dtype("<f4"),
    "f2": np.dtype("<f2"),
    "u1": np.dtype("u1"),
}


def as_features(values: npt.ArrayLike) -> Array:
    """An array of a type that travels, row by row: as it is, or as float32.

    A number too large for float32 becomes infinity, which `check_features` finds.

    Raises:
        ShapeMismatch: The values are no real numbers.
    """
    array = np.asarray(values)
    if array.dtype not in FEATURE_TYPES.values():
        if array.dtype.kind not in "iuf":
            raise ShapeMismatch(
                f"Features of type {array.dtype} are no numbers; expected float32, float16 or "
                f"uint8. Convert them before sending."
            )
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    return np.ascontiguousarray(array)


def check_features(array: Array, limits: Limits) -> Array:
    """The same array, once it is known to be finite features of N samples, N and D > 0.

    Arguments:
        array: With shape (N, D), (N, H, W) or (N, H, W, C).
        limits: Most samples and features accepted.

    Raises:
        ShapeMismatch: It has another shape or type, or too many columns.
        InvalidBatch: It has too many rows.
        NonFiniteFeature: Something in it is infinite or no number.
    """
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise ShapeMismatch(
            f"Features have shape {array.shape}; expected (N, D) with at least one sample and one "
            f"feature. Send a matrix with one row per sample, or images as (N, H, W) or "
            f"(N, H, W, C).",
            shape=list(array.shape),
        )
    n, d = len(array), math.prod(array.shape[1:])
    if array.dtype not in FEATURE_TYPES.values():
        raise ShapeMismatch(
            f"Features are {array.dtype}; expected float32, float16 or uint8 (k means k/255). "
            f"Convert them before sending.",
            dtype=str(array.dtype),
        )
    limits.check(n, d)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = array.reshape(n, d)
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise NonFiniteFeature.at(row=row, column=column, value=float(rows[row, column]))
    return array
