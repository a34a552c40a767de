"""How well is accuracy told where no label comes?

Streams whose labels are hidden in stretches: of images after each sub-task was learned in part
(`tail`: the two classes go on without labels; `five`: two sub-tasks of five classes), after all of
them (`return`: all classes mixed, then two pairs of them again), and before two classes that no
label has named (`new`); of tables in turns of ten batches each (`turns`), and at random in nine
samples of ten (`tenth`). Each window of a thousand hidden samples is one case: the accuracy that
the engine expects at its end (`estimated_accuracy`), without any of its labels, against that of
the answers to the same samples, which the hidden labels tell. Beside it what one would say
without: the mean of all prequential accuracies so far, and the mean probability of the class that
is named. Settings were chosen on FashionMNIST, SEA and interchanging RBF.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from clients.http.errors import InputError
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BatchScored

BATCH = 100
WINDOW = 1000
"""Hidden samples of a case."""

IMAGES = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist"}
TABLES = {"Electricity": "stream_elec2", "SEA": "stream_sea", "RBF": "stream_interrbf"}
MOST = 45_000
"""Samples of a table."""

TURN = 10
"""Batches of a turn: those without labels are a window."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Hidden:
    """A stream, with labels that the engine does not see.

    Arguments:
        name: What it is made of.
        pattern: Which labels are hidden.
        x: Samples, with shape (N, D).
        y: Labels, with shape (N,).
        shown: Which of them are sent, with shape (N,), bool.
    """

    name: str
    pattern: str
    x: Array
    y: Array
    shown: Array


@dataclass(frozen=True)
class Case:
    """A window of hidden samples, 0 to 1 each."""

    accuracy: float
    estimate: float | None
    low: float | None
    high: float | None
    before: float  # mean of the prequential accuracies so far
    confidence: float


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: 3,000 made-up samples."""
    torch.set_num_threads(1)
    rows, values = [], []
    seeds = range(1 if quick else 3)
    by_case: dict[tuple[str, str], dict[int, list[Case]]] = {}
    for seed in seeds:
        for stream in _made_up(seed) if quick else _streams(seed, say):
            found = cases(stream, EngineConfig(seed=seed))
            told = _summary([found])
            error = (
                "nothing is known" if told is None else f"error {100 * told['error']:.1f} points"
            )
            say(f"{stream.name} {stream.pattern}, seed {seed}: {len(found)} windows, {error}")
            by_case.setdefault((stream.name, stream.pattern), {})[seed] = found
    for (name, pattern), of_seeds in by_case.items():
        numbers = _summary(list(of_seeds.values()))
        if numbers is None:
            continue
        points = {key: f"{100 * value:.1f}" for key, value in numbers.items()}
        row = (
            name,
            pattern,
            f"{numbers['windows']:.0f}",
            points["accuracy"],
            points["error"],
            f"{points['least']} to {points['most']}",
            f"{100 * numbers['bias']:+.1f}",
            f"{100 * numbers['inside']:.0f}",
            points["before"],
            points["confidence"],
        )
        rows.append(row)
        values.append({"stream": name, "pattern": pattern, **numbers})
    columns = (
        "stream",
        "hidden",
        "windows",
        "accuracy, %",
        "error, points",
        "by seed",
        "bias",
        "inside, %",
        "error of the mean so far",
        "error of confidence",
    )
    title = "Accuracy expected without labels against accuracy, mean absolute error in points"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def cases(stream: Hidden, config: EngineConfig) -> list[Case]:
    """Let an engine learn a stream, and compare in every window of hidden samples."""
    engine = Engine(config)
    state, found = engine.start(), []
    window: list[tuple[int, float, float]] = []
    for start in range(0, len(stream.x), BATCH):
        rows = slice(start, start + BATCH)
        x, y, shown = torch.from_numpy(stream.x[rows]), stream.y[rows], stream.shown[rows]
        hidden = ~shown
        if not hidden.any():
            window = []  # the estimate is of the newest samples, and these are others
        if hidden.any() and state.model.standardiser is not None:
            where = torch.from_numpy(hidden)
            asked = Batch.of(x[where], y[hidden].tolist()).to_float32(engine.device)
            judged = engine.judge.judge(state, asked)
            if judged.accuracy is not None and judged.answered is not None:
                sure = float(judged.answered.confidence.mean())
                window.append((int(hidden.sum()), judged.accuracy, sure))
        labels = [label if keep else None for label, keep in zip(y.tolist(), shown, strict=True)]
        state, events = engine.step(state, Batch.of(x, labels))
        if sum(n for n, _, _ in window) < WINDOW:
            continue
        (scored,) = (event for event in events if isinstance(event, BatchScored))
        weights = [n for n, _, _ in window]
        found.append(
            Case(
                float(np.average([right for _, right, _ in window], weights=weights)),
                scored.estimated_accuracy,
                scored.estimated_accuracy_low,
                scored.estimated_accuracy_high,
                state.stream.prequential.mean,
                float(np.average([sure for _, _, sure in window], weights=weights)),
            )
        )
        window = []
    return found


def _summary(of_seeds: Sequence[Sequence[Case]]) -> dict[str, float] | None:
    """Means over the windows of all seeds; None where nothing was estimated."""
    tables = [
        np.array(
            [
                (one.accuracy, one.estimate, one.low, one.high, one.before, one.confidence)
                for one in found
                if one.estimate is not None
            ]
        )
        for found in of_seeds
    ]
    tables = [table for table in tables if len(table)]
    if not tables:
        return None
    errors = [float(np.abs(table[:, 1] - table[:, 0]).mean()) for table in tables]
    accuracy, estimate, low, high, before, confidence = np.concatenate(tables).T
    return {
        "windows": float(len(accuracy)),
        "accuracy": float(accuracy.mean()),
        "error": float(np.mean(errors)),
        "least": min(errors),
        "most": max(errors),
        "bias": float((estimate - accuracy).mean()),
        "inside": float(((low <= accuracy) & (accuracy <= high)).mean()),
        "before": float(np.abs(before - accuracy).mean()),
        "confidence": float(np.abs(confidence - accuracy).mean()),
    }


def _streams(seed: int, say: Say) -> Iterator[Hidden]:
    for name, source in {**IMAGES, **TABLES}.items():
        try:
            data = load_dataset(source)
        except InputError as error:
            say(f"{name} is left out: {error}")
            continue
        y = data.train_y.astype(np.int64)
        if name in IMAGES:
            for pattern in ("tail", "five", "return", "new"):
                yield _of_images(name, pattern, np.asarray(data.train_x), y, seed)
        else:
            x = np.asarray(data.train_x, dtype=np.float32)[:MOST]
            for pattern in ("turns", "tenth"):
                yield Hidden(name, pattern, x, y[:MOST], _shown(pattern, len(x), seed))


def _shown(pattern: str, n: int, seed: int) -> Array:
    """Which labels of a table are sent; all of the first 2,000 samples."""
    rng = np.random.default_rng([seed, 1])
    if pattern == "tenth":
        shown = rng.random(n) < 0.1
    else:
        batches = np.arange(n) // BATCH + rng.integers(0, 2 * TURN)
        shown = batches // TURN % 2 == 0
    shown[:2000] = True
    return shown


def _of_images(name: str, pattern: str, x: Array, y: Array, seed: int) -> Hidden:
    """Sub-tasks of classes in random order, parts of them hidden."""
    rng = np.random.default_rng([seed, 0])
    order = rng.permutation(10).tolist()
    left = {label: rng.permutation(np.flatnonzero(y == label)).tolist() for label in range(10)}
    rows: list[Array] = []
    shown: list[Array] = []

    def take(classes: Sequence[int], each: int, *, show: bool) -> None:
        part = [left[label].pop() for label in classes for _ in range(each)]
        rows.append(rng.permutation(np.array(part)))
        shown.append(np.full(len(part), show))

    pairs = [order[2 * place : 2 * place + 2] for place in range(5)]
    if pattern == "tail":
        for pair in pairs:
            take(pair, 900, show=True)
            take(pair, 500, show=False)
    elif pattern == "five":
        for half in (order[:5], order[5:]):
            take(half, 500, show=True)
            take(half, 400, show=False)
    elif pattern == "return":
        for pair in pairs:
            take(pair, 900, show=True)
        take(order, 250, show=False)
        take(pairs[0], 500, show=False)
        take(pairs[2], 500, show=False)
    else:
        take(pairs[0], 900, show=True)
        take(pairs[1], 900, show=True)
        take(pairs[2], 1000, show=False)
        take(pairs[0], 500, show=False)
    where = np.concatenate(rows)
    return Hidden(name, pattern, x[where], y[where], np.concatenate(shown))


def _made_up(seed: int) -> Iterator[Hidden]:
    """Two clouds that overlap, labelled half of the time."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 3000)
    x = (rng.normal(size=(3000, 3)) + 1.5 * y[:, None]).astype(np.float32)
    shown = np.arange(3000) < 1500
    yield Hidden("made up", "tail", x, y, shown)
