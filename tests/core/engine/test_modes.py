"""Tests for modes: what passes by a model at rest leaves no trace, and is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import EngineConfig
from core.engine import checkpoint
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode, Passage, StreamState
from core.errors import InvalidBatch, InvalidRequest, ModelAtRest
from core.events import (
    BatchLearned,
    BatchPassed,
    BatchSetAside,
    BoundaryDetected,
    ChangeDetected,
    ClassDiscovered,
    Event,
    LabelsHeld,
    LabelsMatched,
    ModeChanged,
    PriorShift,
    RunTimeChanged,
    ShadowAlarm,
)
from core.memory.reliability import Reliability
from core.running import Running
from tests.core.states import assert_identical, lived, play, scripts
from tests.core.streams import batches, blob

CONFIG = EngineConfig(preset="flat", warm_up=300, ert=50_000, experts=False)
ADVISED = replace(CONFIG, experts=True)


def of(kind: type[Event], events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def without_place(state: EngineState) -> EngineState:
    """A state without what may go on while the model is at rest."""
    resting = {"prequential": Running(), "reliability": Reliability()}
    return state.with_stream(passages=(), **resting).with_pending(quarantined=())


def rested(
    engine: Engine, state: EngineState, mode: Mode, passing: Sequence[Batch | str]
) -> tuple[EngineState, list[Event]]:
    """A state after a freeze, some batches, and the thaw."""
    state, events = engine.change_mode(state, mode)
    state, told = play(engine, state, [one for one in passing if one != "boundary"])
    state, thawed = engine.change_mode(state, Mode.LEARN)
    return state, [*events, *told, *thawed]


@pytest.mark.parametrize("preset", ["flat", "mfa"])
@settings(max_examples=6, deadline=None)
@given(
    before=scripts(least=1, most=4),
    passing=scripts(least=1, most=4),
    after=scripts(least=1, most=3),
    mode=st.sampled_from([Mode.FROZEN, Mode.DETECT_ONLY]),
)
def test_what_passes_by_a_model_at_rest_leaves_no_trace(
    preset: str,
    before: list[Batch | str],
    passing: list[Batch | str],
    after: list[Batch | str],
    mode: Mode,
) -> None:
    config = EngineConfig(preset=preset, n_components=12, warm_up=100, experts=preset == "mfa")
    engine = Engine(config)
    state, _ = play(engine, engine.start(), before)
    plain, _ = play(engine, state, after)
    slept, events = rested(engine, state, mode, passing)
    again, same = rested(engine, state, mode, passing)
    assert_identical(slept, again)
    assert events == same
    slept, _ = play(engine, slept, after)
    assert_identical(without_place(slept), without_place(plain))
    n_passed = sum(len(one) for one in passing if isinstance(one, Batch))
    assert slept.stream.all_samples == plain.stream.samples + n_passed
    assert sum(one.samples for one in of(BatchPassed, events)) == n_passed


def changing() -> list[Batch]:
    return [*batches([0, 1], 12, seed=1), *batches([2, 3], 12, seed=2)]


def test_the_boundary_after_a_thaw_is_that_without_the_freeze_and_counts_all_of_the_stream() -> (
    None
):
    engine, stream = Engine(CONFIG), changing()
    _, plain = play(engine, engine.start(), stream)
    [boundary] = of(BoundaryDetected, plain)
    state = lived(engine, [0, 1], 6, seed=1)
    state, _ = rested(engine, state, Mode.FROZEN, list(batches([4], 3, size=70, seed=3)))
    _, events = play(engine, state, stream[6:])
    [moved] = of(BoundaryDetected, events)
    assert moved == replace(
        boundary,
        batch_index=boundary.batch_index + 3,
        sample_index=boundary.sample_index + 210,
        estimated_start_batch=boundary.estimated_start_batch + 3,
        estimated_start_sample=boundary.estimated_start_sample + 210,
    )
    reports = of(BatchLearned, events)
    assert [one.batch_index for one in reports[:2]] == [9, 10]
    assert reports[0].sample_index == 810


def test_frozen_batches_are_scored_and_told_and_change_no_answer() -> None:
    engine, stream = Engine(ADVISED), changing()
    state = lived(engine, [0, 1], 12, seed=1)
    frozen, [changed] = engine.change_mode(state, Mode.FROZEN, "ada", "an incident")
    assert (changed.mode, changed.mode_before, changed.by) == ("frozen", "learn", "ada")
    assert changed.reason == "an incident"
    # A class that is new, and as strange as can be: nothing is found, crossed or learned.
    after, events = play(engine, frozen, stream[12:])
    assert {type(one) for one in events} == {BatchPassed}
    assert [one.batch_index for one in events] == list(range(12, 24))
    assert {one.model_version for one in events} == {state.model.version}
    assert {one.mode for one in events} == {"frozen"}
    assert events[0].inlier_rate < 0.2
    assert events[0].prequential_accuracy == 0
    assert after.stream.prequential.mean < state.stream.prequential.mean
    x = blob(2, 5, seed=9)
    one, other = (engine.snapshot(each).classify(x).probabilities for each in (state, after))
    assert torch.equal(one, other)
    assert engine.is_settled(after)
    assert engine.settle(after) == (after, [])


def test_detectors_alone_find_a_change_and_do_not_cross_it_and_the_thaw_crosses_it() -> None:
    config = replace(CONFIG, shadow_detectors="paper")
    engine, stream = Engine(config), changing()
    state = lived(engine, [0, 1], 12, seed=1)
    watching, _ = engine.change_mode(state, Mode.DETECT_ONLY)
    assert watching.phase == "armed"
    after, events = play(engine, watching, stream[12:])
    [found] = of(ChangeDetected, events)
    assert abs(found.estimated_start_sample - 1200) <= 100
    assert found.estimated_start_batch in (11, 12)
    assert found.batch_index <= 14
    assert found.explanation["classes"]
    assert {type(one) for one in events} <= {BatchPassed, ChangeDetected, ShadowAlarm}
    assert after.model.version == state.model.version
    assert after.sub_task.number == 0
    assert after.phase in ("learning", "armed")  # anew, with what came since
    thawed, _ = engine.change_mode(after, Mode.LEARN)
    _, events = play(engine, thawed, list(batches([2, 3], 3, seed=4)))
    [boundary] = of(BoundaryDetected, events)
    assert abs(boundary.estimated_start_sample - 2400) <= 100


def test_detectors_alone_tell_a_shift_of_shares_as_one() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 12, seed=1)
    state, _ = engine.change_mode(state, Mode.DETECT_ONLY)
    _, events = play(engine, state, list(batches([0], 8, seed=2)))
    assert of(PriorShift, events)
    assert not of(ChangeDetected, events)


def with_ids(stream: Sequence[Batch], start: int) -> list[Batch]:
    """Batches without labels, and with ids from `start` on."""
    told = []
    for batch in stream:
        ids = tuple(range(start, start + len(batch)))
        told.append(Batch(batch.features, None, (), ids))
        start += len(batch)
    return told


def test_labels_by_id_are_held_and_matched_at_the_thaw() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 6, seed=1)
    waiting = list(batches([0, 1], 2, seed=2))
    state, _ = play(engine, state, with_ids(waiting, 0))
    labels = [label for batch in waiting for label in batch.plain_labels]
    plain, expected = engine.label(state, range(200), labels)

    frozen, _ = engine.change_mode(state, Mode.FROZEN)
    frozen, [held] = engine.label(frozen, range(200), labels)
    assert held == LabelsHeld(200, 200)
    assert frozen.model is state.model
    assert engine.expire(frozen, 10**9) == (frozen, [])
    loaded, _, _ = checkpoint.load(checkpoint.dump(frozen, CONFIG, {}))
    assert loaded.rest.labels == frozen.rest.labels
    thawed, events = engine.change_mode(frozen, Mode.LEARN)
    assert_identical(thawed, plain)
    assert events[1:] == expected
    [matched] = of(LabelsMatched, events)
    assert matched.matched == 200


def test_labels_above_the_limit_and_what_would_change_the_model_are_refused() -> None:
    engine = Engine(replace(CONFIG, awaiting_limit=3))
    state = lived(engine, [0, 1], 2)
    state, _ = engine.change_mode(state, Mode.FROZEN)
    state, _ = engine.label(state, [1, 2], [0, 0])
    with pytest.raises(ModelAtRest, match="there would be 4"):
        engine.label(state, [3, 4], [0, 0])
    with pytest.raises(ModelAtRest, match="no boundary is crossed"):
        engine.declare_boundary(state)
    with pytest.raises(ModelAtRest, match="proposed class"):
        engine.name(state, 1, "a")
    with pytest.raises(InvalidBatch):
        engine.step(state, Batch(torch.zeros(2, 3)))


@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.DETECT_ONLY])
def test_a_checkpoint_in_any_mode_goes_on_bit_for_bit(mode: Mode) -> None:
    engine, stream = Engine(ADVISED), changing()
    state = lived(engine, [0, 1], 12, seed=1)
    state, _ = engine.change_mode(state, mode)
    state, _ = play(engine, state, stream[12:16])
    loaded, _, _ = checkpoint.load(checkpoint.dump(state, ADVISED, {}))
    assert_identical(loaded, state)
    one, events = play(engine, loaded, stream[16:])
    other, same = play(engine, state, stream[16:])
    assert events == same
    assert_identical(one, other)


@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.DETECT_ONLY])
def test_a_rollback_leaves_the_mode_in_force(mode: Mode) -> None:
    engine, stream = Engine(CONFIG), changing()
    early = lived(engine, [0, 1], 5, seed=1)
    state, _ = play(engine, early, stream[5:12])
    state, _ = engine.change_mode(state, mode)
    state, _ = play(engine, state, stream[12:14])
    back, _ = engine.restore(state, early, "rollback")
    assert back.rest.mode is mode
    assert back.model.version == early.model.version
    after, events = play(engine, back, batches([0, 1], 2, seed=9))
    assert {type(one) for one in events} == {BatchPassed}
    assert [one.batch_index for one in events] == [14, 15]
    assert after.model.version == early.model.version


def test_a_model_that_is_frozen_before_it_learned_anything_learns_nothing() -> None:
    engine, [batch] = Engine(CONFIG), list(batches([0, 1], 1))
    state, _ = engine.change_mode(engine.start(), Mode.FROZEN)
    state, [passed] = engine.step(state, batch)
    assert (passed.samples, passed.inlier_rate, passed.model_version) == (100, None, 0)
    state, [changed] = engine.change_mode(state, Mode.LEARN)
    assert isinstance(changed, ModeChanged)
    assert (changed.passed_batches, changed.passed_samples) == (1, 100)
    state, events = engine.step(state, batch)
    assert of(BatchLearned, events)[0].batch_index == 1


def test_the_same_mode_again_is_no_event() -> None:
    engine = Engine(CONFIG)
    state = engine.start()
    assert engine.change_mode(state, Mode.LEARN) == (state, [])


def test_a_run_time_asked_for_is_told_and_reaches_detectors_in_every_mode() -> None:
    engine = Engine(CONFIG)
    state, _ = engine.change_mode(engine.start(), Mode.DETECT_ONLY)
    state, [told] = engine.aim(state, 1000, asked=True, by="ada")
    assert told == RunTimeChanged(1000, 50_000, True, "ada")
    assert (state.watch.ert, state.watch.ert_asked, state.seen.watch.ert) == (1000, True, 1000)
    state, [told] = engine.aim(state, None, asked=True, by="ada")
    assert told == RunTimeChanged(50_000, 1000, True, "ada")
    assert (state.watch.ert, state.watch.ert_asked) == (None, False)


def test_places_are_remembered_of_the_newest_gaps_and_counts_of_all() -> None:
    stream = StreamState()
    for _ in range(100):
        stream = stream.passed(2).advanced(3)
    assert len(stream.passages) == 64
    assert stream.passages[-1] == Passage(99, 297, 100, 200)
    assert (stream.all_batches, stream.all_samples) == (200, 500)
    assert stream.place(299) == 499
    assert stream.batch_place(99) == 199


def test_a_mode_may_be_named_by_its_value_and_an_unknown_one_is_refused() -> None:
    engine = Engine(CONFIG)
    state, (event,) = engine.change_mode(engine.start(), "frozen")
    assert (state.rest.mode, event.kind) == (Mode.FROZEN, "mode_changed")
    assert state.rest.mode is Mode.FROZEN
    for wrong in ("freeze", "", None, 1):
        with pytest.raises(InvalidRequest, match="expected learn, detect_only, frozen"):
            engine.change_mode(state, wrong)  # type: ignore[arg-type]  # what the test is about


def test_a_class_that_a_quiet_stream_brings_is_placed_in_all_of_the_stream() -> None:
    engine = Engine(CONFIG)
    state, _ = rested(engine, lived(engine, [0, 1], 15), Mode.FROZEN, [*batches([0], 3, seed=2)])
    state, events = engine.step(state, Batch.of(blob(7, 9, seed=5), ["new"] * 9))
    (aside,) = of(BatchSetAside, events)
    assert aside.batch_index == 18
    _, events = engine.settle(state)
    (found,) = of(ClassDiscovered, events)
    assert (found.label, found.batch_index) == ("new", 18)
