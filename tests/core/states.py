"""Looking into states from outside: every number they hold, equality bit for bit, and scripts.

A *script* is a short life of an engine as plain data, so that hypothesis can make one up:
a list of `Batch`es and of the words "boundary" and "settle".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import Event
from tests.core.streams import batches, blob

Script = list[Batch | str]


def leaves(value: Any, path: str = "state") -> Iterator[tuple[str, Any]]:
    """Every tensor (an array is one), number and text of a state with its place."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        yield f"len({path})", len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor of a state."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


def assert_identical(one: Any, other: Any) -> None:
    """Same structure, same numbers, bit for bit."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    for (path, a), (other_path, b) in pairs:
        assert path == other_path
        assert type(a) is type(b), path
        if isinstance(a, Tensor):
            assert a.dtype == b.dtype, path
            assert torch.equal(a, b), path
        else:
            assert a == b, path


def assert_finite(value: Any) -> None:
    """No number of a state is NaN or infinite, but for evidence that has not begun: log 0."""
    for path, leaf in leaves(value):
        if path.endswith((".evidence.levels", ".detector.probe")):
            totals = leaf[:1] if path.endswith("levels") else leaf
            assert not bool((totals.isnan() | totals.isposinf()).any()), path
            assert bool(leaf[len(totals) :].isfinite().all()), path
            continue
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            assert bool(leaf.isfinite().all()), path
        elif isinstance(leaf, float):
            assert math.isfinite(leaf), path


def play(engine: Engine, state: EngineState, script: Script) -> tuple[EngineState, list[Event]]:
    """The state after a script, and all that happened."""
    happened: list[Event] = []
    for part in script:
        if isinstance(part, Batch):
            state, events = engine.step(state, part)
        elif part == "boundary":
            state, events = engine.declare_boundary(state)
        else:
            state, events = engine.settle(state)
        happened += events
    return state, happened


def lived(
    engine: Engine,
    labels: Sequence[int],
    n_batches: int,
    size: int = 100,
    seed: int = 0,
    labelled: bool = True,
) -> EngineState:
    """The state of an engine after `batches` of these arguments.

    It is lived once for all tests that ask: a step changes nothing of the state given in.
    """
    return lived_through(engine, batches, tuple(labels), n_batches, size, seed, labelled)[0]


def lived_through(
    engine: Engine, stream: Callable[..., Iterable[Batch | str]], *arguments: Any
) -> tuple[EngineState, list[Event]]:
    """The state of an engine after `stream(*arguments)`, and all that happened.

    It is lived once for all tests that ask, as in `lived`.

    Arguments:
        stream: The same for the same arguments, which can be hashed.
    """
    assert engine.device.type == "cpu"
    state, happened = _lived_through(engine.config, stream, arguments)
    return state, list(happened)


@lru_cache(maxsize=128)
def _lived_through(
    config: EngineConfig, stream: Callable[..., Iterable[Batch | str]], arguments: tuple[Any, ...]
) -> tuple[EngineState, tuple[Event, ...]]:
    engine = Engine(config)
    state, happened = play(engine, engine.start(), list(stream(*arguments)))
    return state, tuple(happened)


@st.composite
def scripts(draw: st.DrawFn, least: int = 1, most: int = 8) -> Script:
    """Lives with labelled, half-labelled and unlabelled batches of 1 to 300 samples."""
    script: Script = []
    for index in range(draw(st.integers(least, most))):
        kind = draw(st.sampled_from(["batch"] * 8 + ["boundary", "settle"]))
        if kind != "batch":
            script.append(kind)
            continue
        n = draw(st.sampled_from([1, 2, 5, 40, 100, 300]))
        label = draw(st.sampled_from([0, 1, 2, "two", "1", -7]))
        features = blob(hash_of(label), n, seed=index)
        labelled = draw(st.sampled_from(["all", "all", "some", "none"]))
        if labelled == "none":
            script.append(Batch(features))
        else:
            every = 1 if labelled == "all" else 3
            labels = [label if row % every == 0 else None for row in range(n)]
            script.append(Batch.of(features, labels))
    return script


def hash_of(label: int | str) -> int:
    """Which blob stands for a label: the same in every process, unlike `hash`."""
    return sum(repr(label).encode()) % 89
