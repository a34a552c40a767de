"""A model learned from one stream through the engine, with what happened on the way.

Here the engine in `core` is driven directly, without a service: for pictures of a stream
and for models that are then looked into. A lesson is kept as one safetensors file, the
model as it would be served and the trace beside it, and is learned again only when what
determines it has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cattrs
import torch

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.comparison.cell import REPEATS, pixels
from benchmarks.comparison.provenance import checksum, source_digest, versions
from benchmarks.comparison.store import write_whole
from benchmarks.paper_preset import EPOCHS
from clients.data.datasets import Dataset
from clients.data.tasks import SLT, stream
from core.batch import Batch
from core.config import EngineConfig
from core.density.density import Density
from core.density.diagonal.density import DiagonalDensity
from core.density.factors.density import FactorDensity
from core.engine.engine import Engine
from core.errors import InvalidCheckpoint
from core.events import BatchScored, BatchSetAside, BoundaryDetected
from core.snapshot import Snapshot

BATCH = 100

SAMPLED = 500
"""Samples whose mean log-likelihood is the sampling log-likelihood."""

LOOKS, QUICK_LOOKS = 60, 20
"""How often on the way that is taken, where all classes come at once."""


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        preset: Of the engine.
        data: The data set.
        slt: How it is cut.
        seed: Of the engine and of the order of the samples.
        quick: Whether everything is to be small.
    """

    preset: str
    data: str
    slt: SLT
    seed: int
    quick: bool

    @property
    def published_pace(self) -> bool:
        """Preset `paper` on all classes at once is given the epochs that the paper gives it."""
        return self.preset == "paper" and len(self.slt.sub_tasks) == 1 and not self.quick

    @property
    def epochs(self) -> int:
        """How often the samples of a sub-task are streamed."""
        return EPOCHS[0] if self.published_pace else REPEATS.get(self.data, 1)

    @property
    def engine(self) -> EngineConfig:
        """The settings of the preset, as they come but for what the pace asks for."""
        if self.published_pace:
            return EngineConfig(
                preset=self.preset, seed=self.seed, pace="published", detector="none"
            )
        return EngineConfig(preset=self.preset, seed=self.seed)

    @property
    def file(self) -> str:
        """Name of the file that keeps it."""
        return f"{self.data}-{self.slt.name}-{self.preset}-seed{self.seed}.safetensors"

    def configuration(self, dataset: Dataset) -> dict[str, Any]:
        """All that determines the result, JSON-ready."""
        return {
            "engine": self.engine.to_dict(),
            "data": self.data,
            "checksum": checksum(dataset),
            "sub_tasks": [list(classes) for classes in self.slt.sub_tasks],
            "seed": self.seed,
            "epochs": self.epochs,
            "batch": BATCH,
            "versions": versions(),
            "source": source_digest(
                ("core.engine.engine",), ("benchmarks.comparison.lesson", "clients.data.tasks")
            ),
        }


@dataclass
class Trace:
    """What happened, one value per batch where not said otherwise.

    Attributes:
        sub_task: The true one.
        inlier_rate: Before the batch was learned; None before there was a model.
        set_aside: Whether the batch was kept apart as a suspected change.
        log_likelihood: Mean over the batch before it was learned, nats.
        ratios: Per signal of the detector: its statistic, as a share of the threshold.
        boundaries: Batches sent when each was reported, the reporting one included.
        sampled: Batches sent, and mean log-likelihood of samples drawn then, nats; only where
            all classes come at once.
        sampled_floored: The same of samples of the density that scores, see `floored`.
    """

    sub_task: list[int] = field(default_factory=list)
    inlier_rate: list[float | None] = field(default_factory=list)
    set_aside: list[bool] = field(default_factory=list)
    log_likelihood: list[float | None] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    boundaries: list[int] = field(default_factory=list)
    sampled: list[tuple[int, float]] = field(default_factory=list)
    sampled_floored: list[tuple[int, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sub_task)

    def add(self, sub_task: int, scored: BatchScored) -> None:
        """Note one batch."""
        self.sub_task.append(sub_task)
        self.inlier_rate.append(scored.inlier_rate)
        self.set_aside.append(isinstance(scored, BatchSetAside))
        self.log_likelihood.append(scored.log_likelihood_mean)
        for name, statistic in scored.statistics.items():
            # A detector may speak of a signal for the first time late in the stream.
            values = self.ratios.setdefault(name, [0.0] * (len(self) - 1))
            threshold = scored.thresholds.get(name, 0.0)
            values.append(statistic / threshold if threshold > 0 else 0.0)
        for values in self.ratios.values():
            values.extend([0.0] * (len(self) - len(values)))


@dataclass(frozen=True)
class Lesson:
    """A model and how it came about."""

    recipe: Recipe
    configuration: dict[str, Any]
    snapshot: Snapshot
    trace: Trace


def lesson(
    recipe: Recipe,
    dataset: Dataset,
    folder: Path,
    say: Callable[[str], None],
    *,
    any_source: bool = False,
) -> Lesson:
    """The model of a recipe: from its file, or learned now and kept.

    Arguments:
        folder: Of the files.
        say: Takes a line when there is something to wait for.
        any_source: Believe files of other versions of the code and the libraries.
    """
    path = folder / recipe.file
    configuration = recipe.configuration(dataset)
    known = _read(path, configuration, any_source)
    if known is not None:
        return Lesson(recipe, configuration, *known)
    passes = f", {recipe.epochs} epochs" if recipe.epochs > 1 else ""
    say(f"{recipe.data} {recipe.slt.name}: a model of preset {recipe.preset} learns{passes}")
    snapshot, trace = _learn(recipe, dataset)
    text = {
        "configuration": json.dumps(configuration, sort_keys=True),
        "trace": json.dumps(cattrs.unstructure(trace)),
    }
    write_whole(path, snapshot.to_bytes(text))
    return Lesson(recipe, configuration, snapshot, trace)


def _read(
    path: Path, configuration: dict[str, Any], any_source: bool
) -> tuple[Snapshot, Trace] | None:
    """What the file holds, if it is there and of that configuration."""
    left_out = {"versions", "source"} if any_source else set[str]()
    try:
        snapshot, text = Snapshot.from_bytes(path.read_bytes())
        found = json.loads(text["configuration"])
    except (OSError, InvalidCheckpoint, KeyError):
        return None
    if any(found.get(key) != value for key, value in configuration.items() if key not in left_out):
        return None
    return snapshot, cattrs.structure(json.loads(text["trace"]), Trace)


@as_in_the_trainer()
def _learn(recipe: Recipe, dataset: Dataset) -> tuple[Snapshot, Trace]:
    engine = Engine(recipe.engine)
    state, trace = engine.start(), Trace()
    n_batches = len(recipe.slt.rows(dataset.train_y)) * recipe.epochs // BATCH
    every = max(1, n_batches // (QUICK_LOOKS if recipe.quick else LOOKS))
    looks = recipe.slt.n_boundaries == 0
    for sub_task, batch in _batches(recipe, dataset):
        state, events = engine.step(state, batch)
        scored = next(event for event in reversed(events) if isinstance(event, BatchScored))
        trace.add(sub_task, scored)
        if any(isinstance(event, BoundaryDetected) for event in events):
            trace.boundaries.append(len(trace))
        if looks and len(trace) % every == 0:
            snapshot = engine.snapshot(state)
            trace.sampled.append((len(trace), _sampling_likelihood(snapshot, recipe.seed)))
            density = floored(snapshot.model.density)
            if density is not None:
                model = replace(snapshot.model, density=density)
                value = _sampling_likelihood(replace(snapshot, model=model), recipe.seed)
                trace.sampled_floored.append((len(trace), value))
    return engine.snapshot(state), trace


def floored(density: Density) -> Density | None:
    """The same density, drawing from exactly what it scores by; None where there is no such.

    Ours draw by raw variances and score by variances raised to a floor. The paper's has
    only the latter, and its proposition speaks of samples of the density that scores.
    """
    if isinstance(density, DiagonalDensity):
        return replace(density, deviations=density.mixture.precision_root.reciprocal())
    if isinstance(density, FactorDensity):
        noise = density.mixture.noise.clamp_min(density.floor)
        return FactorDensity.whole(density.mixture._replace(noise=noise), density.floor)
    return None


def _sampling_likelihood(snapshot: Snapshot, seed: int) -> float:
    """Mean log-likelihood of samples of any class, none drawn a second time."""
    return float(snapshot.sample(SAMPLED, seed=seed).log_likelihoods.mean())


def _batches(recipe: Recipe, dataset: Dataset) -> Iterator[tuple[int, Batch]]:
    sub_tasks = stream(
        recipe.slt, dataset.train_x, dataset.train_y, epochs=recipe.epochs, seed=recipe.seed
    )
    for sub_task in sub_tasks:
        for features, labels in sub_task.batches(BATCH):
            batch = Batch.of(pixels(features), torch.from_numpy(labels), images=True)
            yield sub_task.index, batch
