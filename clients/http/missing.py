"""What stands for no value among labels and ids, as programs and pandas write it."""

from __future__ import annotations

import sys
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

LARGEST: Final = 2**53
"""Up to this every integer is a float of its own."""


class Column(Protocol):
    """A column of pandas: a Series, an Index."""

    def to_numpy(self) -> Any:
        """Its values, with shape (N,)."""


def is_missing(value: object) -> bool:
    """Whether a label or an id is none: None, a float that is NaN, or pandas' NA and NaT.

    Example:
        >>> [is_missing(one) for one in (None, float("nan"), np.float32("nan"), 0, "", "nan")]
        [True, True, True, False, False, False]
    """
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    pandas = sys.modules.get("pandas")  # whoever holds its NA has imported it
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def plain(values: Any) -> Any:
    """Labels or ids of a program: those of pandas as NumPy's or Python's, with None for none.

    In an array of floats whole numbers are integers: pandas makes floats of integers where
    some are missing. Beyond 2^53 a float may stand for several integers, and stays one.

    Arguments:
        values: A list, an array (N,), or a column of pandas. What is no such thing stays as it is.

    Example:
        >>> plain(np.array([3, np.nan])), plain(["a", float("nan")]), plain("text")
        ([3, None], ['a', None], 'text')
        >>> plain(np.array([2.0**53, 2.0**54]))
        [9007199254740992, 1.8014398509481984e+16]
    """
    if hasattr(values, "to_numpy"):  # a Series, an Index
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "fO":
            return values
        return _of_array(values)
    if isinstance(values, list | tuple):
        return [None if is_missing(one) else one for one in values]
    return values


def _of_array(values: NDArray[Any]) -> list[Any]:
    floats = values.dtype.kind == "f"

    def of_one(one: Any) -> Any:
        if is_missing(one):
            return None
        return int(one) if floats and one.is_integer() and abs(one) <= LARGEST else one

    return [of_one(one) for one in values.tolist()]
