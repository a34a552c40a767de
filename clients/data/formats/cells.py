"""What a cell of a table holds: a number, a category, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clients.data.formats.numerals import POINT, Numerals

ABSENT: Final = frozenset(("", "?", "na", "n/a", "nan", "none", "null"))
"""How tables write that a number is missing, in small letters."""

LARGEST: Final = float(np.finfo(np.float32).max)
"""The largest number that a feature can hold."""


def number_of(value: object, numerals: Numerals = POINT) -> float | None:
    """The number that a cell holds, NaN where it is missing; it may be infinite.

    None where it holds something else, or a finite number beyond those of a float32.

    Example:
        >>> number_of("2.5"), number_of(True), number_of("N/A"), number_of("red")
        (2.5, 1.0, nan, None)
        >>> number_of("-inf"), number_of("1e999"), number_of("1e99")
        (-inf, inf, None)
    """
    if isinstance(value, str):
        text = value.strip()
        if text.casefold() in ABSENT:
            return math.nan
        try:
            value = numerals.feature(text)
        except ValueError:
            return None
    if value is None:
        return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return None if LARGEST < abs(number) < math.inf else number


def category_of(value: object) -> str | None:
    """The category that a cell holds; None where it is missing.

    Example:
        >>> category_of(" red "), category_of(3), category_of("3.0"), category_of("")
        ('red', '3', '3', None)
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    text = str(value).strip()
    whole = text.removesuffix(".0")  # as tools write codes once one of them is missing
    return (whole if whole.lstrip("-").isdecimal() else text) or None


def numbers_of(values: Sequence[object], numerals: Numerals = POINT) -> NDArray[np.float64] | None:
    """The numbers of cells, as `number_of`; None where that is None for one of them."""
    codes = any(isinstance(value, str) and "_" in value for value in values)
    if numerals.decimal == "." and not codes:
        # As nearly all tables are written: at once.
        with suppress(TypeError, ValueError):
            numbers = np.array(values, dtype=np.float64)
            size = np.abs(numbers)
            return None if ((size > LARGEST) & (size < math.inf)).any() else numbers
    found = [number_of(value, numerals) for value in values]
    known = [number for number in found if number is not None]
    return np.array(known) if len(known) == len(found) else None
