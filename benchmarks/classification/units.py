"""The same samples in other units, which change nothing of what there is to learn.

Each variant but `junk` is x * scale + shift, one scale and one shift per feature, reckoned in
float64 and rounded to float32 once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.stream import LabelledStream

AS_IS = "as-is"

SMALL, LARGE = 1e-6, 1e6
CONSTANT = 7.0

Array = NDArray[np.float64]


def _unit(x: Array) -> Array:
    """Every feature from 0 to 1; a constant one is 0."""
    low, high = x.min(0), x.max(0)
    found: Array = (x - low) / np.where(high > low, high - low, 1)
    return found


def _junk(x: Array) -> Array:
    """With a constant feature, and the first one twice."""
    return np.hstack([x, np.full((len(x), 1), CONSTANT), x[:, :1]])


UNITS: dict[str, Callable[[Array], Array]] = {
    AS_IS: lambda x: x,
    "unit": _unit,
    "micro": lambda x: SMALL * x,
    "mega": lambda x: LARGE * x,
    "junk": _junk,
}
"""Name -> samples (N, D) in those units, (N, D) or (N, D + 2)."""


def in_units(stream: LabelledStream, units: str) -> LabelledStream:
    """A stream in other units.

    Arguments:
        units: One of `UNITS`.
    """
    x = UNITS[units](stream.x.astype(np.float64))
    return replace(stream, x=np.ascontiguousarray(x, np.float32))
