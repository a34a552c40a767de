"""Which pictures there are, and the lessons that each is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.comparison import pictures
from benchmarks.comparison.lesson import Lesson, Recipe
from clients.data.datasets import Dataset
from clients.data.tasks import SLT
from core.density.deep.density import DeepDensity
from core.model.readout import LinearReadout
from core.snapshot import Snapshot

PAIRS = ((1, 2), (5, 7))
"""Of classes that samples are asked for, as in the paper."""

EACH = 25
"""Samples of a pair, as in the paper."""

DEEP = "dcgmm"
"""The preset that has a picture of its own, as in the paper."""

SHARPENING = 100
"""Steps, as published for the deep model."""

Teach = Callable[[Recipe], Lesson]
Load = Callable[[str], Dataset]


def gallery(
    data: Sequence[str], presets: Sequence[str], seed: int, quick: bool, teach: Teach, load: Load
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """The name of every picture, and how to draw it.

    Arguments:
        data: Data sets, each a row of a picture or a picture of its own.
        presets: Of the engine.
        seed: Of every model.
        quick: Whether models are to be small.
        teach: Recipe -> lesson.
        load: Name -> data set.
    """

    def recipe(name: str, slt: str, preset: str) -> Recipe:
        return Recipe(preset, name, SLT.parse(slt), seed, quick)

    def boundaries(name: str, preset: str) -> Callable[[], Figure]:
        chosen = recipe(name, "D2-2-2-2-2a", preset)
        title = f"{name}, {preset}"
        return lambda: pictures.boundaries(teach(chosen).trace, chosen.slt, title)

    def log_likelihoods() -> Figure:
        return pictures.log_likelihoods(
            {
                name: {preset: teach(recipe(name, "D10", preset)).trace for preset in presets}
                for name in data
            }
        )

    def conditional(ways: Sequence[tuple[str, int]], title: str) -> Callable[[], Figure]:
        def draw() -> Figure:
            rows: dict[str, dict[str, tuple[NDArray[Any], tuple[int, int]]]] = {}
            for name in data:
                shape = load(name).image_shape
                assert shape is not None
                rows[name] = {}
                for preset, steps in ways:
                    snapshot = sharpened(teach(recipe(name, "D10", preset)).snapshot, steps)
                    way = f"{preset}, {steps} steps" if steps else preset
                    for pair in PAIRS:
                        column = f"{way}: {pair[0]} and {pair[1]}"
                        rows[name][column] = (samples_of(snapshot, pair, seed), shape)
            return pictures.sheets(rows, title)

        return draw

    for name in data:
        for preset in presets:
            yield f"boundaries-{name}-{preset}", boundaries(name, preset)
    # The paper's own way first, what is to be compared with it after.
    flat = sorted((one for one in presets if one != DEEP), key=lambda one: one != "paper")
    if presets:
        yield "likelihoods", log_likelihoods
    if flat:
        title = "Samples of two classes: paper by inversion of its classifier, others by Bayes"
        yield "conditional-samples", conditional([(one, 0) for one in flat], title)
    if DEEP in presets:
        title = "Samples of two classes from a deep model, as drawn and sharpened"
        yield f"{DEEP}-samples", conditional([(DEEP, 0), (DEEP, SHARPENING)], title)


def samples_of(snapshot: Snapshot, classes: tuple[int, ...], seed: int) -> NDArray[Any]:
    """Samples of some classes as a picture shows them, with shape (EACH, D).

    A model with the paper's linear classifier draws by its inversion alone, as the paper
    does; others as by default: by Bayes, and again where the model doubts a sample.
    """
    least = 0.0 if isinstance(snapshot.model.readout, LinearReadout) else None
    drawn = snapshot.sample(EACH, list(classes), seed, least_probability=least)
    features: NDArray[Any] = drawn.features.numpy()
    return features


def sharpened(snapshot: Snapshot, steps: int) -> Snapshot:
    """The same model, taking so many steps of sharpening with every image it draws."""
    density = snapshot.model.density
    if not isinstance(density, DeepDensity):
        return snapshot
    sharp = replace(density, sharpening=steps)
    return replace(snapshot, model=replace(snapshot.model, density=sharp))
