"""Tests for core.drift.baselines.river: River's detectors, and a tape that stands for them."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift

from core.config import EngineConfig
from core.drift.baselines.river import REACH, RIVER, RiverDetector, RiverState
from core.drift.detector import Level, UnarmedReason
from core.engine.detectors import make_detector
from core.errors import InvalidSettings
from tests.core.signals import Stretch, boundaries, observations, verdicts

CHEAP = ("adwin", "page_hinkley")


@pytest.mark.parametrize("name", RIVER)
@pytest.mark.parametrize("mean", [-2.0, 2.0])
def test_each_finds_a_fall_and_a_rise_soon(name: str, mean: float) -> None:
    stream = observations([Stretch(1500), Stretch(500, mean=mean)], 25)
    found = boundaries(RiverDetector(name), stream)
    assert len(found) >= 1
    assert 60 <= found[0] <= 64


@pytest.mark.parametrize("name", CHEAP)
def test_independent_scores_alarm_no_more_often_than_asked(name: str) -> None:
    """A tenth of the run time by chance would be ten alarms; its theory promises one."""
    stream = observations([Stretch(50_000)], 100)
    assert len(boundaries(RiverDetector(name, ert=50_000), stream)) <= 3


def test_kswin_alarms_no_more_often_than_asked() -> None:
    assert boundaries(RiverDetector("kswin"), observations([Stretch(1500)], 100)) == []


@pytest.mark.parametrize("name", CHEAP)
def test_a_shorter_run_time_asks_for_more_alarms(name: str) -> None:
    stream = list(observations([Stretch(20_000)], 100))
    few, many = (boundaries(RiverDetector(name, ert=ert), stream) for ert in (1e6, 300))
    assert len(many) > len(few)


@pytest.mark.parametrize("name", RIVER)
def test_it_is_not_armed_until_it_has_a_reference(name: str) -> None:
    said = verdicts(RiverDetector(name, warm_up=300), observations([Stretch(600)], 100))
    assert [verdict.armed for verdict in said] == [False] * 3 + [True] * 3
    assert [verdict.inlier_rate is None for verdict in said] == [True] * 3 + [False] * 3
    detector = RiverDetector(name, warm_up=300)
    assert detector.arming(detector.start(), 0, True) == (300, UnarmedReason.WARM_UP)
    assert detector.arming(detector.start(), 0, False) == (None, UnarmedReason.ANNEALING)
    quiet = verdicts(RiverDetector(name, warm_up=300), observations([Stretch(600)], 100), False)
    assert not any(verdict.armed for verdict in quiet)


@pytest.mark.parametrize("name", RIVER)
def test_the_statistic_passes_its_threshold_exactly_when_it_speaks(name: str) -> None:
    stream = observations([Stretch(1500), Stretch(300, mean=-3)], 50)
    said = verdicts(RiverDetector(name), stream)
    assert {verdict.level for verdict in said} == {Level.NORMAL, Level.ALARM}
    for verdict in said:
        assert (verdict.statistic >= verdict.threshold) == (verdict.level is Level.ALARM)


def test_values_fed_are_those_that_the_library_would_be_fed() -> None:
    detector = RiverDetector("adwin", warm_up=200)
    stream = list(observations([Stretch(1000), Stretch(400, mean=-1)], 1))
    scores = torch.cat([seen.log_likelihoods for seen in stream]).double()
    state = detector.start()
    for seen in stream[:200]:
        state, _ = detector.observe(state, seen, True)
    reference = state.reference
    assert reference.mean == pytest.approx(float(scores[99:200].mean()), abs=0.2)
    plain = drift.ADWIN(delta=32 / 50_000, clock=32)  # type: ignore[no-untyped-call]
    said, heard = [], []
    for index, seen in enumerate(stream[200:]):
        state, verdict = detector.observe(state, seen, True)
        plain.update(float((scores[200 + index] - reference.mean) / reference.deviation))
        said.append(verdict.level is Level.ALARM)
        heard.append(plain.drift_detected)
        if plain.drift_detected:
            break
    assert said == heard
    assert said[-1]
    assert len(said) > 800


@pytest.mark.parametrize("name", RIVER)
@given(data=st.data())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_restart_anywhere_changes_no_bit(name: str, data: st.DataObject) -> None:
    """The state alone says what comes next, the cached object or none."""
    batch = data.draw(st.sampled_from([1, 7, 60]))
    n = 360 if name == "kswin" else 1200
    stretches = [Stretch(100), Stretch(n - 300), Stretch(200, mean=-0.5)]
    stream = list(observations(stretches, batch, seed=data.draw(st.integers(0, 99))))
    cut = data.draw(st.integers(0, len(stream)))
    live, other = (RiverDetector(name, warm_up=100, ert=2000) for _ in range(2))
    state = live.start()
    for seen in stream[:cut]:
        state, _ = live.observe(state, seen, True)
    again = replace(state, tape=state.tape.clone())
    for seen in stream[cut:]:
        state, verdict = live.observe(state, seen, True)
        again, verdict_again = other.observe(again, seen, True)
        assert verdict_again == verdict
        assert torch.equal(again.tape, state.tape)


@pytest.mark.parametrize("name", RIVER)
def test_the_same_state_twice_gives_the_same_answer(name: str) -> None:
    """An older state is as good as the newest, whatever is cached."""
    detector = RiverDetector(name, warm_up=100)
    state = detector.start()
    first, second, third = list(observations([Stretch(450)], 150))
    state, _ = detector.observe(state, first, True)
    one, _ = detector.observe(state, second, True)
    detector.observe(one, third, True)
    other, _ = detector.observe(state, second, True)
    assert torch.equal(one.tape, other.tape)
    verdict, again = (detector.observe(same, third, True)[1] for same in (one, other))
    assert verdict == again


@pytest.mark.parametrize(
    ("name", "batch"), [*((name, b) for name in CHEAP for b in (90, 9000)), ("kswin", 90)]
)
def test_the_tape_has_an_end(name: str, batch: int) -> None:
    detector = RiverDetector(name, warm_up=100, ert=1e9)
    state = detector.start()
    longest = 0
    for seen in observations([Stretch(700 if name == "kswin" else 20_000)], batch):
        state, _ = detector.observe(state, seen, True)
        longest = max(longest, len(state.tape))
    assert 0 < longest <= REACH[name].longest


def test_a_cut_tape_goes_on_the_same_after_a_restart() -> None:
    live, other = (RiverDetector("page_hinkley", warm_up=100, ert=1e9) for _ in range(2))
    stream = list(observations([Stretch(9400)], 100))
    states: list[RiverState] = [live.start()]
    for seen in stream[:-1]:
        states.append(live.observe(states[-1], seen, True)[0])
    lengths = [len(state.tape) for state in states]
    assert REACH["page_hinkley"].kept in lengths, "it was cut"
    kept = replace(states[-1], tape=states[-1].tape.clone())
    assert live.observe(states[-1], stream[-1], True)[1] == other.observe(kept, stream[-1], True)[1]


@pytest.mark.parametrize("name", RIVER)
def test_a_broken_sample_and_a_constant_stream_are_borne(name: str) -> None:
    detector = RiverDetector(name, warm_up=100)
    state = detector.start()
    for seen in observations([Stretch(300)], 100):
        flat = seen._replace(log_likelihoods=torch.zeros(100))
        state, _ = detector.observe(state, flat, True)
    broken = flat._replace(log_likelihoods=torch.full((100,), -1e30))
    state, verdict = detector.observe(state, broken, True)
    assert bool(state.tape.isfinite().all())
    assert verdict.change_samples >= 100


def test_a_dismissed_suspicion_leaves_the_reference() -> None:
    detector = RiverDetector("adwin", warm_up=100)
    state = detector.start()
    for seen in observations([Stretch(300)], 100):
        state, _ = detector.observe(state, seen, True)
    dismissed = detector.dismiss(state)
    assert len(dismissed.tape) == 0
    assert dismissed.reference == state.reference


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(InvalidSettings, match=r"pip install 'gmr-stream\[river\]'"):
        make_detector(EngineConfig(detector="adwin"))
    # All others do without.
    assert make_detector(EngineConfig()).name == "sequential"
