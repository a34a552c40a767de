"""What an engine said of one stream, and what that took.

Rule: the engine is driven as the trainer drives it, batch by batch, in this process; the
clock runs while it works and at no other time.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import cattrs
import numpy as np
import torch

from benchmarks.detection.stream import UNKNOWN, DriftStream
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BatchScored, BoundaryDetected, Event

QUIET = {"batch_learned", "batch_set_aside", "replay", "class_discovered"}
"""Events that come with most batches, and say nothing of changes."""

TEST_ROWS = 2000
"""Samples classified at a time."""


@dataclass(frozen=True)
class Trace:
    """Per batch, what was compared with what; names of signals -> one value per batch.

    Attributes:
        ends: Samples seen by the end of the batch.
        statistics: What the detector, and every shadow, computed.
        thresholds: What that is compared with.
        inlier_rate: Share of inliers; None before anything was learned.
        armed: Whether an alarm could have been raised.
        set_aside: Whether the batch was kept apart.
    """

    ends: list[int] = field(default_factory=list)
    statistics: list[dict[str, float]] = field(default_factory=list)
    thresholds: list[dict[str, float]] = field(default_factory=list)
    inlier_rate: list[float | None] = field(default_factory=list)
    armed: list[bool] = field(default_factory=list)
    set_aside: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Record:
    """One stream, as one detector saw it; JSON by the names of these fields.

    Attributes:
        alarms: Detector -> samples seen when it raised each alarm; those of the deciding one
            are boundaries, those of shadows are not.
        events: Every event that tells of a change, as it was reported.
        batches: Of the stream; with `samples`.
        armed_samples: Samples of batches at which the deciding detector was armed.
        set_aside_samples: Samples of batches that were kept apart when they came.
        prequential: Running accuracy at the end, 0 to 1; None without labels.
        accuracy: On the held-out samples at the end, 0 to 1; None where there are none.
        seconds: Processor time of the engine.
        trace: Per batch; None where it was not asked for.
    """

    alarms: dict[str, list[int]]
    events: list[dict[str, Any]]
    batches: int
    samples: int
    armed_samples: int
    set_aside_samples: int
    prequential: float | None
    accuracy: float | None
    seconds: float
    trace: Trace | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """The inverse of `to_dict`."""
        return cattrs.structure(values, cls)


def record(
    stream: DriftStream,
    config: EngineConfig,
    batch_size: int,
    *,
    labelled: bool = True,
    told: bool = False,
    trace: bool = False,
) -> Record:
    """Let a fresh engine learn a stream.

    Arguments:
        config: Names the deciding detector, and shadows.
        batch_size: Samples per batch, or `MIXED`.
        labelled: Whether the engine is shown labels.
        told: Declare every lasting change where it is.
        trace: Keep what was said of every batch.
    """
    engine = Engine(config)
    state = engine.start()
    alarms: dict[str, list[int]] = {engine.detector.name: []}
    alarms |= {name: [] for name in config.shadows}
    kept: list[dict[str, Any]] = []
    lines = Trace()
    declared = {change.sample for change in stream.changes if change.lasting} if told else set()
    seen = batches = armed = aside = 0
    prequential: float | None = None
    seconds = 0.0
    for x, y in stream.batches(batch_size, told=told):
        batch = Batch.of(torch.from_numpy(x), _labels(y) if labelled else None)
        begun = time.thread_time()
        events: list[Event] = []
        if seen in declared:
            state, events = engine.declare_boundary(state)
        state, further = engine.step(state, batch)
        seconds += time.thread_time() - begun
        seen, batches = seen + len(batch), batches + 1
        for event in (*events, *further):
            if isinstance(event, BatchScored):
                armed += event.samples * event.armed
                aside += event.samples * (event.kind == "batch_set_aside")
                prequential = event.prequential_accuracy_mean
                if trace:
                    _note(lines, event, seen)
            if event.kind in QUIET:
                continue
            kept.append(event.to_dict())
            if isinstance(event, BoundaryDetected) and event.detector != "declared":
                alarms[engine.detector.name].append(seen)
            elif event.kind == "shadow_alarm":
                alarms[str(kept[-1]["detector"])].append(seen)
    return Record(
        alarms=alarms,
        events=kept,
        batches=batches,
        samples=seen,
        armed_samples=armed,
        set_aside_samples=aside,
        prequential=prequential,
        accuracy=_accuracy(engine, state, stream),
        seconds=seconds,
        trace=lines if trace else None,
    )


def _labels(y: np.ndarray[Any, Any]) -> list[int | str | None]:
    return [None if label == UNKNOWN else label for label in y.tolist()]


def _note(lines: Trace, event: BatchScored, seen: int) -> None:
    lines.ends.append(seen)
    lines.statistics.append(dict(event.statistics))
    lines.thresholds.append(dict(event.thresholds))
    lines.inlier_rate.append(event.inlier_rate)
    lines.armed.append(event.armed)
    lines.set_aside.append(event.kind == "batch_set_aside")


def _accuracy(engine: Engine, state: Any, stream: DriftStream) -> float | None:
    if stream.test_x is None or stream.test_y is None or not len(stream.test_x):
        return None
    snapshot = engine.snapshot(state)
    classes = np.array(snapshot.info.classes)
    if not len(classes):
        return None
    hits = 0
    for start in range(0, len(stream.test_x), TEST_ROWS):
        x = torch.from_numpy(stream.test_x[start : start + TEST_ROWS])
        guesses = classes[snapshot.classify(x).probabilities.argmax(-1).numpy()]
        hits += int((guesses == stream.test_y[start : start + TEST_ROWS]).sum())
    return hits / len(stream.test_x)
