"""What everybody can do who takes part."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Features, Labels


class Opponent(Protocol):
    """Names samples, and learns from their labels.

    Rule: what is learned in one call is what one batch brings, in the stream's order; classes
    become known by their first label.
    """

    def predict(self, x: Features) -> Labels:
        """The class of each of N samples, by what was learned so far.

        Arguments:
            x: Samples, with shape (N, D).

        Returns:
            Classes, with shape (N,); `NOBODY` while none is known.
        """
        ...

    def learn(self, x: Features, y: Labels) -> None:
        """Learn N samples, with shape (N, D), and their classes, with shape (N,)."""
        ...


class LastLabel:
    """Whoever follows will be called as the last one was."""

    def __init__(self) -> None:
        self._last = NOBODY

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        return np.full(len(x), self._last, dtype=np.int64)

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        self._last = int(y[-1])


class Majority:
    """The class that was the most frequent so far; of several, the first by number."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        best = max(sorted(self._counts), key=self._counts.__getitem__, default=NOBODY)
        return np.full(len(x), best, dtype=np.int64)

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        for label in y.tolist():
            self._counts[label] = self._counts.get(label, 0) + 1
