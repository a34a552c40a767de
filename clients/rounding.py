"""What float32 loses of other numbers: columns that lie far from zero for what varies in them.

Seconds since 1970 are near 1.8e9, where neighbouring float32 are 128 apart. `lost` is the rule;
whoever sends warns by it, and estimators move such columns (`gmr.offsets`). `core.engine.rounding`
has what is said here of an engine's batches, and `core.memory.coarse_features` what is said of a
model.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.precision import PrecisionLost

WHOLE: Final = 2.0**24
"""Up to this every integer is a float32."""

ENOUGH: Final = 1000
"""Samples, spread evenly, that tell a column's width."""

COARSE: Final = 1 / (20 * 2.56)
"""Part of a column's width beyond which the distance of neighbouring float32 is told: of a normal
column a twentieth of its deviation, as `GET /model` tells it."""

FEWEST: Final = 10
"""Samples of a batch that tell its columns' width: of one alone an offset cannot be known."""


class Lost(NamedTuple):
    """What float32 does to columns."""

    columns: NDArray[np.bool_]  # (D,) whether it loses what varies in them
    centre: NDArray[np.float64]  # (D,) medians


def lost(x: NDArray[Any], part: float) -> Lost:
    """Columns of which float32 loses what varies, by how far apart these lie at the median.

    Arguments:
        x: Samples, with shape (N, D), N and D above 0; NaN where a value is missing.
        part: Of a column's width, that the distance of neighbouring float32 may be.
    """
    some = x[:: math.ceil(len(x) / ENOUGH)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column without any value
        # The same numbers; the one for missing values takes columns one by one.
        quantile = np.nanquantile if np.isnan(some).any() else np.quantile
        low, centre, high = quantile(some, (0.1, 0.5, 0.9), axis=0)
        widest = np.nanmax(some, axis=0) - np.nanmin(some, axis=0)
    width = np.where(high > low, high - low, widest)  # strays must not widen it
    held = np.abs(centre).clip(max=float(np.finfo(np.float32).max))
    spacing = np.spacing(held.astype(np.float32)).astype(np.float64)
    columns = np.where(width > 0, spacing > part * width, np.abs(centre) > WHOLE)
    return Lost(columns, centre)


def is_wide(values: NDArray[Any]) -> bool:
    """Whether these are a table of a type that float32 cannot hold."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    return values.ndim == 2 and (size > 4 if kind == "f" else kind in "iu" and size > 2)


def rounded_columns(values: NDArray[Any]) -> tuple[int, ...]:
    """Columns that float32 is too coarse for, and that it does not hold as they are.

    Arguments:
        values: Samples, with shape (N, D), or others, of which nothing is said.

    Example:
        >>> rounded_columns(np.array([[0.5 * i, 1.8e9 + i] for i in range(50)]))
        (1,)
        >>> rounded_columns(np.array([[0.5 * i, 2024.0] for i in range(50)]))
        ()
    """
    if len(values) < FEWEST or not values.size or not is_wide(values):
        return ()
    some = values[:: math.ceil(len(values) / ENOUGH)].astype(np.float64)
    with np.errstate(all="ignore"):  # what is not finite is found by those who send it
        changed = (some.astype(np.float32) != some).any(axis=0)
        places = np.flatnonzero(lost(some, COARSE).columns & changed)
    return tuple(places.tolist())


class Rounding:
    """Looks at the first samples that are made float32, until columns of them lose something.

    Attributes:
        columns: Names of those columns, or their places; empty where there are none.
    """

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self._looked = 0
        self._told = False

    def look(self, values: NDArray[Any], names: Iterable[object] | None = None) -> None:
        """Look at samples, unless enough were looked at or columns were found.

        Arguments:
            values: Samples, with shape (N, D), or others, of which nothing is said.
            names: What the columns are called; None where they have no names.
        """
        if self.columns or self._looked >= ENOUGH or values.ndim != 2 or not is_wide(values):
            return
        self._looked += len(values)
        places = rounded_columns(values)
        called = dict(enumerate(() if names is None else names))
        self.columns = tuple(str(called.get(place, place)) for place in places)

    def news(self, where: str) -> PrecisionLost | None:
        """The warning of those columns, once; None where there are none, and later.

        Arguments:
            where: What the columns are of.
        """
        if self._told or not self.columns:
            return None
        self._told = True
        return PrecisionLost.of(self.columns, where)

    def looked_at(self, features: ArrayLike, *, stacklevel: int = 3) -> ArrayLike:
        """Features that a program sends, with a warning where they are the first of that kind.

        Arguments:
            features: Samples, as `GMRClient.ingest` takes them.
            stacklevel: As `warnings.warn` takes it; 3 is the caller of who calls this.
        """
        names = getattr(features, "columns", None)  # of a DataFrame
        values = np.asarray(features)
        self.look(values, names)
        if (news := self.news("the batch")) is not None:
            warnings.warn(news, stacklevel=stacklevel)
        return values
