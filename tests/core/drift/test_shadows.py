"""Tests for the core.drift.shadows module: rules that are heard and decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.batch import Batch
from core.config import EngineConfig
from core.drift.shadows import Shadows
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidSettings
from core.events import BatchScored, BoundaryDetected, Event, ShadowAlarm
from tests.core.states import assert_identical, play
from tests.core.streams import batches

ALONE = EngineConfig(preset="flat", n_components=12, warm_up=300, experts=False)
BESIDE = replace(ALONE, shadow_detectors="paper, adwin")
STREAM = [*batches([0, 1], 10), *batches([2], 6, seed=5)]


def life(config: EngineConfig, stream: Sequence[Batch] = STREAM) -> tuple[EngineState, list[Event]]:
    engine = Engine(config)
    return play(engine, engine.start(), list(stream))


def test_a_shadow_changes_nothing_but_what_is_told_of_it() -> None:
    state, events = life(ALONE)
    beside, told = life(BESIDE)
    assert_identical(beside.with_watch(shadows=()), state)
    plain = [event for event in told if not isinstance(event, ShadowAlarm)]
    for one, other in zip(plain, events, strict=True):
        if isinstance(one, BatchScored):
            assert isinstance(other, BatchScored)
            one = replace(one, statistics=other.statistics, thresholds=other.thresholds)
        assert one == other


def test_its_statistic_stands_under_its_name() -> None:
    scored = [event for event in life(BESIDE)[1] if isinstance(event, BatchScored)]
    assert {"paper", "adwin"} <= set(scored[-1].statistics)
    assert set(scored[-1].statistics) == set(scored[-1].thresholds)
    assert scored[-1].thresholds["paper"] == pytest.approx(0.2)


def test_its_alarm_is_an_event_of_its_own_and_no_boundary() -> None:
    config = replace(BESIDE, detector="none")
    state, events = life(config)
    alarms = [event for event in events if isinstance(event, ShadowAlarm)]
    assert {alarm.detector for alarm in alarms} == {"paper", "adwin"}
    assert {(alarm.batch_index, alarm.sample_index) for alarm in alarms} == {(10, 1000)}
    assert all(alarm.statistic >= alarm.threshold for alarm in alarms)
    assert not [event for event in events if isinstance(event, BoundaryDetected)]
    assert state.sub_task.number == 0


def test_a_shadow_says_what_the_same_rule_would_decide_up_to_its_first_alarm() -> None:
    deciding = life(replace(ALONE, detector="paper"))[1]
    boundary = next(event for event in deciding if isinstance(event, BoundaryDetected))
    shadowed = life(replace(BESIDE, detector="none"))[1]
    alarm = next(
        event for event in shadowed if isinstance(event, ShadowAlarm) and event.detector == "paper"
    )
    assert (alarm.batch_index, alarm.sample_index) == (boundary.batch_index, boundary.sample_index)
    assert alarm.statistic == boundary.evidence["statistic"]


def test_shadows_start_anew_at_a_boundary() -> None:
    state, events = life(BESIDE)
    assert any(isinstance(event, BoundaryDetected) for event in events)
    by_name = {shadow.detector: shadow.state for shadow in state.watch.shadows}
    assert by_name["adwin"].samples < 600


def test_what_they_remember_is_in_the_checkpoint() -> None:
    engine = Engine(BESIDE)
    state, _ = life(BESIDE, STREAM[:9])
    loaded, config, _ = load(dump(state, BESIDE, {}))
    assert config == BESIDE
    assert_identical(loaded, state)
    after, events = play(engine, state, list(STREAM[9:]))
    again, events_again = play(Engine(config), loaded, list(STREAM[9:]))
    assert events_again == events
    assert_identical(again, after)


def test_shadows_may_be_changed_between_two_runs() -> None:
    state, _ = life(BESIDE, STREAM[:9])
    engine = Engine(replace(ALONE, shadow_detectors="page_hinkley,adwin"))
    state, _ = play(engine, state, list(STREAM[9:10]))
    assert [shadow.detector for shadow in state.watch.shadows] == ["page_hinkley", "adwin"]
    fresh, kept = (shadow.state.samples for shadow in state.watch.shadows)
    assert (fresh, kept) == (100, 900)
    state, _ = play(Engine(ALONE), state, list(STREAM[10:11]))
    assert state.watch.shadows == ()


def test_none_is_none() -> None:
    assert Shadows.of((), lambda name: pytest.fail(name)).start() == ()


@pytest.mark.parametrize("names", ["magic", "adwin,none", "sequential"])
def test_names_that_make_no_sense_are_refused(names: str) -> None:
    with pytest.raises(InvalidSettings, match="shadow_detectors names"):
        EngineConfig(shadow_detectors=names)
