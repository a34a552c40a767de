"""Is a sensor that fails found among many, and is it quiet while readings depend on each other?

Made-up readings without labels, in batches of 100, each sensor a mixture of independent ones. First
one of them, or all, change after 6,000 samples: how many samples until a boundary is reported?
And is the one that changes *named*, and no other? Then nothing changes for 40,000 samples, but
every reading is a part of the one before: how many boundaries are reported all the same? Beside the
engine with its default settings stands what is usually done: River's ADWIN on every sensor, asked
for the same run time between false alarms of all together, all restarted when one of them speaks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BoundaryDetected

Readings = NDArray[np.float64]
Change = Callable[[Readings], Readings]


class Found(NamedTuple):
    """A boundary that was reported.

    Attributes:
        end: Samples after which it was.
        named: Sensors that are said to have changed.
    """

    end: int
    named: tuple[int, ...]


Detector = Callable[[Readings], list[Found]]
"""From readings to the boundaries that are reported."""
Systems = dict[str, Detector]
Measured = tuple[Table, list[dict[str, Any]]]
"""A table, and what it was made of."""

BATCH = 100
BEFORE, AFTER = 6000, 3000
STILL = 40_000
ONE = 0
SEEDS = (0, 1, 2)
CHECKED_EVERY = 32
"""Samples after which River's ADWIN looks for a change."""


def readings(n: int, n_sensors: int, seed: int, persistence: float = 0.0) -> Readings:
    """Of correlated sensors, with shape (n, D), each a part of the one before it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n_sensors))
    for i in range(1, n if persistence else 0):
        z[i] = persistence * z[i - 1] + (1 - persistence**2) ** 0.5 * z[i]
    mixing = np.random.default_rng(7).normal(size=(n_sensors, n_sensors)) / n_sensors**0.5
    mixed: Readings = z @ mixing
    return mixed


def _one(change: Callable[[Readings], Any]) -> Change:
    def changed(x: Readings) -> Readings:
        x = x.copy()
        x[:, ONE] = change(x[:, ONE])
        return x

    return changed


def _some(x: Readings) -> Readings:
    return x + 4 * (np.random.default_rng(1).random(len(x)) < 0.1)[:, None]


CHANGES: dict[str, Change] = {
    "one sensor sticks at its mean": _one(lambda x: 0 * x),
    "one sensor + 0.5": _one(lambda x: x + 0.5),
    "one sensor + 1": _one(lambda x: x + 1),
    "one sensor x 2": _one(lambda x: 2 * x),
    "one sensor goes its own way": _one(lambda x: np.random.default_rng(1).permutation(x)),
    "all sensors x 1.3": lambda x: 1.3 * x,
    "all sensors x 0.7": lambda x: 0.7 * x,
    "a tenth of the samples + 4": _some,
}


def _engine(preset: str) -> Detector:
    def found(x: Readings) -> list[Found]:
        engine, told = Engine(EngineConfig(preset=preset)), list[Found]()
        state = engine.start()
        for part in torch.split(torch.from_numpy(x.astype(np.float32)), BATCH):
            state, events = engine.step(state, Batch.of(part))
            told += [
                Found(event.sample_index + len(part), _named(event))
                for event in events
                if isinstance(event, BoundaryDetected)
            ]
        return told

    return found


def _named(event: BoundaryDetected) -> tuple[int, ...]:
    features: Any = event.explanation["features"]
    return tuple(one["feature"] for one in features)


def _adwin(x: Readings) -> list[Found]:
    from river.drift import ADWIN

    make: Any = ADWIN
    delta = CHECKED_EVERY / (EngineConfig().ert * x.shape[1])

    def fresh() -> list[Any]:
        return [make(delta=delta, clock=CHECKED_EVERY) for _ in range(x.shape[1])]

    each, told = fresh(), list[Found]()
    for i, row in enumerate(x.tolist()):
        for one, value in zip(each, row, strict=True):
            one.update(value)
        moved = tuple(place for place, one in enumerate(each) if one.drift_detected)
        if moved:
            told.append(Found(i + 1, moved))
            each = fresh()
    return told


def detectors(say: Say) -> Systems:
    """By name; River's where it is installed."""
    ours: Systems = {preset: _engine(preset) for preset in ("mfa", "flat")}
    try:
        import river  # noqa: F401
    except ImportError:
        say("River is not installed: ADWIN is left out")
        return ours
    return ours | {"ADWIN on each": _adwin}


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one sensor of ten sticks or moves; one seed."""
    systems = detectors(say)
    changed, changes = _changed(systems, quick, say)
    still, quiet = _still(systems, quick, say)
    return Measurement((changed, still), {"changes": changes, "still": quiet})


def _changed(systems: Systems, quick: bool, say: Say) -> Measured:
    """How soon each system finds each change."""
    names, seeds = (list(CHANGES)[:3:2], SEEDS[:1]) if quick else (list(CHANGES), SEEDS)
    rows, values = list[tuple[str, ...]](), list[dict[str, Any]]()
    for n_sensors in (10,) if quick else (10, 50):
        for name in names:
            cells = [str(n_sensors), name]
            for system, find in systems.items():
                delays, named, false = list[int](), 0, 0
                for seed in seeds:
                    later = CHANGES[name](readings(AFTER, n_sensors, 100 + seed))
                    told = find(np.concatenate([readings(BEFORE, n_sensors, seed), later]))
                    after = [one for one in told if one.end > BEFORE]
                    delays += [one.end - BEFORE for one in after[:1]]
                    named += sum(one.named == (ONE,) for one in after[:1])
                    false += len(told) - len(after)
                middle = f", {statistics.median_low(delays)}" if delays else ""
                only = f"; {named}" if name.startswith("one") else ""
                cells.append(f"{len(delays)}/{len(seeds)}{middle}; {false}{only}")
                values.append(
                    {"sensors": n_sensors, "change": name, "system": system, "delays": delays,
                     "named": named, "seeds": len(seeds), "false": false}
                )  # fmt: skip
            say("  ".join(cells))
            rows.append(tuple(cells))
    title = "A change after 6,000 samples: found, median delay; false before it; named, alone"
    return Table(title, ("sensors", "change", *systems), tuple(rows)), values


def _still(systems: Systems, quick: bool, say: Say) -> Measured:
    """How often each system finds a change where there is none."""
    rows, values = list[tuple[str, ...]](), list[dict[str, Any]]()
    n = STILL // 10 if quick else STILL
    for n_sensors in (5,) if quick else (5, 20):
        for persistence in (0.5,) if quick else (0.0, 0.5, 0.8, 0.95, 0.99):
            cells = [str(n_sensors), str(persistence)]
            for system, find in systems.items():
                false = len(find(readings(n, n_sensors, 3, persistence)))
                cells.append(str(false))
                values.append(
                    {"sensors": n_sensors, "persistence": persistence, "system": system,
                     "samples": n, "false": false}
                )  # fmt: skip
            say("  ".join(cells))
            rows.append(tuple(cells))
    title = "Nothing changes in 40,000 samples, each a part of the one before: boundaries"
    return Table(title, ("sensors", "part", *systems), tuple(rows)), values
