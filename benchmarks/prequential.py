"""How often is the next label named on streams whose labels change their meaning?

The streams of tables in the data folder, in their own order, in batches of 100: each batch is
named by what was learned before it (*prequential* accuracy, Gama et al. 2013), then learned. Beside
the engine, alone and with default settings, stand River's Hoeffding tree, its adaptive one, naive
Bayes and the adaptive random forest, with its defaults too, and the last label as a guess for all
of the next batch. River needs `pip install -e '.[river]'`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from clients.bench import Measurement, Say, Table
from clients.datasets import Dataset, load_dataset
from clients.errors import InputError
from core.batch import Batch
from core.config import EngineConfig
from core.engine import Engine
from core.events import BatchScored, BoundaryDetected

BATCH = 100
TENTHS = 10

STREAMS = {
    "SEA": "stream_sea",
    "interchanging RBF": "stream_interrbf",
    "Electricity": "stream_elec2",
}
"""Name -> data set."""


class Guesser(Protocol):
    """Names samples, then learns them."""

    def guess_and_learn(self, x: NDArray[Any], y: NDArray[np.int64]) -> int:
        """How many of a batch, (N, D) and (N,), were named as they are called."""
        ...


class Ours:
    """The engine with a preset; boundaries are counted."""

    def __init__(self, preset: str) -> None:
        self.engine = Engine(EngineConfig(preset=preset))
        self.state = self.engine.start()
        self.boundaries: list[int] = []

    def guess_and_learn(self, x: NDArray[Any], y: NDArray[np.int64]) -> int:
        batch = Batch.of(torch.from_numpy(np.ascontiguousarray(x, np.float32)), y.tolist())
        self.state, events = self.engine.step(self.state, batch)
        right = 0.0
        for event in events:
            if isinstance(event, BatchScored):
                right = (event.prequential_accuracy or 0.0) * len(y)
            if isinstance(event, BoundaryDetected):
                self.boundaries.append(event.sample_index)
        return round(right)


class Rivers:
    """A classifier of River's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.model = make()

    def guess_and_learn(self, x: NDArray[Any], y: NDArray[np.int64]) -> int:
        rows = [dict(enumerate(row)) for row in x.astype(float).tolist()]
        right = sum(
            self.model.predict_one(row) == label for row, label in zip(rows, y, strict=True)
        )
        for row, label in zip(rows, y.tolist(), strict=True):
            self.model.learn_one(row, label)
        return int(right)


class LastLabel:
    """Whoever follows will be called as the last one was."""

    def __init__(self) -> None:
        self.last = -1

    def guess_and_learn(self, x: NDArray[Any], y: NDArray[np.int64]) -> int:
        right = int((y == self.last).sum())
        self.last = int(y[-1])
        return right


def systems(quick: bool) -> dict[str, Callable[[], Guesser]]:
    """Every system, by name; River's where it is installed."""
    ours: dict[str, Callable[[], Guesser]] = {
        "mfa": lambda: Ours("mfa"),
        "flat": lambda: Ours("flat"),
        "last label": LastLabel,
    }
    try:
        from river import forest, naive_bayes, tree
    except ImportError:
        return ours
    theirs: dict[str, Callable[[], Any]] = {
        "naive Bayes": naive_bayes.GaussianNB,
        "Hoeffding tree": tree.HoeffdingTreeClassifier,
        "adaptive tree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
        "adaptive forest": lambda: forest.ARFClassifier(seed=0),
    }
    names = list(theirs)[: 2 if quick else None]
    return ours | {name: lambda make=theirs[name]: Rivers(make) for name in names}


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: 3,000 made-up samples of two classes that change places once."""
    rows, values = [], []
    for name, data in _streams(quick, say):
        for system, make in systems(quick).items():
            guesser, begun = make(), time.process_time()
            right = []
            for start in range(0, len(data.train_y), BATCH):
                part = slice(start, start + BATCH)
                right.append(guesser.guess_and_learn(data.train_x[part], data.train_y[part]))
            seconds = time.process_time() - begun
            found = guesser.boundaries if isinstance(guesser, Ours) else []
            accuracy = 100 * sum(right) / len(data.train_y)
            parts = np.array_split(np.array(right), TENTHS)
            tenths = [100 * float(part.sum()) / (BATCH * max(1, len(part))) for part in parts]
            row = (
                name,
                system,
                f"{accuracy:.1f}",
                f"{min(tenths):.1f}",
                f"{len(found)}" if isinstance(guesser, Ours) else "",
                f"{1e6 * seconds / len(data.train_y):,.0f}",
            )
            say("  ".join(row))
            rows.append(row)
            values.append(
                {
                    "stream": name,
                    "samples": len(data.train_y),
                    "changes": [int(at) for at in data.drift_points],
                    "system": system,
                    "accuracy": accuracy,
                    "tenths": tenths,
                    "boundaries": found,
                    "seconds": seconds,
                }
            )
    columns = ("stream", "system", "accuracy, %", "worst tenth", "boundaries", "us per sample")
    title = "Next labels named, each batch before it is learned"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def _streams(quick: bool, say: Say) -> Iterator[tuple[str, Dataset]]:
    if quick:
        yield "made up", _made_up(3000)
        return
    for name, source in STREAMS.items():
        try:
            data = load_dataset(source)
        except InputError as error:
            say(f"{name} is left out: {error}")
            continue
        yield name, data


def _made_up(n: int) -> Dataset:
    """Two Gaussian clouds that swap their labels at the middle."""
    rng = np.random.default_rng(0)
    cloud = rng.integers(0, 2, n)
    x = (rng.normal(size=(n, 4)) + 6 * cloud[:, None]).astype(np.float32)
    y = np.where(np.arange(n) < n // 2, cloud, 1 - cloud)
    return Dataset("made up", x, y, x[:0], y[:0], drift_points=(n // 2,))
