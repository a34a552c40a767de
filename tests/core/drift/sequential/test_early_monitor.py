"""Tests of the first watch of a sub-task, by the default detector: a small reference that grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Level, Observation, UnarmedReason, Verdict
from core.drift.sequential.detector import SequentialDetector
from core.drift.sequential.signals import OCCUPANCY
from core.engine.engine import Engine
from core.events import BatchScored, BoundaryDetected
from tests.core.signals import Stretch, observations

DEFAULT = SequentialDetector()
BATCH = 100


def placed(stream: Iterable[Observation]) -> Iterator[Observation]:
    """Batches of a sub-task whose first was learned before there was a model to judge it by."""
    since = BATCH
    for seen in stream:
        yield seen._replace(since_boundary=since)
        since += len(seen.features)


def said(
    stretches: list[Stretch],
    batch: int = BATCH,
    seed: int = 0,
    detector: SequentialDetector = DEFAULT,
    classes: list[int] | None = None,
) -> list[Verdict]:
    state, found = detector.start(), []
    for seen in placed(observations(stretches, batch, seed, classes)):
        state, verdict = detector.observe(state, seen, True)
        found.append(verdict)
        if verdict.level is Level.ALARM:
            break
    return found


def test_a_change_after_a_few_hundred_samples_is_found() -> None:
    found = said([Stretch(300), Stretch(500, mean=-3)])
    assert found[-1].level is Level.ALARM
    assert len(found) <= 5
    assert abs(found[-1].change_samples - 100 * (len(found) - 3)) <= 30


def test_so_is_what_is_as_likely_as_before_and_falls_where_little_did() -> None:
    old = Stretch(400, shares=(0.97, 0.01, 0.01, 0.01))
    new = Stretch(500, shares=(0.0, 0.5, 0.5, 0.0))
    found = said([old, new], classes=[0, 1, 1, 2])
    assert (found[-1].level, found[-1].signal) == (Level.ALARM, OCCUPANCY)
    assert len(found) <= 6


def test_in_batches_of_another_size_as_well() -> None:
    for batch in (10, 64, 300):
        found = said([Stretch(300), Stretch(600, mean=-4)], batch)
        assert found[-1].level is Level.ALARM, batch
        assert len(found) * batch <= 600 + batch, batch


def test_it_is_armed_once_a_tenth_of_the_warm_up_was_watched() -> None:
    found = said([Stretch(1500)])
    assert [verdict.armed for verdict in found] == [False] + [True] * 14


def test_what_begins_after_the_warm_up_is_as_if_there_had_been_no_early_watch() -> None:
    stretches = [Stretch(3000, margin=1.0), Stretch(200, mean=-3, margin=1.0)]
    early = said(stretches, classes=[0, 0, 1, 1])
    state, late = DEFAULT.start(), []
    for seen in observations(stretches, BATCH, classes=[0, 0, 1, 1]):
        state, verdict = DEFAULT.observe(state, seen, True)
        late.append(verdict)
        if verdict.level is Level.ALARM:
            break
    assert [list(one.values) for one in early[10:]] == [list(one.values) for one in late[10:]]
    assert [one.probe for one in early[11:]] == [one.probe for one in late[11:]]


def test_in_ever_new_sub_tasks_false_alarms_come_no_more_often_than_was_asked() -> None:
    asked, armed, alarms = 1000.0, 0, 0
    detector = SequentialDetector(ert=asked)
    for seed in range(60):
        state = detector.start()
        for seen in placed(observations([Stretch(700, margin=2.0)], 50, seed, [0, 0, 1, 1])):
            state, verdict = detector.observe(state, seen, True)
            armed += len(seen.features) * verdict.armed
            alarms += verdict.burst or verdict.level is Level.ALARM
            if verdict.level is Level.ALARM:
                break
    assert armed > 30_000
    # The upper end of what a Poisson process of the asked rate would give once in a thousand times.
    assert alarms <= armed / asked + 3.1 * (armed / asked) ** 0.5


def test_samples_that_depend_on_each_other_are_not_watched_early() -> None:
    noise = np.random.default_rng(0).standard_normal(900)
    values = noise.copy()
    for i in range(1, len(values)):
        values[i] = 0.9 * values[i - 1] + 0.4 * noise[i]
    x = torch.tensor(np.stack([values, np.zeros(900)], 1), dtype=torch.float32)
    state = DEFAULT.start()
    factory = next(observations([Stretch(10)], 10)).version
    for begin in range(0, 900, BATCH):
        rows = x[begin : begin + BATCH]
        seen = Observation(rows[:, 0], rows, factory, since_boundary=begin + BATCH)
        state, verdict = DEFAULT.observe(state, seen, True)
        assert not verdict.armed


def test_what_is_accepted_ends_the_early_watch_until_there_is_a_whole_reference() -> None:
    state = DEFAULT.start()
    armed = []
    for index, seen in enumerate(placed(observations([Stretch(1300)], BATCH))):
        if index == 4:
            state = DEFAULT.accept(state)
        state, verdict = DEFAULT.observe(state, seen, True)
        armed.append(verdict.armed)
    assert armed == [False, True, True, True, *[False] * 6, True, True, True]


def test_inlier_rates_are_told_only_by_a_reference() -> None:
    for verdict in said([Stretch(1300)]):
        known = (verdict.inlier_rate, verdict.inlier_rate_mean, verdict.log_likelihood_before)
        assert (None not in known) == verdict.armed
        assert verdict.log_likelihood_now is not None
    state = DEFAULT.start()
    for seen in observations([Stretch(400)], BATCH):  # no early watch
        state, verdict = DEFAULT.observe(state, seen, True)
        assert verdict.inlier_rate is None


def test_it_says_in_how_many_samples_it_will_be_armed() -> None:
    state, told = DEFAULT.start(), []
    assert DEFAULT.arming(state, 0, True) == (200, UnarmedReason.WARM_UP)
    assert DEFAULT.arming(state, 0, False) == (None, UnarmedReason.ANNEALING)
    for seen in placed(observations([Stretch(400)], 50)):
        state, _ = DEFAULT.observe(state, seen, True)
        told.append(DEFAULT.arming(state, seen.since_boundary + 50, True))
    assert told == [(50, UnarmedReason.WARM_UP), *[(0, None)] * 7]


BLOBS = torch.tensor([[0.0, 0.0], [9.0, 9.0], [-9.0, 9.0], [9.0, -9.0]])


@pytest.mark.parametrize("labelled", [True, False])
def test_an_engine_finds_sub_tasks_of_288_samples(labelled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    engine = Engine(EngineConfig(preset="flat", n_components=12))
    state, found, rates = engine.start(), [], []
    for blob in range(4):
        for n in (100, 100, 88):
            x = torch.randn(n, 2, generator=generator) + BLOBS[blob]
            state, events = engine.step(state, Batch.of(x, [blob] * n if labelled else None))
            found += [blob for event in events if isinstance(event, BoundaryDetected)]
            rates += [
                (event.inlier_rate, event.armed, event.armed_in)
                for event in events
                if isinstance(event, BatchScored)
            ]
    assert found == [1, 2, 3]
    assert all((rate is not None) == armed for rate, armed, _ in rates)
    # After a boundary the sub-task has begun, with the batch in which it was found.
    assert [armed_in for _, _, armed_in in rates] == [100, 0, 0] * 4
