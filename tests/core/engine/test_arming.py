"""Tests for when the detector may speak, and why not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Arming, UnarmedReason
from core.engine.engine import Engine
from core.engine.state import EngineState
from tests.core.streams import batches

WARM_UP = 200
BATCH = 50
SAMPLES = 950


def walk() -> Tensor:
    """A random walk."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 4, generator=generator).cumsum(0)


def counter() -> Tensor:
    """A number that only grows."""
    return torch.arange(float(SAMPLES))[:, None]


def stepped(engine: Engine, x: Tensor) -> Iterator[EngineState]:
    """The state before the first sample, and after each batch."""
    state = engine.start()
    yield state
    for part in x.split(BATCH):
        state, _ = engine.step(state, Batch.of(part, None))
        yield state


@pytest.mark.parametrize("preset", ["flat", "mfa"])
@pytest.mark.parametrize("stream", [walk, counter])
def test_samples_that_depend_on_each_other_are_why_it_waits(
    stream: Callable[[], Tensor], preset: str
) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=4, warm_up=WARM_UP))
    states = list(stepped(engine, stream()))
    told = [engine.arming(state) for state in states]
    assert told[:2] == [(40, UnarmedReason.WARM_UP), (20, UnarmedReason.WARM_UP)]
    # The early watch is put off: only a whole reference tells how much they depend.
    assert told[2] == (150, UnarmedReason.DEPENDENCE)
    # A whole reference is worth too little, up to four warm-ups after its frozen model was taken.
    assert told[5:19] == [(None, UnarmedReason.DEPENDENCE)] * 14
    assert told[19] == (0, None)
    assert not any(state.watch.armed for state in states)


def test_samples_that_do_not_are_waited_for_by_their_number() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=4, warm_up=WARM_UP))
    x = torch.cat([batch.features for batch in batches([0, 1], 3)])
    told = [engine.arming(state) for state in stepped(engine, x)]
    waiting = [Arming(n, UnarmedReason.WARM_UP) for n in (40, 20)]
    assert told == [*waiting, *[Arming(0, None)] * 5]


@pytest.mark.parametrize("detector", ["sequential", "paper"])
def test_a_model_that_anneals_is_why_it_waits(detector: str) -> None:
    engine = Engine(EngineConfig(preset="paper", detector=detector, warm_up=WARM_UP))
    x = torch.cat([batch.features for batch in batches([0, 1], 5)])
    for state in stepped(engine, x):
        assert engine.arming(state) == (None, UnarmedReason.ANNEALING)
        assert not state.watch.armed


@pytest.mark.parametrize("preset", ["flat", "paper"])
def test_without_a_detector_that_is_the_reason_whatever_else_is_true(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=4, detector="none"))
    for state in stepped(engine, walk()[:200]):
        assert engine.arming(state) == (None, UnarmedReason.NO_DETECTOR)


def test_while_all_samples_wait_for_labels_nobody_knows_when_it_may_speak() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=4, warm_up=WARM_UP))
    parts = list(batches([0, 1], 4))
    state = engine.start()
    ids = [[f"{place}-{row}" for row in range(len(part))] for place, part in enumerate(parts)]
    for part, own in zip(parts, ids, strict=True):
        state, _ = engine.step(state, Batch.of(part.features, None, own))
        assert engine.arming(state) == (None, UnarmedReason.AWAITING_LABELS)
    state, _ = engine.label(state, ids[0], ["a"] * len(ids[0]))
    waiting, reason = engine.arming(state)
    assert waiting is not None
    assert reason is UnarmedReason.WARM_UP


def test_there_is_no_reason_exactly_where_the_next_batch_is_judged() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=8, warm_up=WARM_UP))
    x = torch.cat([batch.features for label in (0, 1, 2) for batch in batches([label], 4)])
    states = list(stepped(engine, x))
    assert states[-1].sub_task.number == 2
    for before, after in pairwise(states):
        samples, reason = engine.arming(before)
        assert (reason is None) == (samples == 0)
        if after.sub_task.number == before.sub_task.number:  # a boundary begins anew
            assert (reason is None) == after.watch.armed
