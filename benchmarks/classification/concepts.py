"""River's generators, with concepts that change abruptly, gradually, or come back.

A *concept* is one setting of a generator. Every sample is drawn from one concept, and which one
depends on its place in the stream alone, and on the seed where the change is gradual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.stream import LabelledStream

Row = dict[Any, Any]
Samples = Iterator[tuple[Row, Any]]

KINDS = ("abrupt", "gradual", "recurring")

RETURNS = 6
"""Stretches of a recurring stream, which two concepts share in turns."""

WIDTH = 0.1
"""Of a gradual change: the share of the stream in which it mostly happens."""


@dataclass(frozen=True)
class Generator:
    """One of River's.

    Attributes:
        make: Setting and seed -> endless samples.
        settings: Concepts, in the order in which they come.
        recurring: The two that take turns.
        levels: Feature -> the values of one that is a category; it becomes one feature for each.
    """

    make: Callable[[int, int], Samples]
    settings: tuple[int, ...]
    recurring: tuple[int, int]
    levels: dict[Any, tuple[int, ...]]

    def numbers(self, row: Row) -> list[float]:
        """A row as features."""
        found: list[float] = []
        for name, value in row.items():
            if name in self.levels:
                found += [float(value == level) for level in self.levels[name]]
            else:
                found.append(float(value))
        return found


def _sea(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(synth.SEA(variant=setting, noise=0.1, seed=seed))


def _stagger(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(synth.STAGGER(classification_function=setting, seed=seed))


def _agrawal(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(synth.Agrawal(classification_function=setting, perturbation=0.05, seed=seed))


def _sine(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(synth.Sine(classification_function=setting, seed=seed))


def _mixed(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(synth.Mixed(classification_function=setting, seed=seed))


def _led(setting: int, seed: int) -> Samples:
    from river.datasets import synth

    return iter(
        synth.LEDDrift(
            seed=seed, noise_percentage=0.1, irrelevant_features=True, n_drift_features=setting
        )
    )


GENERATORS = {
    "sea": Generator(_sea, (0, 1, 2, 3), (3, 2), {}),
    "stagger": Generator(
        _stagger, (0, 1, 2), (0, 2), dict.fromkeys(("size", "color", "shape"), (0, 1, 2))
    ),
    "agrawal": Generator(
        _agrawal, (0, 3, 6, 9), (0, 6), {"car": tuple(range(1, 21)), "zipcode": tuple(range(9))}
    ),
    "sine": Generator(_sine, (0, 1, 2, 3), (0, 3), {}),
    "mixed": Generator(_mixed, (0, 1), (0, 1), {}),
    "led": Generator(_led, (0, 3, 5, 7), (0, 7), {}),
}
"""Name -> generator whose setting changes. A tenth of SEA's labels and of LED's lights is wrong."""


def changing(name: str, kind: str, n: int, seed: int) -> LabelledStream:
    """A generator whose concept changes.

    Arguments:
        name: One of `GENERATORS`.
        kind: "abrupt", all concepts for equally long; "gradual", the same, but a sample is of the
            next concept with probability 1 / (1 + exp(-4 (t - change) / width)), as in River's
            `ConceptDriftStream`; "recurring", two concepts in turns.
        n: Samples.
        seed: Of every draw.
    """
    generator = GENERATORS[name]
    if kind == "recurring":
        settings = [generator.recurring[turn % 2] for turn in range(RETURNS)]
    else:
        settings = list(generator.settings)
    changes = [round(n * turn / len(settings)) for turn in range(1, len(settings))]
    concept = _schedule(n, changes, WIDTH * n if kind == "gradual" else 0.0, seed)
    # A seed for each concept: with one for all, they would draw the same samples again.
    sources = {
        setting: generator.make(setting, len(generator.settings) * seed + place)
        for place, setting in enumerate(generator.settings)
    }
    drawn = [next(sources[settings[which]]) for which in concept]
    return _stream(f"{name}-{kind}", drawn, generator.numbers, tuple(changes))


def _schedule(n: int, changes: list[int], width: float, seed: int) -> NDArray[np.int64]:
    """Which concept each sample is of, with shape (N,)."""
    t = np.arange(n)
    if not width:
        return np.searchsorted(changes, t, side="right").astype(np.int64)
    draws = np.random.default_rng(seed).random((len(changes), n))
    which = np.zeros(n, dtype=np.int64)
    for number, (change, draw) in enumerate(zip(changes, draws, strict=True), 1):
        which[draw < 1 / (1 + np.exp(-4 * (t - change) / width))] = number
    return which


def _hyperplane(seed: int) -> Samples:
    from river.datasets import synth

    return iter(
        synth.Hyperplane(
            seed=seed, n_features=10, n_drift_features=5, mag_change=0.001, noise_percentage=0.05
        )
    )


def _rbf(speed: float) -> Callable[[int], Samples]:
    def make(seed: int) -> Samples:
        from river.datasets import synth

        return iter(
            synth.RandomRBFDrift(
                seed_model=seed,
                seed_sample=seed,
                n_classes=5,
                n_features=10,
                n_centroids=50,
                change_speed=speed,
                n_drift_centroids=50,
            )
        )

    return make


DRIFTING: dict[str, Callable[[int], Samples]] = {
    "hyperplane": _hyperplane,
    "rbf-slow": _rbf(0.0001),
    "rbf-fast": _rbf(0.001),
}
"""Name -> generator that changes with every sample, by seed."""


def drifting(name: str, n: int, seed: int) -> LabelledStream:
    """A generator that changes by itself; `name` is one of `DRIFTING`."""
    drawn = list(islice(DRIFTING[name](seed), n))
    return _stream(name, drawn, lambda row: [float(value) for value in row.values()], ())


def _stream(
    name: str,
    drawn: list[tuple[Row, Any]],
    numbers: Callable[[Row], list[float]],
    changes: tuple[int, ...],
) -> LabelledStream:
    x = np.array([numbers(row) for row, _ in drawn], dtype=np.float32)
    y = np.array([int(label) for _, label in drawn], dtype=np.int64)
    return LabelledStream(name, x, y, changes)
