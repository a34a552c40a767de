"""Labels that change their meaning while features stay: found, explained, and learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Cause, Level, Verdict
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BatchLearned, BoundaryDetected, Event, PriorShift
from tests.core.states import lived_through, play
from tests.core.streams import blob

PRESETS = ("mfa", "flat")
LETTERS = ("a", "b", "c")
TURNED = ("b", "c", "a")


def called(
    names: Sequence[str], n: int, seed: int, groups: Sequence[int] = (0, 1, 2), size: int = 100
) -> Iterator[Batch]:
    """n batches of groups of samples that are called by these names."""
    generator = torch.Generator().manual_seed(seed)
    for index in range(n):
        picks = torch.tensor(groups)[torch.randint(len(groups), (size,), generator=generator)]
        parts = torch.stack([blob(group, size, 1000 * seed + index) for group in range(3)])
        x = parts[picks, torch.arange(size)]
        yield Batch.of(x, [names[pick] for pick in picks.tolist()])


def engine(preset: str, experts: bool = False, **settings: object) -> Engine:
    """Names are the mixture's own here, unless experts are asked for, who would hide its part."""
    return Engine(EngineConfig(preset=preset, n_components=30, experts=experts, **settings))  # type: ignore[arg-type]


def boundaries(events: Sequence[Event]) -> list[BoundaryDetected]:
    return [event for event in events if isinstance(event, BoundaryDetected)]


def accuracies(events: Sequence[Event]) -> list[float]:
    return [
        event.prequential_accuracy or 0.0 for event in events if isinstance(event, BatchLearned)
    ]


def named(one: Engine, state: EngineState, groups: Sequence[int] = (0, 1, 2)) -> list[object]:
    """What the model calls each group."""
    snapshot = one.snapshot(state)
    x = torch.stack([blob(group, 50, 77).mean(0) for group in groups])
    return [
        state.model.classes[code] for code in snapshot.classify(x).probabilities.argmax(-1).tolist()
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_classes_that_change_places_are_a_boundary_and_called_by_their_new_names_at_once(
    preset: str,
) -> None:
    one = engine(preset, experts=preset == "mfa")
    before, _ = lived_through(one, called, LETTERS, 30, 1)
    assert named(one, before) == ["a", "b", "c"]
    after, events = play(one, before, list(called(TURNED, 20, 2)))
    (found,) = boundaries(events)
    assert found.signal == "labels"
    assert found.recurrence_of is None
    assert found.estimated_start_sample == 3000
    assert found.batch_index <= 31
    assert named(one, after) == ["b", "c", "a"]
    assert min(accuracies(events)[2:]) > 0.95
    told = found.explanation["labels"]
    assert {(row["before"], row["now"]) for row in told} == {("a", "b"), ("b", "c"), ("c", "a")}  # type: ignore[attr-defined]
    # And back again: no name is lost.
    back, events = play(one, after, list(called(LETTERS, 20, 3)))
    # A name is brought back, and not a sub-task: its components have gone on learning.
    assert [(it.signal, it.recurrence_of) for it in boundaries(events)] == [("labels", None)]
    assert named(one, back) == ["a", "b", "c"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_class_that_has_stopped_coming_keeps_its_name(preset: str) -> None:
    one = engine(preset)
    state, _ = play(one, one.start(), list(called(LETTERS, 20, 1, groups=[0])))
    state, _ = play(one, state, [*called(LETTERS, 30, 2, groups=[1, 2]), "boundary"])
    state, _ = play(one, state, list(called(LETTERS, 20, 3, groups=[1, 2])))
    swapped = ("a", "c", "b")
    state, events = play(one, state, list(called(swapped, 20, 4, groups=[1, 2])))
    assert "labels" in [found.signal for found in boundaries(events)]
    assert named(one, state) == ["a", "c", "b"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_new_class_where_another_was_takes_nothing_from_it(preset: str) -> None:
    """Without a boundary: the first samples of one class fall on the components of another."""
    one = engine(preset, detector="none")
    state, _ = play(one, one.start(), list(called(LETTERS, 20, 1, groups=[0])))
    state, _ = play(one, state, list(called(LETTERS, 40, 2, groups=[1])))
    assert named(one, state, [0, 1]) == ["a", "b"]


@pytest.mark.parametrize("preset", PRESETS)
def test_labels_that_change_for_a_part_of_a_class_are_followed(preset: str) -> None:
    """Half of one class becomes another's; there is no detector to say so."""
    one = engine(preset, detector="none")
    state, _ = play(one, one.start(), list(called(("a", "a", "b"), 60, 1)))
    state, events = play(one, state, list(called(("a", "b", "b"), 60, 2)))
    assert named(one, state) == ["a", "b", "b"]
    assert min(accuracies(events)[-20:]) > 0.95


def test_samples_that_do_not_look_as_before_say_nothing_of_names() -> None:
    one = engine("mfa")
    state, _ = lived_through(one, called, LETTERS, 30, 1)
    moved = [replace(batch, features=1.5 * batch.features + 0.7) for batch in called(TURNED, 20, 2)]
    after, events = play(one, state, moved)
    assert boundaries(events)
    assert named(one, after) == ["a", "b", "c"]


def test_outliers_that_come_with_the_change_have_no_say_in_names() -> None:
    one = engine("mfa")
    state, _ = lived_through(one, called, LETTERS, 30, 1)
    (usual,) = called(TURNED, 1, 2)
    strange = replace(usual, features=2 * usual.features + 3)
    verdict = Verdict(Level.ALARM, (), (), 1.0, True, 0.5, 0.9, 200, cause=Cause.LABELS)
    heard = one.change_type.relabelled(state, (strange, usual), verdict)
    assert sum(map(len, heard)) == pytest.approx(len(usual), abs=5)
    assert torch.isin(heard[-1].features, usual.features).all()
    for other in (verdict._replace(cause=Cause.NOVELTY), None):
        assert one.change_type.relabelled(state, (strange, usual), other) == ()


def test_what_was_set_aside_before_the_change_is_learned_by_its_old_names() -> None:
    one = engine("mfa")
    state, _ = lived_through(one, called, LETTERS, 30, 1)
    earlier = tuple(called(LETTERS, 2, 5))
    held = state.with_stream(
        samples=state.stream.samples + 200, batches=state.stream.batches + 2
    ).with_pending(set_aside=earlier)
    after, events = play(one, held, list(called(TURNED, 1, 2)))
    (found,) = boundaries(events)
    assert found.set_aside_samples == found.mixed_samples == 200
    assert named(one, after) == ["b", "c", "a"]
    _, events = play(one, after, list(called(TURNED, 5, 3)))
    assert min(accuracies(events)) > 0.97


def test_labels_as_they_were_are_no_boundary() -> None:
    one = engine("mfa")
    state, _ = lived_through(one, called, LETTERS, 30, 1)
    _, events = play(one, state, list(called(LETTERS, 60, 2)))
    assert not boundaries(events)
    # Nor are others' shares.
    _, events = play(one, state, list(called(LETTERS, 30, 3, groups=[0, 0, 0, 0, 1, 2])))
    assert not boundaries(events)
    assert any(isinstance(event, PriorShift) for event in events)


def test_the_same_stream_in_small_batches_finds_the_same_change() -> None:
    one = engine("mfa")
    for size in (10, 100, 500):
        n = 1500 // size
        state, _ = play(one, one.start(), list(called(LETTERS, n, 1, size=size)))
        _, events = play(one, state, list(called(TURNED, n // 3, 2, size=size)))
        (boundary,) = boundaries(events)
        assert boundary.signal == "labels"
        assert boundary.estimated_start_sample == pytest.approx(1500, abs=10)
        assert boundary.sample_index <= 1500 + 100


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(2))
def test_a_name_never_heard_before_is_the_answer_after_some_samples(preset: str, seed: int) -> None:
    one = engine(preset, experts=True, seed=seed)
    state, _ = play(one, one.start(), list(called(LETTERS, 15, 10 + seed)))
    state, events = play(one, state, list(called(("new", "b", "c"), 3, 20 + seed)))
    assert not boundaries(events)
    for index in range(20):
        state, _ = play(one, state, list(called(("new", "b", "c"), 1, 30 + index)))
        snapshot = one.snapshot(state)
        for group, name in enumerate(("new", "b", "c")):
            codes = snapshot.classify(blob(group, 50, 77)).codes
            assert sum(snapshot.answers[code] == name for code in codes.tolist()) >= 49
    # A boundary changes nothing of it, and lets go of what no new name has come of yet.
    state, _ = play(one, state, list(called(("new", "odd", "c"), 1, 50 + seed)))
    before = state.model.panel
    assert before is not None
    assert (before.new_names.share[~before.new_names.new] > 0).any()
    state, _ = one.declare_boundary(state)
    after = state.model.panel
    assert after is not None
    assert torch.equal(after.new_names.new, before.new_names.new)
    assert not after.new_names.share[~after.new_names.new].any()
    assert named(one, state)[0] == "new"
    # The old name comes again.
    state, _ = play(one, state, list(called(LETTERS, 6, 40 + seed)))
    assert named(one, state) == list(LETTERS)
