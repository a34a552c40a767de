"""What does looking for boundaries cost: by itself, and in an engine that learns?

By itself as in `benchmarks/detection/cost.py`, beside River's ADWIN: as a detector here, and as it
is, handed plain numbers one by one. In an engine on the paper's five pairs of classes, in batches
of 100 and in turns: with the default detector, and with none, boundaries declared. There caches are
cold after what every batch teaches, so that the detector takes longer than by itself; it is timed
without the forward passes of the versions that it asks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.detection.cost import TimedFrozenModel, bare_adwin, microseconds
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from clients.data.tasks import SLT
from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Observation, Verdict
from core.drift.sequential.detector import SequentialDetector, SequentialState
from core.drift.sequential.frozen_model import FrozenModel
from core.engine.engine import Engine

TASK = SLT.parse("D2-2-2-2-2a")
BATCH = 100
ALONE = (10, 100, 512)
PRESETS = ("mfa", "flat")


@dataclass(frozen=True)
class TimedDetector(SequentialDetector):
    """The default detector, timed.

    Arguments:
        passes: Takes the seconds of every forward pass of its versions.
        batches: Takes those that each batch has taken beyond these, once it may speak.
    """

    passes: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)

    def observe(
        self, state: SequentialState, seen: Observation, settled: bool
    ) -> tuple[SequentialState, Verdict]:
        def timed(samples: int) -> FrozenModel:
            taken = seen.version(samples)
            return TimedFrozenModel(taken.model, taken.standardiser, taken.taken_at, self.passes)

        self.passes.clear()
        begun = time.thread_time()
        state, verdict = super().observe(state, seen._replace(version=timed), settled)
        if verdict.armed:
            self.batches.append(time.thread_time() - begun - sum(self.passes))
        return state, verdict


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: digits, one turn."""
    alone: dict[str, dict[str, float]] = {}
    n = 1000 if quick else 10_000
    for name in ("sequential", "adwin"):
        say(f"{name} by itself")
        config = EngineConfig(detector=name)
        alone[name] = {str(batch): microseconds(config, batch, n) for batch in ALONE}
    bare = bare_adwin(n)
    turns = 1 if quick else 3
    source = "digits" if quick else "mnist"
    inside: dict[str, list[dict[str, float]]] = {}
    for preset in PRESETS:
        say(f"{preset} on {source}, {turns} turn(s)")
        inside[preset] = [_turn(preset, source, quick) for _ in range(turns)]
    rows = [(name, *(f"{cost:.2f}" for cost in costs.values())) for name, costs in alone.items()]
    rows.append(("ADWIN itself", *(f"{bare:.2f}" for _ in ALONE)))
    beside = (f"{alone['sequential'][str(batch)] / bare:.2f}" for batch in ALONE)
    rows.append(("sequential / ADWIN itself", *beside))
    columns = tuple(inside[PRESETS[0]][0])
    learning = [
        (preset, *(_spread([turn[column] for turn in found]) for column in columns))
        for preset, found in inside.items()
    ]
    return Measurement(
        (
            Table(
                "The detector by itself, microseconds per sample",
                ("batches of", *map(str, ALONE)),
                tuple(rows),
            ),
            Table(
                f"An engine on {source}, microseconds per sample",
                ("preset", *columns),
                tuple(learning),
            ),
        ),
        {"alone": alone, "bare_adwin": bare, "source": source, "engines": inside},
    )


@as_in_the_trainer()
def _turn(preset: str, source: str, quick: bool) -> dict[str, float]:
    """Processor time per sample, in microseconds."""
    sub_tasks = _sub_tasks(source, 1500 if quick else 6000)
    config = EngineConfig(preset=preset)
    detector = TimedDetector(config.ert, config.warm_up)
    watched = Engine(config, detector=detector)
    told = Engine(EngineConfig(preset=preset, detector="none"))
    return {
        "with a detector": _microseconds(watched, sub_tasks, declare=False),
        "with none": _microseconds(told, sub_tasks, declare=True),
        "the detector": median(detector.batches) / BATCH * 1e6,
    }


def _sub_tasks(source: str, n: int) -> list[list[Batch]]:
    """Batches of every sub-task, n samples each; where there are not so many they come again."""
    data, random = load_dataset(source), np.random.default_rng(0)
    found = []
    for classes in TASK.sub_tasks:
        known = random.permutation(np.flatnonzero(np.isin(data.train_y, classes)))
        rows = np.split(np.resize(known, n), n // BATCH)
        x, y = data.train_x, data.train_y
        found.append([Batch.of(torch.from_numpy(x[row]), y[row].tolist()) for row in rows])
    return found


def _microseconds(engine: Engine, sub_tasks: list[list[Batch]], declare: bool) -> float:
    state, seconds, n = engine.start(), 0.0, 0
    for batches in sub_tasks:
        begun = time.thread_time()
        if declare:
            state, _ = engine.declare_boundary(state)
        for batch in batches:
            state, _ = engine.step(state, batch)
            n += len(batch)
        seconds += time.thread_time() - begun
    return seconds / n * 1e6


def _spread(values: list[float]) -> str:
    """Median, and from which to which."""
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
