"""Tests for service.trainer.run_time_target, and for a trainer that is asked for a run time as a
time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.engine import Engine
from service.settings import Settings
from service.trainer import run_time_target as aim
from service.trainer.run_time_target import FEWEST_SAMPLES, MUCH, SETTLED_S, RunTimeTarget
from service.wire import Control
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    batch,
    learned_directly,
    published_position,
    send,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)


@given(
    seconds=st.floats(0.1, 1e7),
    before=st.integers(0, 10**9),
    pace=st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 10**6)), min_size=1, max_size=30),
)
def test_what_is_in_force_is_never_far_from_what_is_asked(
    seconds: float, before: int, pace: list[tuple[float, int]]
) -> None:
    one, now, samples = RunTimeTarget(seconds, before, 100.0), 100.0, before
    ert: float | None = None
    for pause, more in pace:
        now, samples = now + pause, samples + more
        told = one.due(ert, samples, now)
        passed = now - 100.0
        if passed < SETTLED_S or samples == before:
            assert told is None
            continue
        ert = told or ert
        wanted = max(FEWEST_SAMPLES, seconds * (samples - before) / passed)
        assert ert is not None
        assert wanted / ert == pytest.approx(1, abs=0.25) or 1 / MUCH <= wanted / ert <= MUCH
        # Once told, there is nothing to add.
        assert one.due(ert, samples, now) is None or wanted < 10


def test_idle_hours_are_part_of_the_rate() -> None:
    one = RunTimeTarget(3600, 0, 0.0)
    assert one.due(None, 36_000, 3600.0) == 36_000
    assert one.due(36_000, 36_000, 4 * 3600.0) == 9000


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aim, "SETTLED_S", 0.2)
    monkeypatch.setattr(aim, "MUCH", 1000.0)  # told once, however busy the machine


def asked(settings: Settings) -> float:
    return float(wait_until(lambda: ask(settings, lambda stream: stream.reports.status()))["ert"])


@pytest.mark.usefixtures("hasty")
def test_a_time_reaches_the_engine_through_an_entry_of_the_stream(settings: MakeSettings) -> None:
    timed = settings(ert="1h")
    batches = sub_tasks(0, batches=5)
    with training(timed):
        assert asked(timed) == 1e7  # until the rate is known
        send(timed, *batches)
        told = wait_until(lambda: (ert := asked(timed)) != 1e7 and ert)
        # 100 samples within some 0.2 seconds, and an hour has 3,600.
        assert 3600 <= told <= 100 / 0.2 * 3600
        wait_for_backlog(timed)
        assert ask(timed, lambda stream: stream.accepted()) == len(batches) + 1
        text = ask(timed, lambda stream: stream.reports.trainer_metrics()).decode()
        assert "gmr_drift_ert_achieved_samples" in text
    # Another start goes on with it, and is told nothing new.
    with training(timed):
        wait_until(lambda: ask(timed, lambda stream: stream.reports.status())["state"] == "running")
        assert asked(timed) == told
        send(timed, batch(0, 70))
        wait_for_backlog(timed)
        assert asked(timed) == told
    # Reading the same stream again gives the same model.
    state = learned_directly(timed, [*batches, batch(0, 70)])
    assert published_position(timed)[0] == state.model.version


def test_a_number_of_samples_takes_the_place_of_a_time(settings: MakeSettings) -> None:
    timed, counted = settings(ert="1h"), settings(ert="50000")
    with training(timed):
        send(timed, batch(0, 0), Control("aim", samples=123_456))
        wait_for_backlog(timed)
        wait_until(lambda: asked(timed) == 123_456)
    with training(counted):
        wait_until(lambda: asked(counted) == 50_000)
        wait_for_backlog(counted)
        # By an entry, and by one only.
        assert ask(counted, lambda stream: stream.accepted()) == 3
    state = learned_directly(counted, [batch(0, 0)])
    state, events = Engine(counted.engine_config()).aim(state, 50_000)
    [changed] = events
    assert (state.watch.ert, changed.ert, changed.asked) == (50_000, 50_000, False)
    assert published_position(counted)[0] == state.model.version


def test_an_aim_that_makes_no_sense_is_set_aside(settings: MakeSettings) -> None:
    made = settings()
    with training(made):
        send(made, batch(0, 0), Control("aim", samples=1))
        wait_for_backlog(made)
        assert asked(made) == 1e7
        status = ask(made, lambda stream: stream.reports.status())
        assert status["rejected"] == {"invalid_request": 1}
