"""Are the features that a boundary names those by which the new data differ, and at what cost?

Drives the engine directly. First, a model learns one class of the training images, and the first
samples of another class are explained, for all ordered pairs of classes. Second, it learns classes
in pairs and finds the boundaries itself. The truth to compare with is the absolute difference of
mean images, of the new and of the old class (or pair), which the model has not seen. The test set
is not touched.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.explanation import MOST_SAMPLES, explain
from core.engine.state import EngineState
from core.events import BoundaryDetected

PRESETS = ("mfa", "flat", "dcgmm")
BATCH = 100
LEARNED = 3000
NEW = 300
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
SEEDS = 3
TOP = 0.1
"""Share of the pixels, those whose means differ most, that a named one should be among."""


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Explain every ordered pair of classes."""
    source, presets, n_classes = ("digits", PRESETS[:2], 3) if quick else ("mnist", PRESETS, 10)
    data = load_dataset(source)
    images = [_pixels(data, label) for label in range(n_classes)]
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for preset in presets:
        outcomes = [
            outcome for known in range(n_classes) for outcome in _explained(preset, images, known)
        ]
        values[preset] = outcomes
        columns = {name: [one[name] for one in outcomes] for name in outcomes[0]}
        cells = (
            preset,
            _spread(columns["correlation"]),
            _spread(columns["hits"]),
            *(
                f"{statistics.median(columns[name]) * 1000:.0f}"
                for name in ("seconds", "seconds_most")
            ),
        )
        rows.append(cells)
        say("  ".join(cells))
    streams, found = _streams(images, quick, say)
    values["streams"] = found
    title = f"{source}, {n_classes * (n_classes - 1)} ordered pairs of classes, {NEW} new samples"
    header = (
        "preset",
        "rank correlation",
        f"named among the top {TOP:.0%}, share",
        "ms",
        f"ms, {MOST_SAMPLES}",
    )
    return Measurement((Table(title, header, tuple(rows)), streams), values)


def _streams(
    images: list[torch.Tensor], quick: bool, say: Say
) -> tuple[Table, dict[str, list[dict[str, float]]]]:
    """Boundaries that an engine finds itself, between pairs of classes."""
    tasks, seeds = (PAIRS[:1], 1) if quick else (PAIRS, SEEDS)
    rows: list[tuple[str, ...]] = []
    values: dict[str, list[dict[str, float]]] = {}
    for preset in PRESETS[:2]:
        found = [one for seed in range(seeds) for one in _found(preset, images, tasks, seed)]
        values[preset] = found
        cells = [
            _spread([one[name] for one in found]) if found else ""
            for name in ("correlation", "hits")
        ]
        row = (preset, str(len(found)), *cells)
        rows.append(row)
        say("  ".join(row))
    header = ("preset", "boundaries", "rank correlation", f"named among the top {TOP:.0%}, share")
    return Table(f"classes in pairs, {seeds} seeds", header, tuple(rows)), values


def _found(
    preset: str, images: list[torch.Tensor], tasks: tuple[tuple[int, int], ...], seed: int
) -> list[dict[str, float]]:
    """What is said of each boundary, in one stream."""
    engine = Engine(EngineConfig(preset=preset, seed=seed))
    state, generator, found = engine.start(), torch.Generator().manual_seed(seed), []
    means = [torch.cat([images[label] for label in task]).mean(0) for task in tasks]
    for number, task in enumerate(tasks):
        x = torch.cat([images[label][:LEARNED] for label in task])
        labels = [label for label in task for _ in images[label][:LEARNED]]
        order = torch.randperm(len(x), generator=generator)
        for rows in torch.split(order, BATCH):
            batch = Batch.of(x[rows], [labels[row] for row in rows.tolist()], images=True)
            state, events = engine.step(state, batch)
            for event in events:
                if isinstance(event, BoundaryDetected) and number:
                    difference = (means[number] - means[number - 1]).abs().numpy()
                    found.append(_agreement(event.explanation, difference))
    return found


def _explained(preset: str, images: list[torch.Tensor], known: int) -> list[dict[str, float]]:
    """What one model says of every other class."""
    engine = Engine(EngineConfig(preset=preset))
    state = _learned(engine, images[known][:LEARNED], known)
    outcomes = []
    for new, samples in enumerate(images):
        if new == known:
            continue
        told, seconds = _told(engine, state, samples[:NEW])
        _, seconds_most = _told(engine, state, samples[:MOST_SAMPLES])
        difference = (samples.mean(0) - images[known].mean(0)).abs().numpy()
        outcomes.append(
            {
                "known": known,
                "new": new,
                **_agreement(told, difference),
                "seconds": seconds,
                "seconds_most": seconds_most,
            }
        )
    return outcomes


def _agreement(told: dict[str, Any], difference: NDArray[Any]) -> dict[str, float]:
    """How well what was told fits to where the means differ."""
    most = np.argsort(-difference)[: max(1, round(TOP * len(difference)))]
    named = [row["feature"] for row in told["features"]]
    return {
        "correlation": _rank_correlation(np.array(told["contributions"]), difference),
        "hits": float(np.isin(named, most).mean()),
    }


def _told(engine: Engine, state: EngineState, x: torch.Tensor) -> tuple[dict[str, Any], float]:
    """What the model says of new samples, and how long that took, in seconds of the processor."""
    batches = [Batch(part) for part in torch.split(x, BATCH)]
    begun = time.process_time()
    told = explain(engine.learner.model(state.model.learner), state, batches, None, engine.inliers)
    return told, time.process_time() - begun


def _learned(engine: Engine, x: torch.Tensor, label: int) -> EngineState:
    state = engine.start()
    for part in torch.split(x, BATCH):
        state, _ = engine.step(state, Batch.of(part, [label] * len(part), images=True))
    return state


def _pixels(data: Any, label: int) -> torch.Tensor:
    features = torch.from_numpy(data.train_x[data.train_y == label])
    return features.float() / 255 if features.dtype == torch.uint8 else features.float()


def _rank_correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Spearman's, ties sharing their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    means: NDArray[Any] = (ends - (counts - 1) / 2)[place]
    return means


def _spread(values: list[float]) -> str:
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
