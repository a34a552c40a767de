"""A stream whose changes are known: samples in order, and where they change.

Rules: a stream names rows of a pool, so that long ones cost nothing; how it is cut into
batches is asked of it afterwards, so that all batch sizes see the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIXED = 0
"""Stands for batches of 1 to 10,000 samples, all magnitudes alike."""

LARGEST = 10_000
"""Samples in the largest of mixed batches."""

UNKNOWN = -1
"""Label of a sample that is sent without one."""


@dataclass(frozen=True)
class Change:
    """Where the stream begins to change.

    Attributes:
        sample: Index of the first sample that may come from something else.
        kind: In a word: "abrupt", "gradual", "traffic", "foreign", "return", "burst", "known".
    """

    sample: int
    kind: str

    @property
    def lasting(self) -> bool:
        """Whether it is one that must be found: a burst goes away again."""
        return self.kind != "burst"


@dataclass(frozen=True, eq=False)
class DriftStream:
    """Samples in order, and the truth about them.

    Attributes:
        name: What tells it from others of its family, seed included.
        pool: Samples, with shape (M, D), uint8 (k stands for k/255) or float32.
        rows: Which of the pool comes when, with shape (N,), int64.
        labels: With shape (N,), int64; `UNKNOWN` where there is none.
        changes: In order.
        horizon: Samples after a change within which it must be found; None: until the next.
        test_x: Held out, of all classes, with shape (T, D), like the pool; may be empty.
        test_y: Their labels.
    """

    name: str
    pool: NDArray[Any]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    changes: tuple[Change, ...] = ()
    horizon: int | None = None
    test_x: NDArray[Any] | None = None
    test_y: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, *, told: bool = False
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Minibatches in order, as they are sent: uint8 where they are pixels.

        Arguments:
            size: Samples per batch, or `MIXED`.
            told: Cut at every change, so that none straddles one.
        """
        edges = cut(len(self), size)
        if told:
            edges = sorted({*edges, *(change.sample for change in self.changes)})
        for start, stop in pairwise(edges):
            yield self.pool[self.rows[start:stop]], self.labels[start:stop]


def cut(n: int, size: int, seed: int = 0) -> list[int]:
    """Where batches of a stream of n samples begin, and n.

    Example:
        >>> cut(10, 4)
        [0, 4, 8, 10]
        >>> cut(100_000, MIXED)[:4], cut(100_000, MIXED)[-1]
        ([0, 353, 365, 366], 100000)
    """
    if size != MIXED:
        return [*range(0, n, size), n]
    rng = np.random.default_rng(seed)
    edges = [0]
    while edges[-1] < n:
        step = round(float(np.exp(rng.uniform(0, np.log(LARGEST)))))
        edges.append(min(n, edges[-1] + step))
    return edges
