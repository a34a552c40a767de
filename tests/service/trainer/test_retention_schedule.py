"""Tests for service.trainer.retention_schedule: when the model is asked about the past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory.retention import SubTaskRetention
from service.trainer import retention_schedule
from service.trainer.retention_schedule import RetentionSchedule
from tests.core.states import play
from tests.core.streams import batches


class Clock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class SlowEngine(Engine):
    """Takes a second to ask, and remembers of which versions it was asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(EngineConfig(preset="flat", n_components=6, detector="none"))
        self.clock = clock
        self.asked: list[int] = []

    def held(self, state: EngineState) -> tuple[SubTaskRetention, ...]:
        self.clock.now += 1
        self.asked.append(state.model.version)
        return super().held(state)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retention_schedule, "time", clock)
    return clock


@pytest.fixture
def engine(clock: Clock) -> SlowEngine:
    return SlowEngine(clock)


def learned(engine: Engine, state: EngineState, n: int = 1) -> EngineState:
    return play(engine, state, list(batches([2], n)))[0]


@pytest.fixture
def state(engine: SlowEngine) -> EngineState:
    """With one sub-task behind it; version 4."""
    return play(engine, engine.start(), [*batches([0, 1], 3), "boundary"])[0]


def test_it_is_asked_at_once_where_there_is_time(engine: SlowEngine, state: EngineState) -> None:
    asking = RetentionSchedule(engine)
    assert not asking.is_fresh(state)
    (row,) = asking.rows(state, quiet=False)
    assert row.model_version == state.model.version == 4
    assert asking.is_fresh(state)


def test_a_sub_task_that_has_just_ended_is_held_as_it_was_until_there_is_time(
    engine: SlowEngine, state: EngineState, clock: Clock
) -> None:
    asking = RetentionSchedule(engine)
    (first,) = asking.rows(state, quiet=False)
    later = learned(engine, state)
    ended, _ = engine.declare_boundary(later)
    same, new = asking.rows(ended, quiet=False)
    assert same == first
    # Its samples are drawn of the model at rest, after what was learned has been put away.
    assert (new.sub_task, new.model_version) == (1, ended.model.version)
    assert new.accuracy_now == new.accuracy_then
    assert engine.asked == [state.model.version]
    clock.now += 1 / retention_schedule.SHARE
    assert [row.model_version for row in asking.rows(ended, quiet=False)] == [
        ended.model.version
    ] * 2


def test_while_the_stream_flows_it_takes_its_share_of_the_time_and_no_more(
    engine: SlowEngine, state: EngineState, clock: Clock
) -> None:
    asking = RetentionSchedule(engine)
    asking.rows(state, quiet=False)
    begun = clock.now
    while clock.now < begun + 1000:
        state = learned(engine, state)
        asking.rows(state, quiet=False)
        clock.now += 10
    assert (len(engine.asked) - 1) / 1000 == pytest.approx(retention_schedule.SHARE, rel=0.2)


def test_in_between_the_answer_before_is_given(engine: SlowEngine, state: EngineState) -> None:
    asking = RetentionSchedule(engine)
    before = asking.rows(state, quiet=False)
    later = learned(engine, state)
    assert asking.rows(later, quiet=False) == before
    assert not asking.is_fresh(later)


def test_in_between_a_class_goes_by_the_name_that_it_has_by_now(
    engine: SlowEngine, state: EngineState
) -> None:
    asking = RetentionSchedule(engine)
    (before,) = asking.rows(state, quiet=False)
    first, second = (one.label for one in before.classes)
    for label, to in ((second, "one"), (first, second)):
        state, _ = engine.rename_class(state, label, to)
    (row,) = asking.rows(state, quiet=False)
    assert [one.label for one in row.classes] == [second, "one"]
    named_as_before = zip(row.classes, before.classes, strict=True)
    assert row == replace(
        before, classes=tuple(replace(one, label=now.label) for now, one in named_as_before)
    )
    state, _ = engine.rename_class(learned(engine, state), "one", "uno")
    (row,) = asking.rows(state, quiet=False)
    assert [one.label for one in row.classes] == [second, "uno"]
    assert len(engine.asked) == 1


def test_in_between_nothing_is_told_of_two_classes_that_have_become_one_but_how_they_were(
    engine: SlowEngine, state: EngineState
) -> None:
    asking = RetentionSchedule(engine)
    (before,) = asking.rows(state, quiet=False)
    first, second = (one.label for one in before.classes)
    state, _ = engine.merge_classes(state, first, second)
    (row,) = asking.rows(state, quiet=False)
    assert len(engine.asked) == 1
    [one] = row.classes
    assert (one.label, one.samples) == (second, sum(own.samples for own in before.classes))
    assert one.accuracy_now == one.accuracy_then
    (row,) = asking.rows(state, quiet=True)
    assert len(engine.asked) == 2
    assert row.accuracy_now is not None
    assert row.accuracy_now >= one.accuracy_then


def test_when_the_stream_is_quiet_it_is_asked_once_more(
    engine: SlowEngine, state: EngineState
) -> None:
    asking = RetentionSchedule(engine)
    asking.rows(state, quiet=False)
    later = learned(engine, state)
    for _ in range(3):
        (row,) = asking.rows(later, quiet=True)
    assert row.model_version == later.model.version
    assert engine.asked == [state.model.version, later.model.version]


def test_without_a_past_nothing_is_asked(engine: SlowEngine) -> None:
    state, _ = play(engine, engine.start(), list(batches([0], 2)))
    asking = RetentionSchedule(engine)
    assert asking.is_fresh(state)
    assert asking.rows(state, quiet=True) == ()
    assert engine.asked == []
