"""The arrays that travel, and their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def buffer(array: Array) -> memoryview:
    """The bytes of an array, not copied where it lies row by row already."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
