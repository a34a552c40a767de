"""What is each choice of preset `flat` worth, on held-out training data?

Drives the engine directly, without the service. A sixth of the training images is held
out and the rest streamed once in batches of 100; the test set is not touched, so that
choices may be made by these figures. Boundaries are found, not told.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BoundaryDetected
from core.learners.per_class.flat import learner, stepwise, windows

SPLITS = {"D10": (tuple(range(10)),), "D2-2-2-2-2a": ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))}
BATCH = 100


@dataclass(frozen=True)
class Variant:
    """One way of learning: a name, settings, and constants of the learner to replace."""

    name: str
    config: dict[str, Any]
    constants: dict[str, float]


VARIANTS = (
    Variant("default", {}, {}),
    Variant("plain Bayes read-out (temperature 1)", {}, {"FEATURES_PER_DEGREE": 1e9}),
    Variant("temperature D / 80", {}, {"FEATURES_PER_DEGREE": 80}),
    Variant("temperature D / 8", {}, {"FEATURES_PER_DEGREE": 8}),
    Variant("variance floor 0.02", {"variance_floor": 0.02}, {}),
    Variant("variance floor 0.1", {"variance_floor": 0.1}, {}),
    Variant("step exponent 0.6", {}, {"STEP_EXPONENT": 0.6}),
    Variant("step exponent 0.9", {}, {"STEP_EXPONENT": 0.9}),
    Variant("window of 250 samples per class", {}, {"WINDOW_PER_OWNER": 250, "WINDOW_FACTOR": 0}),
    Variant("K = 50", {"n_components": 50}, {}),
    Variant("K = 400", {"n_components": 400}, {}),
)


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    accuracy: float  # percent, on held-out training images
    rate: float  # samples per second of one thread
    boundaries: int
    nearest: float  # distance of a component's mean to the nearest training sample


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Run every variant."""
    source, variants, seeds = ("digits", VARIANTS[:2], 1) if quick else ("mnist", VARIANTS, 3)
    data = load_dataset(source)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for variant in variants:
        cells = [variant.name]
        for split, classes in SPLITS.items():
            outcomes = [_run(data, classes, variant, seed) for seed in range(seeds)]
            accuracies = [outcome.accuracy for outcome in outcomes]
            values.setdefault(variant.name, {})[split] = [vars(outcome) for outcome in outcomes]
            cells.append(f"{statistics.mean(accuracies):.2f} ± {np.std(accuracies):.2f}")
        outcomes_all = [one for split in values[variant.name].values() for one in split]
        cells.append(f"{statistics.median(one['rate'] for one in outcomes_all):,.0f}")
        cells.append(f"{min(one['nearest'] for one in outcomes_all):.2f}")
        rows.append(tuple(cells))
        say("  ".join(cells))
    columns = ("variant", *(f"{name}, %" for name in SPLITS), "samples/s", "nearest sample")
    title = f"{source}, held-out training images, mean ± deviation of {seeds} seeds"
    return Measurement((Table(title, columns, tuple(rows)),), values)


def _run(data: Any, tasks: tuple[tuple[int, ...], ...], variant: Variant, seed: int) -> Outcome:
    order = np.random.default_rng(123).permutation(len(data.train_y))
    held = len(order) // 6
    train, held_out = order[held:], order[:held]
    draw = np.random.default_rng(seed)
    engine = Engine(EngineConfig(preset="flat", seed=seed, **variant.config))
    state, boundaries = engine.start(), 0
    begun, n = time.process_time(), 0
    with _constants(variant.constants):
        for classes in tasks:
            rows = draw.permutation(train[np.isin(data.train_y[train], classes)])
            for batch in _batches(data, rows):
                state, events = engine.step(state, batch)
                boundaries += any(isinstance(event, BoundaryDetected) for event in events)
            n += len(rows)
        seconds = time.process_time() - begun
        accuracy = _accuracy(engine, state, data, held_out)
    return Outcome(accuracy, n / seconds, boundaries, _nearest(state, data, train))


@contextmanager
def _constants(values: dict[str, float]) -> Iterator[None]:
    """The learner's modules with other constants."""
    homes = {
        name: module
        for name in values
        for module in (learner, stepwise, windows)
        if hasattr(module, name)
    }
    kept = {name: getattr(homes[name], name) for name in values}
    try:
        for name, value in values.items():
            setattr(homes[name], name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(homes[name], name, value)


def _pixels(data: Any, rows: np.ndarray[Any, Any]) -> torch.Tensor:
    features = torch.from_numpy(data.train_x[rows])
    return features.float() / 255 if features.dtype == torch.uint8 else features.float()


def _batches(data: Any, rows: np.ndarray[Any, Any]) -> Iterator[Batch]:
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        yield Batch.of(_pixels(data, part), torch.from_numpy(data.train_y[part]), images=True)


def _accuracy(engine: Engine, state: EngineState, data: Any, rows: np.ndarray[Any, Any]) -> float:
    snapshot = engine.snapshot(state)
    labels = np.array(snapshot.classes)
    guesses = [
        labels[snapshot.classify(_pixels(data, rows[first : first + 2000])).codes.numpy()]
        for first in range(0, len(rows), 2000)
    ]
    return 100 * float(np.mean(np.concatenate(guesses) == data.train_y[rows]))


def _nearest(state: EngineState, data: Any, rows: np.ndarray[Any, Any]) -> float:
    """Smallest Euclidean distance between a component's mean and a training sample."""
    means = state.model.learner.components.means
    return min(
        float(torch.cdist(means, _pixels(data, rows[first : first + 5000])).min())
        for first in range(0, len(rows), 5000)
    )
