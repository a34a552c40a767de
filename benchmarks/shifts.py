"""What are small shifts of images worth, learned and heard, and what do they cost?

The engine alone, one pass at B = 100 over five sub-tasks of two classes, boundaries found and not
told; accuracy on a sixth of the training images, which is held out (the split of
`gmr bench learning`). *Plain* names samples as they came, *heard* under all shifts as well.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import Dataset, load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.engine.engine import Engine
from core.events import BoundaryDetected
from core.snapshot import Snapshot

SOURCES = ("mnist", "fashion_mnist")
PRESETS = ("mfa", "flat")
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
BATCH = 100
SEED = 0


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: a part of the digits that ship with scikit-learn."""
    rows, values = [], []
    for source in ("digits",) if quick else SOURCES:
        data = load_dataset(source)
        for preset in PRESETS:
            for pixels in (0, 1):
                run = _run(data, EngineConfig(preset=preset, shift=pixels, seed=SEED))
                row = (
                    source,
                    preset,
                    str(pixels),
                    f"{run['plain']:.2f}",
                    f"{run['heard']:.2f}",
                    f"{run['boundaries']} of {len(PAIRS) - 1}",
                    f"{run['rate']:,.0f}",
                )
                say("  ".join(row))
                rows.append(row)
                values.append({"source": source, "preset": preset, "shift": pixels, **run})
    columns = ("data", "preset", "learned", "plain", "heard", "boundaries", "samples/s")
    title = "Accuracy on held-out training images, %, one seed; samples learned per second"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def _run(data: Dataset, config: EngineConfig) -> dict[str, Any]:
    x = torch.tensor(np.asarray(data.train_x).reshape(len(data.train_x), -1)).float()
    x, y = x / x.max(), np.asarray(data.train_y)
    order = np.random.default_rng(123).permutation(len(y))
    held, train = order[: len(y) // 6], order[len(y) // 6 :]
    draw = np.random.default_rng(config.seed)
    engine = Engine(config)
    state, boundaries, begun = engine.start(), 0, time.process_time()
    for classes in PAIRS:
        rows = draw.permutation(train[np.isin(y[train], classes)])
        for part in np.array_split(rows, range(BATCH, len(rows), BATCH)):
            state, events = engine.step(state, Batch.of(x[part], y[part].tolist(), images=True))
            boundaries += sum(isinstance(event, BoundaryDetected) for event in events)
    rate = len(train) / (time.process_time() - begun)
    snapshot = engine.snapshot(state)
    plain, heard = (
        _accuracy(replace(snapshot, model=replace(snapshot.model, shifts=shifts)), x[held], y[held])
        for shifts in (NO_SHIFTS, Shifts(1))
    )
    return {"plain": plain, "heard": heard, "boundaries": boundaries, "rate": rate}


def _accuracy(snapshot: Snapshot, x: torch.Tensor, y: NDArray[Any]) -> float:
    codes = torch.cat([snapshot.classify(part).codes for part in torch.split(x, 1000)])
    return 100 * float((np.array(snapshot.classes)[codes.numpy()] == y).mean())
