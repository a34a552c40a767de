"""Families of streams, by name: what changes, how, and where.

Rules: a stream depends on the data, the family, its own name and the seed in it, and on
nothing else; samples come from the training part only, none twice unless the data set is
smaller than what is asked for and `Size.repeat` allows it; accuracy, where it is asked
for, is taken on the test part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.stream import UNKNOWN, Change, DriftStream
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT
from clients.http.errors import InputError

Rows = NDArray[np.int64]

SLTS = ("D2-2-2-2-2a", "D2-2-2-2-2b", "D5-5a", "D5-5b", "D9-1a", "D9-1b")
"""The paper's tasks that have boundaries: twelve of them."""

FOREIGN = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
"""Data set -> where samples come from that are of none of its classes. Others take classes
of their own that the stream leaves out."""

CLASSES = 10
"""Classes of a data set that are used, the first ones."""

AUTOCORRELATED = ("file order", "sticky", "priors")


@dataclass(frozen=True)
class Size:
    """How long streams are, in samples.

    Attributes:
        per_class: Of each class of a sub-task, in `slt`; of the first class, in `pairs`.
        second: Of the second class, in `pairs`.
        before: Before the change, in `gradual`, `traffic` and `contamination`.
        ramp: From the first sample of the new to the last of the old, in `gradual`.
        after: After the change, in the same.
        burst: While foreign samples come and go, in `contamination`.
        stretch: Of each part of `recurring`.
        short: Of each class, in `short`.
        null: Of a stream without change.
        table: Of a stream of the data folder, at most.
        seeds: Of `slt`.
        streams: Of `gradual`, `traffic`, `contamination`, `recurring` and `short`.
        pairs: Of `pairs`, at most.
        repeat: Whether samples may come again where there are not enough.
    """

    per_class: int = 3000
    second: int = 1000
    before: int = 5000
    ramp: int = 5000
    after: int = 3000
    burst: int = 1000
    stretch: int = 3000
    short: int = 500
    null: int = 60_000
    table: int = 60_000
    seeds: int = 3
    streams: int = 12
    pairs: int = 90
    repeat: bool = False


FULL = Size()

SMALL = Size(
    per_class=1500,
    second=500,
    before=2000,
    ramp=1000,
    after=1000,
    burst=500,
    stretch=1500,
    null=4000,
    table=4000,
    seeds=1,
    streams=1,
    pairs=3,
    repeat=True,
)
"""For a minute's look at the digits that ship with scikit-learn."""


def slt(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """The paper's sequential learning tasks, classes of a sub-task mixed."""
    for seed in range(size.seeds):
        for name in SLTS:
            rng = _rng(name, seed)
            parts = [
                rng.permutation(
                    np.concatenate(
                        [_draw(data, int(c), size.per_class, size, rng) for c in classes]
                    )
                )
                for classes in SLT.parse(name).sub_tasks
            ]
            yield _joined(f"{name} seed {seed}", data, parts, test=True)


def pairs(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """One class, then another: all ordered pairs."""
    wanted = list(permutations(range(CLASSES), 2))
    # A smaller number is spread over all of them, not taken from the front.
    step = max(1, len(wanted) // size.pairs)
    for first, second in wanted[::step][: size.pairs]:
        rng = _rng("pair", first, second)
        parts = [
            _draw(data, first, size.per_class, size, rng),
            _draw(data, second, size.second, size, rng),
        ]
        yield _joined(f"{first} then {second}", data, parts)


def gradual(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """From half of the classes to the other half: the share of the new rises as a sigmoid.

    It must be found within 1.2 ramps of the ramp's beginning.
    """
    for seed in range(size.streams):
        rng = _rng("gradual", seed)
        old, new = np.split(rng.permutation(CLASSES), 2)
        place = np.linspace(-6, 6, size.ramp)
        share = np.concatenate(
            [np.zeros(size.before), 1 / (1 + np.exp(-place)), np.ones(size.after)]
        )
        fresh = rng.random(len(share)) < share
        rows = np.empty(len(share), np.int64)
        rows[~fresh] = _mixed(data, old.tolist(), int((~fresh).sum()), size, rng)
        rows[fresh] = _mixed(data, new.tolist(), int(fresh.sum()), size, rng)
        changes = (Change(size.before, "gradual"),)
        yield _stream(f"seed {seed}", data, rows, changes, horizon=size.ramp * 6 // 5)


def traffic(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """One class is new from some sample on, and makes up a fifth of the traffic."""
    for seed in range(size.streams):
        rng = _rng("traffic", seed)
        new = seed % CLASSES
        old = [c for c in range(CLASSES) if c != new]
        n = size.before + size.after
        fresh = (rng.random(n) < 0.2) & (np.arange(n) >= size.before)
        rows = np.empty(n, np.int64)
        rows[~fresh] = _mixed(data, old, int((~fresh).sum()), size, rng)
        rows[fresh] = _draw(data, new, int(fresh.sum()), size, rng)
        yield _stream(f"class {new} seed {seed}", data, rows, (Change(size.before, "traffic"),))


def contamination(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """A tenth of the samples is foreign: in one half of the streams for a while, else for good."""
    foreign = _foreign(data)
    pool = np.concatenate([data.train_x, foreign])
    for seed in range(size.streams):
        rng = _rng("contamination", seed)
        burst = seed % 2 == 0
        n = size.before + size.burst + size.after
        place = np.arange(n)
        last = size.before + size.burst if burst else n
        strange = (rng.random(n) < 0.1) & (place >= size.before) & (place < last)
        rows = np.empty(n, np.int64)
        rows[~strange] = _mixed(data, range(CLASSES), int((~strange).sum()), size, rng)
        drawn = _endless(np.arange(len(foreign)), int(strange.sum()), rng)
        rows[strange] = len(data.train_x) + drawn
        labels = np.concatenate([data.train_y, np.full(len(foreign), UNKNOWN)])[rows]
        kind = "burst" if burst else "foreign"
        changes = (Change(size.before, kind),)
        yield DriftStream(f"{kind} seed {seed}", pool, rows, labels, changes)


def recurring(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """Half of the classes, the other half, and both again."""
    for seed in range(size.streams):
        rng = _rng("recurring", seed)
        halves = [half.tolist() for half in np.split(rng.permutation(CLASSES), 2)]
        twice = [_mixed(data, half, 2 * size.stretch, size, rng) for half in halves]
        parts = [rows[turn::2] for turn in (0, 1) for rows in twice]
        starts = accumulate(map(len, parts[:-1]))
        kinds = ("abrupt", "return", "return")
        changes = tuple(Change(at, kind) for at, kind in zip(starts, kinds, strict=True))
        yield _stream(f"seed {seed}", data, np.concatenate(parts), changes)


def short(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """All classes, one after the other, none for long."""
    for seed in range(size.streams):
        rng = _rng("short", seed)
        order = rng.permutation(CLASSES)
        parts = [_draw(data, int(c), size.short, size, rng) for c in order]
        yield _joined(f"seed {seed}", data, parts)


def null(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """No change: independent samples of one class, and of ten.

    Where the data set ends it begins again, in another order.
    """
    for name, classes in (("one class", [0]), ("ten classes", range(CLASSES))):
        rng = _rng("null", name)
        rows = _endless(_of(data, classes), size.null, rng)
        yield _stream(f"iid {name}", data, rows, ())


def autocorrelated(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """No new class and none that leaves, but neighbours resemble each other.

    The order of the file; classes that stay for twenty samples on average; shares of the
    classes that turn once in 5,000 samples.
    """
    n = size.null
    known = _of(data, range(CLASSES))
    yield _stream("file order", data, np.resize(known, n), ())
    for name in ("sticky", "priors"):
        rng = _rng("autocorrelated", name)
        if name == "sticky":
            moves = rng.random(n) < 0.05
            drawn = rng.integers(0, CLASSES, n)
            last = np.maximum.accumulate(np.where(moves, np.arange(n), 0))
            classes = drawn[last]
        else:
            phase = 2 * np.pi * np.arange(n)[:, None] / 5000
            share = 1 + 0.8 * np.sin(phase + 2 * np.pi * np.arange(CLASSES) / CLASSES)
            edges = (share / share.sum(1, keepdims=True)).cumsum(1)
            classes = (rng.random(n)[:, None] > edges).sum(1).clip(max=CLASSES - 1)
        rows = np.empty(n, np.int64)
        for c in range(CLASSES):
            mine = classes == c
            rows[mine] = _endless(_of(data, [c]), int(mine.sum()), rng)
        yield _stream(name, data, rows, ())


def table(data: Dataset, size: Size) -> Iterator[DriftStream]:
    """A stream of the data folder in its own order; where changes are not known, none is true."""
    n = min(len(data.train_y), size.table)
    changes = tuple(Change(at, "known") for at in data.drift_points if 0 < at < n)
    yield _stream("its own order", data, np.arange(n), changes)


def clouds(n: int = 60_000, d: int = 16, seed: int = 0) -> Dataset:
    """Made-up data without end: ten Gaussian clouds in d dimensions, every sample new."""
    rng = np.random.default_rng([seed, d])
    means = rng.normal(0, 2, (CLASSES, d))
    labels = rng.integers(0, CLASSES, n)
    x = (means[labels] + rng.normal(0, 1, (n, d))).astype(np.float32)
    return Dataset("clouds", x, labels.astype(np.int64), x[:0], labels[:0])


Family = Callable[[Dataset, Size], Iterator[DriftStream]]

FAMILIES: dict[str, Family] = {
    "slt": slt,
    "pairs": pairs,
    "gradual": gradual,
    "traffic": traffic,
    "contamination": contamination,
    "recurring": recurring,
    "short": short,
    "null": null,
    "autocorrelated": autocorrelated,
    "table": table,
}
"""Name -> streams of that family."""

TABLES = ("stream_elec2", "stream_sea", "stream_interrbf")


def data_named(name: str, size: Size) -> Dataset:
    """A data set, or `clouds`, which are made up as long as null streams are."""
    return clouds(max(size.null, 20_000)) if name == "clouds" else load_dataset(name)


def _rng(*key: str | int) -> np.random.Generator:
    """Of its own for every stream, the same on every data set."""
    return np.random.default_rng([v for part in key for v in str(part).encode()])


def _of(data: Dataset, classes: Sequence[int] | range) -> Rows:
    rows: Rows = np.flatnonzero(np.isin(data.train_y, list(classes)))
    if not len(rows):
        raise InputError(
            f"{data.name} has no sample of the classes {list(classes)}. Choose a data set with "
            f"classes 0 to {CLASSES - 1}."
        )
    return rows


def _draw(data: Dataset, label: int, n: int, size: Size, rng: np.random.Generator) -> Rows:
    """n samples of a class, or as many as there are."""
    rows = _of(data, [label])
    return _endless(rows, n, rng) if size.repeat else rng.permutation(rows)[:n]


def _mixed(
    data: Dataset, classes: Sequence[int] | range, n: int, size: Size, rng: np.random.Generator
) -> Rows:
    """Exactly n samples of some classes."""
    rows = _of(data, classes)
    if n > len(rows) and not size.repeat:
        raise InputError(
            f"{n} samples of the classes {list(classes)} are needed, and {data.name} has "
            f"{len(rows)}. Take a smaller size, or let samples repeat."
        )
    return _endless(rows, n, rng)


def _endless(rows: Rows, n: int, rng: np.random.Generator) -> Rows:
    """n of these, pass after pass, each in another order."""
    passes = [rng.permutation(rows) for _ in range(-(-n // len(rows)))]
    drawn: Rows = np.concatenate([rows[:0], *passes])[:n]
    return drawn


def _foreign(data: Dataset) -> NDArray[np.generic]:
    """Samples, with shape (M, D), of none of the classes used."""
    if data.name in FOREIGN:
        return load_dataset(FOREIGN[data.name]).test_x
    others = data.train_x[data.train_y >= CLASSES]
    # Data with no other classes are contaminated by their own images, upside down.
    return others if len(others) else data.test_x[:, ::-1]


def _joined(name: str, data: Dataset, parts: Sequence[Rows], *, test: bool = False) -> DriftStream:
    changes = tuple(Change(at, "abrupt") for at in accumulate(map(len, parts[:-1])))
    return _stream(name, data, np.concatenate(parts), changes, test=test)


def _stream(
    name: str,
    data: Dataset,
    rows: Rows,
    changes: tuple[Change, ...],
    *,
    horizon: int | None = None,
    test: bool = False,
) -> DriftStream:
    kept = np.isin(data.test_y, np.unique(data.train_y[rows])) if test else slice(0, 0)
    return DriftStream(
        name,
        data.train_x,
        rows,
        data.train_y[rows].astype(np.int64),
        changes,
        horizon,
        data.test_x[kept],
        data.test_y[kept],
    )
