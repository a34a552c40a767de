"""What is it worth to take waiting samples in when a stream is quiet, and what do pauses cost?

The engine alone, one pass at B = 100 over n training images of MNIST, all classes at once;
accuracy on 10,000 other training images. *As left* is the model when the stream ends, *settled*
once it has been quiet, *paused* the same of a stream that was quiet after every third batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState

LENGTHS = (300, 700, 1500, 3000, 6000, 12_000)
SEEDS = (0, 1, 2)
N_HELD_OUT = 10_000
PAUSE_BATCHES = 3


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one length of the digits that ship with scikit-learn, one seed."""
    data = load_dataset("digits" if quick else "mnist")
    x = torch.tensor(np.asarray(data.train_x).reshape(len(data.train_x), -1)).float()
    x, y = x / x.max(), np.asarray(data.train_y)
    n_held_out = 300 if quick else N_HELD_OUT
    held_x, held_y, x, y = x[-n_held_out:], y[-n_held_out:], x[:-n_held_out], y[:-n_held_out]
    seeds = SEEDS[:1] if quick else SEEDS
    rows, values = [], []
    for n in LENGTHS[:2] if quick else LENGTHS:
        runs = []
        for seed in seeds:
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:n]
            engine = Engine(EngineConfig(detector="none", seed=seed))
            states, waiting = _lives(engine, x[order], y[order.numpy()])
            runs.append([_accuracy(engine, state, held_x, held_y) for state in states] + [waiting])
        means = np.mean(runs, axis=0)
        deviations = np.std(runs, axis=0, ddof=1 if len(runs) > 1 else 0)
        accuracies = [
            f"{mean:.2f} ± {deviation:.2f}"
            for mean, deviation in zip(means[:3], deviations[:3], strict=True)
        ]
        row = (f"{n:,}", f"{means[3]:.0f}", *accuracies)
        say("  ".join(row))
        rows.append(row)
        values.append({"samples": n, "seeds": list(seeds), "runs": runs})
    columns = ("samples", "waiting", "as left", "settled", "paused")
    title = f"Accuracy on held-out training images, %, {len(seeds)} seed(s)"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def _lives(
    engine: Engine, x: torch.Tensor, y: NDArray[np.int64]
) -> tuple[tuple[EngineState, EngineState, EngineState], int]:
    """The states as left, settled and paused, and how many samples waited in the first."""
    left = paused = engine.start()
    for index, rows in enumerate(torch.split(torch.arange(len(x)), 100)):
        batch = Batch.of(x[rows], y[rows.numpy()].tolist(), images=True)
        left, _ = engine.step(left, batch)
        paused, _ = engine.step(paused, batch)
        if index % PAUSE_BATCHES == 0:
            paused, _ = engine.settle(paused)
    waiting = engine.snapshot(left).info.waiting
    return (left, engine.settle(left)[0], engine.settle(paused)[0]), waiting


def _accuracy(engine: Engine, state: EngineState, x: torch.Tensor, y: NDArray[np.int64]) -> float:
    snapshot = engine.snapshot(state)
    codes = torch.cat([snapshot.classify(part).codes for part in torch.split(x, 1000)])
    return 100 * float((np.array(snapshot.classes)[codes.numpy()] == y).mean())
