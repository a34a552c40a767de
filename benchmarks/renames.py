"""How soon is a class called by a name never heard before, and is one that stays away kept?

Embeddings of digits and clothes and made-up texts, as of `gmr bench embeddings`, all labelled, in
batches of 100 that are named before they are learned. From the middle of the stream on samples of
one class have a new label. *Found* is after how many of these three in four of the next twenty are
called by it; *new* and *others* are accuracy on them and on the rest in the last quarter of the
stream. *Kept*: in another passage that class does not come from the middle on; held-out samples of
it that are called by its name at the end, in per cent of those that were in the middle.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification import registry
from benchmarks.classification.opponent import Opponent
from benchmarks.classification.stream import LabelledStream, Labels
from benchmarks.embeddings import BATCH, Made, embedded_images, words
from clients.commands.bench import Measurement, Say, Table

SIZE = 128
SAMPLES, HELD_OUT = 6000, 1000
RENAMED: tuple[int, ...] = (0, 3, 7)
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mfa": ("mfa", {}),
    "flat": ("flat", {}),
    "knn-scaled": ("knn-scaled", {}),
    "sgd": ("sgd", {}),
}
"""Name in the table -> opponent and its settings."""

NEXT, NAMED = 20, 0.75
"""Samples of the class of which so many are called by the new name once it is found."""


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: texts of 64 words, one class, the engine alone."""
    sets: dict[str, Made] = {"words": partial(words, SAMPLES + HELD_OUT)}
    classes, systems, size = RENAMED, SYSTEMS, SIZE
    if quick:
        sets, classes, size = {"words": partial(words, 1500)}, RENAMED[:1], 64
        systems = dict(list(SYSTEMS.items())[:2])
    else:
        sets = {**embedded_images(say), **sets}
    rows, values = [], []
    for name, made in sets.items():
        x, y = made(size)
        for system in systems:
            runs = [_measured(system, LabelledStream(name, x, y), one) for one in classes]
            values += [
                {"set": name, "system": system, "class": one, **run}
                for one, run in zip(classes, runs, strict=True)
            ]
            rows.append((name, system, *_cells(runs)))
            say("  ".join(rows[-1]))
    columns = ("set", "system", "found, samples", "new, %", "others, %", "kept, %")
    title = f"A name never heard before: classes {', '.join(map(str, classes))} in turn"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def _cells(runs: list[dict[str, float | None]]) -> tuple[str, ...]:
    """One row of a table: of every class one after the other."""
    found = ["never" if run["found"] is None else f"{run['found']:.0f}" for run in runs]
    shares = [
        " / ".join("-" if run[key] is None else f"{100 * (run[key] or 0):.0f}" for run in runs)
        for key in ("new", "others", "kept")
    ]
    return (" / ".join(found), *shares)


def _measured(system: str, stream: LabelledStream, one: int) -> dict[str, float | None]:
    """What became of one class."""
    n = len(stream) - min(HELD_OUT, len(stream) // 6)
    later = np.arange(n) >= n // 2
    y = stream.y[:n].copy()
    mine = (y == one) & later
    y[mine] = stream.y.max() + 1
    renamed = LabelledStream(stream.name, stream.x[:n], y)
    right = _named(_opponent(system, renamed), renamed) == y
    last = np.arange(n) >= n - n // 4

    stays = ~((stream.y[:n] == one) & later)
    away = LabelledStream(stream.name, stream.x[:n][stays], stream.y[:n][stays])
    middle = int(np.searchsorted(np.flatnonzero(stays), n // 2))
    opponent = _opponent(system, away)
    held = stream.x[n:][stream.y[n:] == one]
    _named(opponent, away, 0, middle)
    before = int((opponent.predict(held) == one).sum())
    _named(opponent, away, middle)
    after = int((opponent.predict(held) == one).sum())
    return {
        "found": _found(right[mine]),
        "new": float(right[mine & last].mean()),
        "others": float(right[~mine & last].mean()),
        "kept": after / before if before else None,
    }


def _opponent(system: str, stream: LabelledStream) -> Opponent:
    name, settings = SYSTEMS[system]
    return registry.make(name, stream, 0, settings)


def _named(opponent: Opponent, stream: LabelledStream, begin: int = 0, end: int = -1) -> Labels:
    """What samples are called before they are learned."""
    end = len(stream) if end < 0 else end
    found = []
    for start in range(begin, end, BATCH):
        rows = slice(start, min(start + BATCH, end))
        found.append(opponent.predict(stream.x[rows]))
        opponent.learn(stream.x[rows], stream.y[rows])
    named: Labels = np.concatenate(found)
    return named


def _found(right: NDArray[np.bool_]) -> int | None:
    """After how many samples the next ones are called by their name; None: never.

    Arguments:
        right: Whether each was, in stream order.
    """
    for start in range(len(right) - NEXT + 1):
        if right[start : start + NEXT].mean() >= NAMED:
            return start
    return None
