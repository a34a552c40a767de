"""The streams by name, and which half of them each belongs to.

Settings are chosen on half "a" and reported on half "b". What comes from one source (a table in
three orders, a generator with three kinds of drift) is in one half, so that nothing of b was seen
when something was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.classification import board, clusters
from benchmarks.classification.concepts import DRIFTING, GENERATORS, KINDS, changing, drifting
from benchmarks.classification.stream import LabelledStream
from benchmarks.classification.tables import ORDERS, TABLES, ordered
from clients.data.datasets import load_dataset

HALVES = ("a", "b")

SAMPLES = 10_000
"""Of a stream, at most, unless something else is asked for."""

NEED_RIVER = ("banana", "segments", "phishing", "flare", *GENERATORS, *DRIFTING)
"""Sources that the library has."""

_A = {
    "elec2",
    "sea-file",
    "ad-pendigits",
    "banana",
    "phishing",
    "wine",
    "digits",
    "sea",
    "agrawal",
    "led",
    "hyperplane",
    "circle",
    "squares",
    "board-transient",
    "blobs-growing",
}
"""Sources of the half in which settings are chosen; all others are reported on."""

_OUTLIERS = ("ad_pendigits", "ad_satellite", "ad_shuttle")


@dataclass(frozen=True)
class Source:
    """Where a stream comes from.

    Attributes:
        name: Of the stream.
        family: "folder", "table", "generator", "moving", "board" or "incremental".
        origin: What it has in common with others: a table, a generator.
        make: Samples at most and seed -> the stream; the same for the same two.
        stationary: Whether samples are drawn alike from first to last.
    """

    name: str
    family: str
    origin: str
    make: Callable[[int, int], LabelledStream]
    stationary: bool = False

    @property
    def half(self) -> str:
        """One of `HALVES`."""
        return "a" if self.origin in _A else "b"

    @property
    def needs_river(self) -> bool:
        """Whether it cannot be made without that library."""
        return self.origin in NEED_RIVER


def _filed(
    name: str, source: str, n: int, seed: int, *, thinned: bool = False, shuffled: bool = False
) -> LabelledStream:
    """A data set of the folder in its own order, its first samples.

    Arguments:
        thinned: Take samples from all of it instead, evenly.
        shuffled: Take samples at random instead: its order means nothing.
    """
    data = load_dataset(source)
    total = len(data.train_y)
    rows = np.arange(min(n, total))
    if thinned:
        rows = rows * total // len(rows)
    if shuffled:
        rows = np.random.default_rng(seed).permutation(total)[: len(rows)]
    changes = tuple(
        int(place)
        for place in np.searchsorted(rows, data.drift_points)
        if not shuffled and 0 < place < len(rows)
    )
    x = np.asarray(data.train_x[rows], dtype=np.float32)
    return LabelledStream(name, x, data.train_y[rows].astype(np.int64), changes)


def _sources() -> list[Source]:
    sea_file = partial(_filed, "sea-file", "stream_sea", thinned=True)
    found = [
        Source("elec2", "folder", "elec2", partial(_filed, "elec2", "stream_elec2")),
        Source("sea-file", "folder", "sea-file", sea_file),
        Source("interrbf", "folder", "interrbf", partial(_filed, "interrbf", "stream_interrbf")),
    ]
    for name in _OUTLIERS:
        own = name.replace("_", "-")
        found.append(Source(own, "folder", own, partial(_filed, own, name, shuffled=True), True))
    for name in TABLES:
        for order in ORDERS:
            make = partial(ordered, name, order)
            found.append(Source(f"{name}-{order}", "table", name, make, order == "random"))
    for name in GENERATORS:
        found += [
            Source(f"{name}-{kind}", "generator", name, partial(changing, name, kind))
            for kind in KINDS
        ]
    found += [Source(name, "generator", name, partial(drifting, name)) for name in DRIFTING]
    for name, turn in (("circle", 2e-4), ("circle-fast", 6e-4)):
        found.append(Source(name, "moving", "circle", partial(clusters.circle, name, turn)))
    found += [
        Source("walk", "moving", "walk", partial(clusters.walk, "walk")),
        Source("squares", "moving", "squares", partial(clusters.squares, "squares")),
        Source("board-fields", "board", "board-fields", partial(board.fields, "board-fields")),
        Source(
            "board-transient",
            "board",
            "board-transient",
            partial(board.transient, "board-transient"),
        ),
        Source("plane", "board", "plane", partial(board.plane, "plane")),
    ]
    for name, growing in (("blobs-single", False), ("blobs-growing", True)):
        found.append(Source(name, "incremental", name, partial(clusters.blobs, name, growing)))
    return found


SOURCES: dict[str, Source] = {source.name: source for source in _sources()}
"""Name -> where the stream comes from."""

FAMILIES = tuple(dict.fromkeys(source.family for source in SOURCES.values()))
