"""Samples as River has them, features by name, and as the engine has them, rows of a matrix.

A model has a fixed number of features: those of the first samples that it learns. Later ones
are left out; those that a sample lacks are the mean of what came before. The model computes with
float32: of a feature that lies too far from zero for that, an offset is taken off (`gmr.offsets`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.http.missing import is_missing
from core.errors import NonFiniteFeature
from gmr.offsets import moved, offsets

LARGEST = float(np.finfo(np.float32).max)
"""What the model computes with holds no larger number."""


class NamedFeatures:
    """The column of each named feature, and its mean.

    Example:
        >>> features = NamedFeatures()
        >>> features.observe([{"a": 1.0, "b": 2.0}, {"a": 3.0}])
        >>> features.rows([{"b": 5.0}, {"b": 1.0, "a": 0.0, "new": 9.0}]).tolist()
        [[2.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self) -> None:
        self._columns: dict[Hashable, int] = {}
        self._sums: NDArray[np.float64] = np.empty(0)
        self._counts: NDArray[np.float64] = np.empty(0)
        self._offsets: NDArray[np.float64] | None = None

    @property
    def names(self) -> tuple[Hashable, ...]:
        """One per column; none before the first samples."""
        return tuple(self._columns)

    def observe(self, samples: Iterable[Mapping[Any, Any]]) -> None:
        """Take samples into the means; the first ones that have features choose the columns."""
        samples = list(samples)
        if not self._columns:
            # In an order of their own: that in which a sample names them must not matter.
            names = sorted({name for sample in samples for name in sample}, key=_order)
            self._columns = {name: column for column, name in enumerate(names)}
            self._sums, self._counts = np.zeros((2, len(names)))
            first = [[as_number(name, sample.get(name)) for name in names] for sample in samples]
            self._offsets = offsets(np.array(first))
        for sample in samples:
            for name, value in sample.items():
                column = self._columns.get(name)
                number = np.nan if column is None else as_number(name, value)
                if column is not None and not np.isnan(number):
                    self._sums[column] += number
                    self._counts[column] += 1

    def rows(self, samples: Iterable[Mapping[Any, Any]]) -> NDArray[np.float32]:
        """The samples, with shape (N, D), less what the first ones say is to be taken off.

        Raises:
            NonFiniteFeature: A value is infinite, or no float32 holds it.
            ValueError, TypeError: A value is no number.
        """
        means = self._sums / np.maximum(self._counts, 1)
        found = []
        for sample in samples:
            row = means.copy()
            for name, value in sample.items():
                column = self._columns.get(name)
                number = np.nan if column is None else as_number(name, value)
                if column is not None and not np.isnan(number):
                    row[column] = number
            found.append(row)
        return moved(np.asarray(found).reshape(len(found), len(means)), self._offsets)


def as_number(name: Hashable, value: Any) -> float:
    """A feature's value; NaN where it is missing: None, NaN, or pandas' NA or NaT.

    Raises:
        NonFiniteFeature: It is infinite, or no float32 holds it.
        ValueError, TypeError: It is no number.
    """
    number = np.nan if is_missing(value) else float(value)
    if abs(number) > LARGEST:
        raise NonFiniteFeature(
            f"The feature {name!r} is {number}, which is not finite or more than a float32 holds. "
            f"Leave it out of the sample where it is unknown."
        )
    return number


def _order(name: Hashable) -> tuple[str, str]:
    return type(name).__name__, repr(name)
