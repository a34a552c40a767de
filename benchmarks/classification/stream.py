"""A stream of labelled samples, to be named one batch after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelledStream:
    """Samples in order, with their labels.

    Attributes:
        name: Of the stream.
        x: Samples, with shape (N, D), float32, finite.
        y: Classes, with shape (N,), int64.
        changes: Samples before which what is to be learned is known to change, ascending. Empty
            where nothing does, where it does all the time, and where nobody knows.
    """

    name: str
    x: Features
    y: Labels
    changes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels that occur, sorted."""
        return tuple(np.unique(self.y).tolist())
