"""After how many samples of a new sub-task do p-values know it?

Drives the engine directly, with its default settings. Classes come two at a time, labelled, 6,000
images of a pair, or as many as there are, in batches of 100. Of test images, up to 600 of each
kind, the share is told that `POST /outliers` calls strange where 5 % of inliers are asked: of the
classes that came last, of the earlier ones, and of two classes that never come. Times are counted
from the boundary's first sample; a sub-task whose boundary is not found counts in none.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import Dataset, load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.snapshot import Snapshot

RATE = 0.05
BATCH = 100
SUB_TASKS = ((0, 1), (2, 3), (4, 5), (6, 7))
NEVER = (8, 9)
SAMPLES = 6000
TESTED = 600
SINCE = (100, 200, 300, 500, 1000, 2000, 3000)
KINDS = ("new", "earlier", "never seen")


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Every data set, three seeds."""
    names, seeds = (("digits",), 1) if quick else (("mnist", "fashion_mnist", "devanagari"), 3)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for name in names:
        data = load_dataset(name)
        found: dict[int, list[tuple[float, ...]]] = defaultdict(list)
        for seed in range(seeds):
            for since, shares in strange(data, seed):
                found[since].append(shares)
            say(f"{name}, seed {seed}")
        for since, boundaries in sorted(found.items()):
            cells = [f"{100 * statistics.mean(one):.1f}" for one in zip(*boundaries, strict=True)]
            rows.append((name, str(since), str(len(boundaries)), *cells))
        values[name] = {str(since): boundaries for since, boundaries in found.items()}
    columns = ("data", "samples since the boundary", "boundaries", *(f"{k}, %" for k in KINDS))
    title = f"called strange where {RATE:.0%} is asked, preset {EngineConfig().preset}"
    return Measurement((Table(title, columns, tuple(rows)),), values)


def strange(data: Dataset, seed: int) -> list[tuple[int, tuple[float, ...]]]:
    """Per boundary and time since: the shares called strange, of the kinds of `KINDS`."""
    generator = np.random.default_rng(seed)
    engine = Engine(EngineConfig(seed=seed))
    state = engine.start()
    found = []
    for sub_task, classes in enumerate(SUB_TASKS):
        chosen = generator.permutation(np.isin(data.train_y, classes).nonzero()[0])[:SAMPLES]
        asked = (classes, sum(SUB_TASKS[:sub_task], ()), NEVER)
        for begin in range(0, len(chosen), BATCH):
            rows = chosen[begin : begin + BATCH]
            labels = torch.from_numpy(data.train_y[rows])
            batch = Batch.of(_features(data.train_x[rows]), labels, images=True)
            state, _ = engine.step(state, batch)
            since = state.stream.samples - state.sub_task.first_sample
            if sub_task and state.sub_task.number == sub_task and since in SINCE:
                snapshot = engine.snapshot(state)
                found.append((since, tuple(_called(snapshot, data, kind) for kind in asked)))
    return found


def _called(snapshot: Snapshot, data: Dataset, classes: tuple[int, ...]) -> float:
    """Share of test images of some classes that is called strange."""
    rows = np.isin(data.test_y, classes).nonzero()[0][:TESTED]
    answer = snapshot.outliers(_features(data.test_x[rows]), false_positive_rate=RATE)
    return float((~answer.inliers).double().mean())


def _features(images: NDArray[Any]) -> torch.Tensor:
    flat = images.reshape(len(images), -1)
    return torch.from_numpy(flat.astype("f4") / (255 if flat.dtype == np.uint8 else 1))
