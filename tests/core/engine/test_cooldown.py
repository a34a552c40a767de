"""Tests for the pause between two boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Arming, UnarmedReason
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidSettings
from core.events import BoundaryDetected
from tests.core.streams import batches

CONFIG = EngineConfig(preset="flat", n_components=24, warm_up=300, experts=False, ert=100_000)
COOLDOWN = 1500
SIZE = 50
STAGE = 1200
"""Samples after which the class changes."""

STAGES = 5


def stream() -> Iterator[Batch]:
    """Unlabelled, of one class after the other."""
    for stage in range(STAGES):
        yield from batches([stage], STAGE // SIZE, SIZE, seed=stage, labelled=False)


def boundaries(engine: Engine, state: EngineState | None = None) -> list[int]:
    """Places in the stream at which boundaries are found."""
    state = state or engine.start()
    found = []
    for batch in stream():
        state, events = engine.step(state, batch)
        found += [one.sample_index for one in events if isinstance(one, BoundaryDetected)]
    return found


@pytest.mark.parametrize("detector", ["sequential", "paper"])
def test_no_boundary_is_found_in_a_pause_and_the_next_one_is(detector: str) -> None:
    config = replace(CONFIG, detector=detector)
    each = boundaries(Engine(config))
    assert [found // STAGE for found in each] == [*range(1, STAGES)]
    found = boundaries(Engine(replace(config, cooldown=COOLDOWN)))
    # The second change comes in the pause of the first, and the third behind it.
    assert [one // STAGE for one in found] == [1, 3]


def test_the_first_sub_task_has_no_pause() -> None:
    found = boundaries(Engine(replace(CONFIG, cooldown=10**6)))
    assert [one // STAGE for one in found] == [1]


def crossed(engine: Engine) -> EngineState:
    """The state right after the first boundary."""
    state = engine.start()
    for batch in stream():
        state, _ = engine.step(state, batch)
        if state.sub_task.number:
            return state
    raise AssertionError("no boundary")


def test_it_is_told_for_how_long_the_detector_rests() -> None:
    engine = Engine(replace(CONFIG, cooldown=COOLDOWN))
    state = crossed(engine)
    left = engine.arming(state).samples
    assert left is not None
    assert COOLDOWN - 4 * SIZE < left < COOLDOWN + CONFIG.warm_up
    for batch in batches([1], STAGES * STAGE // SIZE, SIZE, seed=9, labelled=False):
        told = engine.arming(state)
        rests = state.stream.samples - state.sub_task.first_sample < COOLDOWN
        if rests:
            assert told == (left, UnarmedReason.COOLDOWN)
        assert told.samples is not None
        assert 0 <= left - told.samples <= SIZE
        armed = told == Arming(0, None)
        state, _ = engine.step(state, batch)
        assert state.watch.armed == armed  # there is no reason exactly where a batch is judged
        if armed:
            break
        left -= min(left, SIZE)
    assert armed


def test_a_pause_that_is_asked_for_rests_a_detector_that_watches_and_ends_when_asked() -> None:
    engine = Engine(CONFIG)
    state = crossed(engine)
    for batch in batches([1], STAGE // SIZE, SIZE, seed=9, labelled=False):
        state, _ = engine.step(state, batch)
    assert state.watch.armed
    state, _ = engine.change_settings(state, {"cooldown": 10**6})
    assert engine.arming(state).reason is UnarmedReason.COOLDOWN
    for batch in batches([2], STAGE // SIZE, SIZE, seed=2, labelled=False):
        state, _ = engine.step(state, batch)
        assert not state.watch.armed
    assert state.sub_task.number == 1
    state, _ = engine.change_settings(state, {"cooldown": None})
    assert engine.arming(state).reason is UnarmedReason.WARM_UP  # what is usual is looked at anew
    for label in (2, 3):
        for batch in batches([label], STAGE // SIZE, SIZE, seed=7, labelled=False):
            state, _ = engine.step(state, batch)
        assert state.sub_task.number == label - 1  # what came in the pause is no news


def test_without_a_detector_there_is_nothing_that_rests() -> None:
    engine = Engine(replace(CONFIG, detector="none", cooldown=COOLDOWN))
    state = engine.start()
    for batch in batches([0], 4, SIZE):
        state, _ = engine.step(state, batch)
    state, _ = engine.declare_boundary(state)
    state, _ = engine.step(state, next(batches([1], 1, SIZE)))
    assert state.sub_task.number == 1
    assert engine.arming(state).reason is UnarmedReason.NO_DETECTOR


def test_a_pause_is_no_negative_number() -> None:
    with pytest.raises(InvalidSettings, match="cooldown is -1"):
        replace(CONFIG, cooldown=-1)
