"""What does a step of the engine cost, and an answer, and what does scoring in two stages change?

The engine alone, one thread, processor time. Two models of the default preset learn the same
images of MNIST in turns, a thousand at a time: one as it is, and one that scores every component
exactly (`core.density.factors.outline`). The second half of the stream is measured, in batches of
100 and of 1,000; then both classify the same test images. What counts is the ratio within a pair.
Preset `flat` learns the same stream by itself. Last comes what differs: accuracy, classes and
log-likelihoods of the two ways from the very same components, and of the two models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks._images import Images, images
from clients.commands.bench import Measurement, Say, Table
from core.config import EngineConfig
from core.density.factors import outline
from core.density.factors.density import FactorDensity
from core.engine.engine import Engine
from core.snapshot import Snapshot

CHUNK = 1000
"""Samples that a model learns in its turn."""

BATCHES = (100, 1000)
REQUESTS = (1, 100, 1000)
NEVER = 1 << 30
DIFFERENT = 0.01
"""Nats from which on two log-likelihoods differ."""


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: digits that ship with scikit-learn, which are too narrow for two stages."""
    n = 1000 if quick else 40_000
    learned, asked = images("digits" if quick else "mnist", n)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {"samples": len(learned.x)}
    preset = EngineConfig().preset
    models: dict[bool, Snapshot] = {}
    for size in BATCHES:
        say(f"{preset}, batches of {size}")
        taken, models = _learned_in_turns(learned, size)
        values[f"learning_{size}"] = _named(taken)
        rows.append((preset, f"learning, B = {size:,}", *_pair(taken)))
    for size in REQUESTS:
        taken = _answered_in_turns(models, asked.x[:size], 2 if quick else 15)
        values[f"answering_{size}"] = _named(taken)
        rows.append((preset, f"classify, {size:,} at once", *_pair(taken)))
    for size in BATCHES:
        say(f"flat, batches of {size}")
        alone = _learned_alone("flat", learned, size)
        values[f"flat_{size}"] = alone
        rows.append(("flat", f"learning, B = {size:,}", f"{statistics.median(alone):.1f}", "", ""))
    differing, differences = _differences(models, asked)
    values["differences"] = differences
    columns = ("preset", "what", "us a sample", "every component exactly", "ratio, median")
    return Measurement(
        (Table("One thread, processor time", columns, tuple(rows)), differing), values
    )


@contextmanager
def _way(two_stages: bool) -> Iterator[None]:
    """Meanwhile models are scored in two stages where that pays, or never."""
    kept = outline.FEWEST_COMPONENTS, outline.FEWEST_TO_CHOOSE
    if not two_stages:
        outline.FEWEST_COMPONENTS = outline.FEWEST_TO_CHOOSE = NEVER
    try:
        yield
    finally:
        outline.FEWEST_COMPONENTS, outline.FEWEST_TO_CHOOSE = kept


def _learned_in_turns(
    learned: Images, size: int
) -> tuple[dict[bool, list[float]], dict[bool, Snapshot]]:
    """Microseconds a sample of each turn in the second half, and both models at the end."""
    engine = Engine(EngineConfig())
    states = {way: engine.start() for way in (True, False)}
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn, begin in enumerate(range(0, len(learned.x), CHUNK)):
        end = min(begin + CHUNK, len(learned.x))
        batches = learned.batches(begin, end, size)
        for way in (True, False) if turn % 2 else (False, True):
            with _way(way):
                begun = time.process_time()
                for batch in batches:
                    states[way], _ = engine.step(states[way], batch)
                spent = time.process_time() - begun
            if end > len(learned.x) // 2:
                taken[way].append(1e6 * spent / (end - begin))
    return taken, {way: engine.snapshot(state) for way, state in states.items()}


def _learned_alone(preset: str, learned: Images, size: int) -> list[float]:
    engine = Engine(EngineConfig(preset=preset))
    state, taken = engine.start(), []
    for begin in range(0, len(learned.x), CHUNK):
        batches = learned.batches(begin, begin + CHUNK, size)
        begun = time.process_time()
        for batch in batches:
            state, _ = engine.step(state, batch)
        taken.append(1e6 * (time.process_time() - begun) / CHUNK)
    return taken[len(taken) // 2 :]


def _answered_in_turns(
    models: dict[bool, Snapshot], x: Tensor, turns: int
) -> dict[bool, list[float]]:
    repeated = max(1, 300 // len(x))

    def asked(model: Snapshot) -> Callable[[], None]:
        def ask() -> None:
            for _ in range(repeated):
                model.classify(x)

        return ask

    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(turns + 1):
        for way in (True, False) if turn % 2 else (False, True):
            begun = time.process_time()
            asked(models[way])()
            if turn:  # the first time, what is computed once is
                taken[way].append(1e6 * (time.process_time() - begun) / repeated / len(x))
    return taken


def _pair(taken: dict[bool, list[float]]) -> tuple[str, str, str]:
    ratios = [exact / rough for rough, exact in zip(taken[True], taken[False], strict=True)]
    return (
        f"{statistics.median(taken[True]):.1f}",
        f"{statistics.median(taken[False]):.1f}",
        f"{statistics.median(ratios):.2f}",
    )


def _named(taken: dict[bool, list[float]]) -> dict[str, list[float]]:
    return {"two_stages": taken[True], "exactly": taken[False]}


def _differences(models: dict[bool, Snapshot], asked: Images) -> tuple[Table, dict[str, Any]]:
    """What differs for the same components, and between the two models."""
    served = models[True]
    density = served.model.density
    assert isinstance(density, FactorDensity)
    exact = replace(served, model=replace(served.model, density=replace(density, directions=None)))
    rough, precise, other = (_answers(one, asked) for one in (served, exact, models[False]))
    away = (rough.log_likelihoods - precise.log_likelihoods).abs()
    found = {
        "components": served.info.components,
        "accuracy": rough.accuracy,
        "accuracy_exact": precise.accuracy,
        "accuracy_learned_exactly": other.accuracy,
        "same_class": 100 * float((rough.labels == precise.labels).mean()),
        "nats_apart": float(away.max()),
        "share_apart": 100 * float((away > DIFFERENT).double().mean()),
    }
    row = (
        f"{found['components']}",
        f"{rough.accuracy:.2f}",
        f"{precise.accuracy:.2f}",
        f"{other.accuracy:.2f}",
        f"{found['same_class']:.2f}",
        f"{found['nats_apart']:.4f}",
        f"{found['share_apart']:.2f}",
    )
    columns = (
        "components",
        "accuracy, %",
        "scored exactly, %",
        "learned exactly, %",
        "same class, %",
        "most, nats",
        f"over {DIFFERENT}, %",
    )
    return Table("Scoring in two stages against exactly, test images", columns, (row,)), found


class _Answers(NamedTuple):
    labels: Any  # (N,) array
    accuracy: float  # percent
    log_likelihoods: Tensor  # (N,)


def _answers(model: Snapshot, asked: Images) -> _Answers:
    parts = [model.classify(part) for part in torch.split(asked.x, 1000)]
    labels = np.array(model.classes)[torch.cat([part.codes for part in parts]).numpy()]
    accuracy = 100 * float((labels == asked.y.numpy()).mean())
    return _Answers(labels, accuracy, torch.cat([part.log_likelihoods for part in parts]))
