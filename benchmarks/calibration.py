"""Do p-values keep their rate on tables, while a model is young and after a pause?

Drives the engine directly, with its default settings and no detector. A stream of one kind never
changes: 8,000 samples in batches of 100, with labels or without. After 800 samples and every 400
from there on, 1,500 samples that are not learned are asked about, and the share is told whose
p-value is at most 5 %: as the model stands, and after a pause, in which what waits in its windows
is learned as well. Kinds are made up: overlapping clusters of low rank, as embeddings have them, of
384 features (scaled to length 1) and 128; round clusters in 32 features and in 8; and a heavy tail
(Student's t with 4 degrees of freedom) in 16; and six numbers beside a category as one-hot, of
which one value is that of one sample in ten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState

RATE = 0.05
BATCH = 100
SAMPLES, QUICK_SAMPLES = 8000, 1600
ASKED = 1500
FIRST, EVERY = 800, 400
SEEDS = 3
PRESETS = ("mfa", "flat")
MOMENTS = ("stream", "pause")

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


def clusters(
    n_classes: int, n_features: int, rank: int, noise: float, *, unit: bool = False
) -> Callable[[np.random.Generator, int], Samples]:
    """Makes samples of Gaussian clusters whose spread has a rank beside round noise.

    Arguments:
        n_classes: Clusters, each a class.
        n_features: D.
        rank: Directions of each cluster's own spread.
        noise: Deviation of the round noise; that of a cluster's mean is 1 in each feature.
        unit: Whether samples are scaled to length 1.
    """

    def made(generator: np.random.Generator, n: int) -> Samples:
        means = generator.normal(size=(n_classes, n_features))
        spread = 0.3 * generator.normal(size=(n_classes, rank, n_features))
        y = generator.integers(0, n_classes, n)
        x = means[y] + noise * generator.normal(size=(n, n_features))
        x += np.einsum("nr,nrd->nd", generator.normal(size=(n, rank)), spread[y])
        if unit:
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        return x.astype(np.float32), y

    return made


def heavy_tail(generator: np.random.Generator, n: int) -> Samples:
    """Samples of 16 features that are now and then far away, of one class."""
    return generator.standard_t(4, size=(n, 16)).astype(np.float32), np.zeros(n, np.int64)


def categories(generator: np.random.Generator, n: int) -> Samples:
    """Samples of three categories, one of them rare, as one-hot beside six numbers."""
    category = generator.choice(3, n, p=(0.3, 0.6, 0.1))
    common = generator.normal(size=n) + np.array((-1.0, 0.0, 1.5))[category]
    numbers = generator.normal(size=(n, 6)) + common[:, None] * (1, 1, 1, 0, 0, 0)
    return np.concatenate([np.eye(3)[category], numbers], 1).astype(np.float32), category


KINDS = {
    "384 features, unit length": clusters(6, 384, 20, 0.6, unit=True),
    "128 features": clusters(10, 128, 40, 0.6),
    "32 features": clusters(8, 32, 3, 1.0),
    "8 features": clusters(5, 8, 2, 0.7),
    "16 features, heavy tail": heavy_tail,
    "9 features, a rare category": categories,
}


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Every preset and kind, labelled and not, three seeds."""
    kinds = list(KINDS)[-2:] if quick else list(KINDS)
    seeds, n = (1, QUICK_SAMPLES) if quick else (SEEDS, SAMPLES)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for preset in PRESETS:
        for kind in kinds:
            for labelled in (False, True):
                found = [
                    one for seed in range(seeds) for one in called(preset, kind, labelled, n, seed)
                ]
                values[f"{preset}, {kind}, {'labelled' if labelled else 'unlabelled'}"] = found
                shares = (_spread([one[moment] for one in found]) for moment in MOMENTS)
                cells = (preset, kind, "yes" if labelled else "no", *shares)
                rows.append(cells)
                say("  ".join(cells))
    title = f"share with a p-value of at most {RATE:.0%}, in %: median (quarters; least and most)"
    header = ("preset", "kind", "labelled", *MOMENTS)
    return Measurement((Table(title, header, tuple(rows)),), values)


def called(preset: str, kind: str, labelled: bool, n: int, seed: int) -> list[dict[str, float]]:
    """Per time at which it is asked: the share called strange, at each of `MOMENTS`."""
    x, y = KINDS[kind](np.random.default_rng(seed), n + ASKED)
    asked = torch.from_numpy(x[n:])
    engine = Engine(EngineConfig(preset=preset, detector="none", seed=seed))
    state, found = engine.start(), []
    for begin in range(0, n, BATCH):
        rows = slice(begin, begin + BATCH)
        state, _ = engine.step(state, Batch.of(x[rows], y[rows].tolist() if labelled else None))
        samples = begin + BATCH
        if samples >= FIRST and samples % EVERY == 0:
            states = (state, engine.settle(state)[0])
            shares = (_share(engine, one, asked) for one in states)
            found.append({"samples": samples, **dict(zip(MOMENTS, shares, strict=True))})
    return found


def _share(engine: Engine, state: EngineState, asked: torch.Tensor) -> float:
    """Share of samples with a p-value of at most the rate."""
    p_values = engine.snapshot(state).outliers(asked).p_values
    assert p_values is not None
    return float((p_values <= RATE).double().mean())


def _spread(shares: list[float]) -> str:
    least, low, middle, high, most = (100 * np.quantile(shares, (0, 0.25, 0.5, 0.75, 1))).tolist()
    return f"{middle:.1f} ({low:.1f} to {high:.1f}; {least:.1f} and {most:.1f})"
