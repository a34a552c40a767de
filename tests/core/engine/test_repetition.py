"""Samples that are sent a second time: learned again, and no change of the world."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.events import BatchLearned, BoundaryDetected, Event, PriorShift, SamplesRepeated

PRESETS = ["mfa", "flat"]
FEATURES, FACTORS = 64, 6


def rows(n: int, seed: int, classes: Sequence[int] = range(8)) -> tuple[Tensor, Tensor]:
    """Related features of some classes, with shape (n, 64), and the classes.

    So many features of so few samples that a model fits what it has learned better.
    """
    made = torch.Generator().manual_seed(1)
    factors = torch.randn(12, FEATURES, FACTORS, generator=made)
    centres = torch.randn(12, FEATURES, generator=made)
    generator = torch.Generator().manual_seed(seed)
    codes = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=generator)]
    along = torch.randn(n, FACTORS, generator=generator)
    apart = torch.randn(n, FEATURES, generator=generator)
    x = centres[codes] + 0.5 * (factors[codes] @ along[..., None])[..., 0] + 0.3 * apart
    return x, codes


FILE, FRESH = rows(2000, 5), rows(1500, 6)
OTHERS, NEW = (torch.arange(8) + 1) % 8, torch.arange(8) + 8
"""What classes may be called instead."""


def engine(preset: str) -> Engine:
    return Engine(EngineConfig(preset=preset, n_components=60, seed=0, experts=False))


def taken(
    one: Engine,
    state: EngineState,
    part: tuple[Tensor, Tensor],
    *,
    labelled: bool = False,
    size: int = 100,
) -> tuple[EngineState, list[Event]]:
    events: list[Event] = []
    for x, codes in zip(part[0].split(size), part[1].split(size), strict=True):
        state, told = one.step(state, Batch.of(x, codes if labelled else None))
        events += told
    return state, events


def after_file(
    preset: str, *, labelled: bool = False, times: int = 1
) -> tuple[EngineState, list[Event]]:
    """The state after so many rounds of the file, and what the last told; tests go on from here."""
    return _after_file(preset, labelled, times)


@functools.cache
def _after_file(preset: str, labelled: bool, times: int) -> tuple[EngineState, list[Event]]:
    one = engine(preset)
    state = one.start() if times == 1 else _after_file(preset, labelled, times - 1)[0]
    return taken(one, state, FILE, labelled=labelled)


def changes(events: list[Event]) -> list[Event]:
    kinds = (BoundaryDetected, PriorShift, SamplesRepeated)
    return [event for event in events if isinstance(event, kinds)]


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_file_that_is_sent_three_times_is_no_change_and_what_follows_is_judged_as_ever(
    preset: str, labelled: bool
) -> None:
    one = engine(preset)
    assert changes(after_file(preset, labelled=labelled)[1]) == []
    for round_ in range(2):
        state, events = after_file(preset, labelled=labelled, times=2 + round_)
        told = changes(events)
        assert [type(event) for event in told] == ([] if round_ else [SamplesRepeated])
    state, events = taken(one, state, FRESH, labelled=labelled)
    assert changes(events) == []
    assert state.model.samples_seen == 3 * 2000 + 1500
    state, events = taken(one, state, rows(300, 7, [9]), labelled=labelled)
    (boundary,) = changes(events)
    assert isinstance(boundary, BoundaryDetected)
    assert boundary.estimated_start_sample == pytest.approx(7500, abs=20)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_repetition_may_begin_within_a_batch(preset: str) -> None:
    one = engine(preset)
    x = torch.cat([FILE[0], FRESH[0][:50], FILE[0]]), torch.cat([FILE[1], FRESH[1][:50], FILE[1]])
    state, events = taken(one, one.start(), x, labelled=True)
    (told,) = changes(events)
    assert isinstance(told, SamplesRepeated)
    assert told.sample_index in (2000, 2100)
    assert state.sub_task.number == 0


def test_single_samples_that_come_again_are_told_after_a_few() -> None:
    one = engine("flat")
    state, _ = taken(one, one.start(), (FILE[0][:900], FILE[1][:900]))
    state, events = taken(one, state, (FILE[0][:40], FILE[1][:40]), size=1)
    (told,) = changes(events)
    assert isinstance(told, SamplesRepeated)
    assert (told.sample_index, told.signal, told.evidence) == (903, "", {})


@pytest.mark.parametrize(("names", "signals"), [(OTHERS, ["labels"]), (NEW, [])])
def test_the_same_samples_by_other_names_do_not_come_again(
    names: Tensor, signals: list[str]
) -> None:
    one, (state, _) = engine("flat"), after_file("flat", labelled=True)
    renamed = FILE[0], names[FILE[1]]
    state, events = taken(one, state, renamed, labelled=True)
    assert [event.signal for event in changes(events)] == signals  # type: ignore[attr-defined]
    assert state.sub_task.number == len(signals)


def test_an_earlier_sub_task_that_is_sent_again_is_a_return() -> None:
    one, (state, _) = engine("flat"), after_file("flat")
    state, _ = taken(one, state, rows(2000, 8, [9, 10, 11]))
    assert state.sub_task.number == 1
    state, events = taken(one, state, FILE)
    (boundary,) = changes(events)
    assert isinstance(boundary, BoundaryDetected)
    assert boundary.sample_index == 4000


def test_samples_that_come_again_show_nothing_of_what_is_usual() -> None:
    one, (state, _) = engine("mfa"), after_file("mfa", labelled=True)
    again, events = after_file("mfa", labelled=True, times=2)
    assert again.model.calibration is state.model.calibration
    assert again.sub_task.log_likelihood is state.sub_task.log_likelihood
    assert again.stream.reliability is state.stream.reliability
    assert again.watch.detector is state.watch.detector
    assert again.stream.prequential is state.stream.prequential
    learned = [event for event in events if isinstance(event, BatchLearned)]
    assert {event.prequential_accuracy for event in learned} == {None}
    assert not any(event.class_accuracies for event in learned)
    assert {event.prequential_accuracy_mean for event in learned} == {state.stream.prequential.mean}
    assert {event.statistic for event in learned} == {0.0}
    assert {event.probe_samples for event in learned} == {0}
    assert all(event.armed for event in learned)
    # p-values of what is new stay right.
    typicality = one.snapshot(again).outliers(FRESH[0]).p_values
    assert typicality is not None
    assert 0.02 < float((typicality <= 0.05).double().mean()) < 0.08


def test_detectors_that_run_beside_do_not_see_them_either() -> None:
    config = EngineConfig(
        preset="flat", n_components=60, seed=0, experts=False, shadow_detectors="paper, adwin"
    )
    one = Engine(config)
    state, _ = taken(one, one.start(), FILE)
    again, events = taken(one, state, FILE)
    assert again.watch.shadows is state.watch.shadows
    assert not {event.kind for event in events} & {"shadow_alarm", "boundary"}


@pytest.mark.parametrize(("n", "rounds"), [(150, 10), (400, 3)])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_end_of_a_small_sub_task_that_is_sent_in_rounds_is_found(
    preset: str, n: int, rounds: int
) -> None:
    """Of a sub-task that is too small for a reference the detector needs every round."""
    one = engine(preset)
    state, starts = one.start(), list[int]()
    for sub_task in range(3):
        part = rows(n, 20 + sub_task, [3 * sub_task, 3 * sub_task + 1])
        for _ in range(rounds):
            state, events = taken(one, state, part, labelled=True, size=50)
            found = [event for event in events if isinstance(event, BoundaryDetected)]
            starts += [event.estimated_start_sample for event in found]
    assert starts == [n * rounds, 2 * n * rounds]


def test_a_model_that_only_watches_tells_no_change_either() -> None:
    one, (state, _) = engine("flat"), after_file("flat")
    state, _ = one.change_mode(state, Mode.DETECT_ONLY)
    state, events = taken(one, state, FILE)
    assert [event.kind for event in events] == ["batch_passed"] * 20
    _, events = taken(one, state, rows(300, 7, [9]))
    assert "change_detected" in {event.kind for event in events}


@pytest.mark.parametrize("size", [1, 50])
def test_a_change_after_samples_that_were_all_the_same_is_found(size: int) -> None:
    one = Engine(EngineConfig(preset="flat", n_components=60, seed=0, experts=False, warm_up=200))
    same = torch.zeros(500, 1), torch.zeros(500, dtype=torch.int64)
    generator = torch.Generator().manual_seed(2)
    other = torch.randint(2, (150, 1), generator=generator).float(), same[1][:150]
    state, events = taken(one, one.start(), same, size=size)
    assert changes(events) == []
    state, events = taken(one, state, other, size=size)
    assert isinstance(changes(events)[0], BoundaryDetected)
    assert state.sub_task.number == 1


def test_what_was_heard_is_in_the_checkpoint_and_not_in_what_is_kept_for_long() -> None:
    one, (state, _) = engine("flat"), after_file("flat")
    back, _, _ = load(dump(state, one.config, {}))
    first, here = taken(one, state, FILE)
    second, there = taken(one, back, FILE)
    assert here == there
    assert dump(first, one.config, {}) == dump(second, one.config, {})
    bare = one.without_raw(state)
    assert len(state.sub_task.fingerprints.marks) == 2000
    assert not len(bare.sub_task.fingerprints.marks)


def test_a_suspicion_is_never_passed_over() -> None:
    """Of samples that wait for a decision the detector sees what follows, known or not."""
    one, (state, _) = engine("flat"), after_file("flat")
    waiting = replace(state.pending, set_aside=(Batch(FRESH[0][:20]),))
    assert replace(state, pending=waiting).suspected
    after, _ = one.step(replace(state, pending=waiting), Batch(FILE[0][:100]))
    assert after.watch.detector is not state.watch.detector
