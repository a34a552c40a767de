"""Tests for core.memory.awaiting_samples and core.engine.delayed_labels: labels that come later,
in any order."""

from __future__ import annotations

import json
from collections import Counter
from string import ascii_lowercase
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch, Label
from core.config import EngineConfig
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.engine.learners import make_learner
from core.engine.state import EngineState, Mode
from core.errors import InvalidLabels
from core.events import (
    BatchLearned,
    BatchSetAside,
    BoundaryDetected,
    Event,
    LabelsMatched,
    LabelsMissed,
    PriorShift,
    SetAsideReleased,
)
from core.memory.awaiting_samples import AwaitingSamples, Rows
from core.tensors import pack, unpack
from tests.core.states import assert_identical, lived, tensors_of
from tests.core.streams import N_FEATURES, batches, blob

STAMP = 1 / 4096
"""Of a sample's number, written into its first feature, so that it is known again."""

TRUTH = ("a", "b", 3)


def label_of(number: int) -> str | int:
    return TRUTH[number % 3]


def stamped(numbers: list[int], seed: int = 0) -> Tensor:
    """Samples of the class of each number, that carry it."""
    rows = [blob(1 + number % 3, 1, seed + number)[0] for number in numbers]
    x = torch.stack(rows)
    x[:, 0] = torch.tensor(numbers) * STAMP
    return x


class Watched:
    """A learner that writes down which samples it is given, with their codes."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.learned: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def learn(self, state: Any, x: Tensor, codes: Tensor, *rest: Any) -> Any:
        numbers = (x[:, 0] / STAMP).round().int().tolist()
        self.learned += zip(numbers, codes.tolist(), strict=True)
        return self.learner.learn(state, x, codes, *rest)


def watched(**config: Any) -> tuple[Engine, Watched]:
    # As images samples keep their scale, so that the learner sees the numbers they carry.
    settings = EngineConfig(**{"preset": "flat", "n_components": 9, "image": "4,4", **config})
    learner = Watched(make_learner(settings))
    with patch("core.engine.engine.make_learner", return_value=learner):
        return Engine(settings), learner


def of(kind: type[Event], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


Step = tuple[str, Any]


@st.composite
def lives(draw: st.DrawFn) -> list[Step]:
    """Batches of 60 numbered samples, some with a label of their own, and labels in any order."""
    n = 60
    own = draw(st.sets(st.integers(0, n - 1), max_size=10))
    nameless = draw(st.sets(st.integers(0, n - 1), max_size=10))
    steps: list[Step] = []
    begin = 0
    while begin < n:
        size = draw(st.sampled_from([1, 3, 8, 20]))
        numbers = list(range(begin, min(n, begin + size)))
        steps.append(("batch", (numbers, own, nameless)))
        begin += size
    told = draw(st.permutations(range(n)))
    told += draw(st.lists(st.integers(0, n + 5), max_size=10))  # again, and of nobody
    while told:
        size = draw(st.sampled_from([1, 4, 25]))
        steps.insert(draw(st.integers(0, len(steps))), ("labels", told[:size]))
        told = told[size:]
    for _ in range(draw(st.integers(0, 2))):
        word = draw(st.sampled_from(["boundary", "settle", "expire"]))
        steps.insert(draw(st.integers(0, len(steps))), (word, None))
    return steps


def take(engine: Engine, state: EngineState, step: Step) -> tuple[EngineState, list[Event]]:
    kind, what = step
    if kind == "batch":
        numbers, own, nameless = what
        labels = [label_of(number) if number in own else None for number in numbers]
        ids = [None if number in nameless else name(number) for number in numbers]
        return engine.step(state, Batch.of(stamped(numbers), labels, ids))
    if kind == "labels":
        return engine.label(
            state, [name(number) for number in what], [label_of(number) for number in what]
        )
    if kind == "boundary":
        return engine.declare_boundary(state)
    if kind == "expire":
        return engine.expire(state, state.stream.samples)
    return engine.settle(state)


def name(number: int) -> int | str:
    """Integers and text, where 7 and "7" are different samples."""
    return number // 2 if number % 2 else str(number // 2)


@settings(max_examples=25, deadline=None)
@given(lives(), st.sampled_from(["none", "sequential"]), st.sampled_from([(4096, 10_000), (7, 25)]))
def test_every_sample_is_learned_once_and_every_matched_label_counts_once(
    life: list[Step], detector: str, limits: tuple[int, int]
) -> None:
    limit, wait = limits
    engine, learner = watched(
        detector=detector, awaiting_limit=limit, label_wait_samples=wait, warm_up=10
    )
    state, events = engine.start(), list[Event]()
    for step in life:
        state, happened = take(engine, state, step)
        events += happened
        waits = state.pending.awaiting
        assert waits.samples <= limit
        assert sum(map(len, waits.behind)) <= limit
        assert len(waits.early) <= limit
        assert len(waits.done) <= limit
        assert waits.raw_samples <= 2 * limit
        numbers = [number for number, _ in learner.learned]
        assert len(numbers) == len(set(numbers)) == state.model.samples_seen
        waiting = waits.raw_samples + state.pending.set_aside_samples
        assert state.model.samples_seen + waiting == state.stream.samples
    state, happened = engine.expire(state, state.stream.samples + 1)
    events += happened
    state, happened = engine.settle(state)
    events += happened
    assert sorted(number for number, _ in learner.learned) == list(range(60))

    matched = sum(event.matched for event in of(LabelsMatched, events))
    _, own, _ = next(what for kind, what in life if kind == "batch")
    assert sum(state.model.class_counts) == matched + len(own)
    for number, code in learner.learned:
        assert code == -1 or state.model.classes[code] == label_of(number)
    told = sum(len(what) for kind, what in life if kind == "labels")
    told_events = of(LabelsMatched, events)
    dealt_with = matched + sum(sum(event.unmatched.values()) for event in told_events)
    assert dealt_with + len(state.pending.awaiting.early) == told

    by_event = sum(e.samples - e.awaiting for e in of(BatchLearned, events))
    by_event += sum(e.samples_learned for e in of(LabelsMatched, events) + of(LabelsMissed, events))
    by_event += sum(event.samples for event in of(SetAsideReleased, events))
    by_event += sum(event.set_aside_samples for event in of(BoundaryDetected, events))
    assert by_event == 60, "what is counted is what was learned"


@settings(max_examples=10, deadline=None)
@given(lives(), st.randoms(use_true_random=False))
def test_within_the_limits_order_does_not_matter_for_what_is_counted(
    life: list[Step], random: Any
) -> None:
    """All labels are told, so however they come, every named sample is learned with its own."""
    life = [step for step in life if step[0] in ("batch", "labels")]
    random.shuffle(life)
    engine, learner = watched(detector="none")
    state = engine.start()
    for step in life:
        state, _ = take(engine, state, step)
    _, own, nameless = next(what for kind, what in life if kind == "batch")
    expected = Counter(label_of(number) for number in range(60) if number not in nameless - own)
    assert dict(zip(state.model.classes, state.model.class_counts, strict=True)) == expected
    assert not state.pending.awaiting.samples
    assert {number for number, code in learner.learned if code == -1} == nameless - own


@settings(max_examples=8, deadline=None)
@given(lives(), st.integers(0, 30), st.sampled_from(["mfa", "flat", "paper"]))
def test_a_restart_in_the_middle_changes_no_bit(life: list[Step], at: int, preset: str) -> None:
    config = EngineConfig(preset=preset, n_components=9, awaiting_limit=12, warm_up=10)
    engine = Engine(config)
    state, restarted = engine.start(), engine.start()
    for index, step in enumerate(life):
        if index == min(at, len(life) - 1):
            restarted, _, _ = load(dump(restarted, config, {}))
        state, events = take(engine, state, step)
        restarted, again = take(engine, restarted, step)
        assert events == again
    assert_identical(state, restarted)


# What the events say ----------------------------------------------------------------------


@pytest.fixture
def engine() -> Engine:
    return Engine(EngineConfig(preset="flat", n_components=12, experts=False))


def taught(engine: Engine, n: int = 15) -> EngineState:
    """A model that knows classes 0 and 1."""
    if not isinstance(engine.learner, Watched):
        return lived(engine, [0, 1], n)
    state = engine.start()
    for batch in batches([0, 1], n):
        state, _ = engine.step(state, batch)
    return state


def test_the_accuracy_is_that_of_the_class_named_when_the_sample_came(engine: Engine) -> None:
    state = taught(engine)
    x = torch.cat([blob(0, 6, 77), blob(1, 4, 77)])
    state, events = engine.step(state, Batch(x, sample_ids=tuple(range(10))))
    (report,) = of(BatchLearned, events)
    assert (report.samples, report.awaiting, report.prequential_accuracy) == (10, 10, None)
    for batch in batches([0, 1], 3, seed=5):
        state, _ = engine.step(state, batch)
    before = state.stream.prequential.weight
    # Half of them were something else than what the model named, and had every reason to.
    state, events = engine.label(state, list(range(10)), [0] * 3 + [1] * 7)
    (matched,) = of(LabelsMatched, events)
    assert matched.matched == matched.samples_learned == 10
    assert matched.prequential_accuracy == 0.7
    assert matched.class_accuracies == [
        {"label": 1, "samples": 7, "accuracy": 4 / 7},
        {"label": 0, "samples": 3, "accuracy": 1.0},
    ]
    assert matched.delay_samples_max == 310
    assert matched.delay_samples_mean == 305.5
    assert state.stream.prequential.weight == before + 10


def test_before_any_class_was_known_nothing_was_guessed(engine: Engine) -> None:
    state, _ = engine.step(engine.start(), Batch(blob(0, 5, 1), sample_ids=tuple("abcde")))
    assert state.model.version == 0
    state, events = engine.label(state, list("abcde"), [0, 0, 1, 1, 1])
    assert of(LabelsMatched, events)[0].prequential_accuracy is None
    assert state.model.class_counts == (2, 3)


def test_unmatched_labels_are_told_apart(engine: Engine) -> None:
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    state, _ = engine.label(state, [1], [0])
    state, _ = engine.expire(state, state.stream.samples)
    state, events = engine.label(state, [1, 2, 9, 9], [0, 0, 0, 0])
    (matched,) = of(LabelsMatched, events)
    assert matched.unmatched == {"duplicate": 2, "late": 1, "unknown": 0}
    assert (matched.matched, matched.kept) == (0, 1)
    # The early one is given up when its sample has not come within the wait.
    engine = Engine(
        EngineConfig(preset="flat", n_components=12, experts=False, label_wait_samples=150)
    )
    state, events = engine.step(state, next(iter(batches([0, 1], 1))))
    assert not of(LabelsMatched, events)
    state, events = engine.step(state, next(iter(batches([0, 1], 1))))
    assert of(LabelsMatched, events)[0].unmatched["unknown"] == 1
    assert not state.pending.awaiting.early


def test_the_first_label_of_an_id_counts_whatever_a_second_says(engine: Engine) -> None:
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    state, _ = engine.label(state, [1], [0])
    counts = state.model.class_counts
    state, events = engine.label(state, [1], [1])
    assert of(LabelsMatched, events)[0].unmatched["duplicate"] == 1
    assert state.model.class_counts == counts


def test_the_wait_ends_after_so_many_samples_of_the_stream() -> None:
    engine = Engine(
        EngineConfig(preset="flat", n_components=12, experts=False, label_wait_samples=250)
    )
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 10, 7), sample_ids=tuple(range(10))))
    missed: list[Any] = []
    for batch in batches([0, 1], 3, seed=5):
        assert not missed
        state, events = engine.step(state, batch)
        missed = of(LabelsMissed, events)
    assert [(event.samples, event.reason) for event in missed] == [(10, "samples")]
    assert state.model.samples_seen == state.stream.samples


def test_more_than_the_limit_do_not_wait() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False, awaiting_limit=4))
    state = taught(engine)
    state, events = engine.step(state, Batch(blob(0, 10, 7), sample_ids=tuple(range(10))))
    assert [(e.samples, e.reason) for e in of(LabelsMissed, events)] == [(6, "limit")]
    state, events = engine.label(state, list(range(10)), [0] * 10)
    (matched,) = of(LabelsMatched, events)
    # Of the six, as many are remembered as the limit allows; the other two may be yet to come.
    assert (matched.matched, matched.unmatched["late"], matched.kept) == (4, 4, 2)


def test_too_many_classes_by_late_labels_are_refused(engine: Engine) -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False, max_classes=3))
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    state, _ = engine.label(state, [77], ["early"])
    with pytest.raises(InvalidLabels, match="to 4; at most 3"):
        engine.label(state, [1], ["two"])
    state, events = engine.label(state, [1], ["early"])
    assert of(LabelsMatched, events)[0].matched == 1


def test_early_labels_of_too_many_classes_hold_up_no_batch_that_brings_none() -> None:
    """They fitted beside the version that was served when they came."""
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False, max_classes=2))
    one = lived(engine, [0], 3)
    state = both = lived(engine, [0, 1], 3)
    state, _ = engine.restore(state, one, "rollback")
    state, _ = engine.label(state, ["x"], ["early"])
    state, _ = engine.restore(state, both, "rollback")
    x = blob(0, 5, 7)
    for batch in (Batch.of(x, [0, 1, 0, 1, 0]), Batch(x), Batch(x, sample_ids=tuple("abcde"))):
        state, events = engine.step(state, batch)
        assert of(BatchLearned, events)
    state, _ = engine.label(state, ["a"], [1])
    for refused in (Batch.of(x, [2] * 5), Batch(x, sample_ids=tuple("vwxyz"))):
        with pytest.raises(InvalidLabels, match="at most 2"):
            engine.step(state, refused)


# Changes of the stream --------------------------------------------------------------------


def test_at_a_boundary_old_samples_are_learned_and_their_labels_vote_later() -> None:
    engine, learner = watched(detector="none", n_components=12)
    state = taught(engine)
    numbers = list(range(1, 61, 3))  # all of class 1 by their place, a class that is new
    x = stamped(numbers)
    state, _ = engine.step(state, Batch(x, sample_ids=tuple(numbers)))
    state, events = engine.declare_boundary(state)
    assert [(e.samples, e.reason) for e in of(LabelsMissed, events)] == [(20, "boundary")]
    raw = {tuple(row) for row in x.tolist()}
    kept = {
        tuple(row)
        for tensor in tensors_of(state)
        if tensor.ndim == 2 and tensor.shape[1] == N_FEATURES
        for row in tensor.tolist()
    }
    assert kept
    assert not raw & kept, "no raw sample outlives its sub-task"
    assert engine.snapshot(state).info.awaiting == 0

    assert "new" not in engine.snapshot(state).classes
    version = state.model.version
    state, events = engine.label(state, numbers, ["new"] * 20)
    (matched,) = of(LabelsMatched, events)
    assert (matched.matched, matched.samples_learned) == (20, 0)
    assert state.model.version == version + 1
    snapshot = engine.snapshot(state)
    assert state.model.class_counts[snapshot.classes.index("new")] == 20
    named = snapshot.classify(blob(2, 50, 991)).codes
    assert (named == snapshot.classes.index("new")).double().mean() > 0.9
    numbers_learned = [number for number, code in learner.learned if code == -1]
    assert sorted(numbers_learned) == numbers


def test_a_model_without_components_of_its_own_for_them_misses_labels_after_a_boundary() -> None:
    engine = Engine(EngineConfig(preset="paper", n_components=9, detector="none"))
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    state, _ = engine.declare_boundary(state)
    _, events = engine.label(state, [1, 2, 3], [0, 0, 0])
    assert of(LabelsMatched, events)[0].unmatched["late"] == 3


def test_samples_of_a_suspected_change_wait_with_it_and_begin_the_new_sub_task() -> None:
    engine, learner = watched(n_components=12)
    state = taught(engine, n=20)
    state, _ = engine.step(state, Batch(blob(0, 26, 3), sample_ids=tuple(ascii_lowercase)))
    n_learned, number, aside = len(learner.learned), 0, 0
    boundary: list[Any] = []
    while not boundary:
        ids = tuple(range(number, number + 4))
        state, events = engine.step(state, Batch(blob(2, 4, 50 + number), sample_ids=ids))
        boundary = of(BoundaryDetected, events)
        if of(BatchSetAside, events):
            aside += 1
            # The labels of both kinds come while the change is open: nothing may be learned.
            state, told = engine.label(state, [ascii_lowercase[aside], ids[0]], [0, "new"])
            assert of(LabelsMatched, told)[0].samples_learned == 0
            n_learned = len(learner.learned)
            assert state.pending.awaiting.due
        number += 4
    assert aside
    released = of(SetAsideReleased, events)
    assert [event.samples for event in released] == [aside]
    assert [event.sub_task for event in released] == [0]
    assert of(LabelsMissed, events)[0].samples == 26 - aside
    assert state.sub_task.number == 1
    # What was labelled is learned; the rest of the new sub-task waits on.
    assert state.model.class_counts[state.model.classes.index("new")] == aside
    assert state.pending.awaiting.samples == number - aside
    assert len(learner.learned) == n_learned + 26 + aside
    state, events = engine.label(state, list(range(number)), ["new"] * number)
    assert state.model.class_counts[state.model.classes.index("new")] == number
    assert state.model.samples_seen == state.stream.samples


def suspected(engine: Engine, state: EngineState) -> tuple[EngineState, int]:
    """A change is suspected, and all of its samples wait for labels, as do a to e of before.

    Returns:
        The state, and the id of the first sample of the batch that made it so.
    """
    state, _ = engine.step(state, Batch(blob(0, 5, 3), sample_ids=tuple("abcde")))
    number, events = 0, list[Event]()
    while not of(BatchSetAside, events):
        ids = tuple(range(number, number + 4))
        state, events = engine.step(state, Batch(blob(2, 4, 50 + number), sample_ids=ids))
        number += 4
    return state, ids[0]


def test_a_suspicion_that_passes_releases_what_waited_for_it() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False))
    state, last = suspected(engine, taught(engine, n=20))
    state, _ = engine.label(state, ["a", last], [0, 0])
    assert len(state.pending.awaiting.due) == len(state.pending.set_aside) == 1
    state, events = engine.settle(state)
    (released,) = of(SetAsideReleased, events)
    assert (released.batches, released.samples) == (2, 2)
    assert state.pending.awaiting.due == state.pending.set_aside == ()
    assert engine.settle(state) == (state, [])


def test_a_suspicion_whose_samples_all_wait_is_given_up_by_a_quiet_stream() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False))
    state = taught(engine, n=20)
    state, _ = suspected(engine, engine.settle(state)[0])
    assert state.phase == "warning"
    state, _ = engine.label(state, ["a"], [0])
    assert (len(state.pending.awaiting.due), state.pending.set_aside) == (1, ())
    assert not engine.is_settled(state)
    state, events = engine.settle(state)
    (released,) = of(SetAsideReleased, events)
    assert (released.batches, released.samples) == (1, 1)
    assert state.phase == "armed"
    assert engine.is_settled(state)


def test_what_a_label_teaches_while_a_change_is_suspected_has_a_version() -> None:
    engine = Engine(EngineConfig(n_components=12))
    state = lived(engine, [0, 1], 20)
    ids = tuple(range(100, 140))
    state, _ = engine.step(state, Batch(blob(0, 40, 3), sample_ids=ids))
    state, events = engine.step(state, Batch(blob(2, 9, 50)))
    assert of(BatchSetAside, events)
    before = engine.snapshot(state)
    state, events = engine.label(state, ids, [1] * 40)
    assert of(LabelsMatched, events)[0].samples_learned == 0
    after, x = engine.snapshot(state), blob(0, 50, 9)
    assert not torch.equal(before.classify(x).probabilities, after.classify(x).probabilities)
    assert after.version > before.version


def test_a_sample_that_waits_is_named_before_any_label_of_its_batch_is_heard() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12))
    state = lived(engine, [0, 1], 20)
    x = torch.cat([blob(0, 60, 3), blob(1, 60, 4), blob(0, 20, 5)])
    labels, ids = [1] * 60 + [0] * 60 + [None] * 20, [None] * 120 + [*range(20)]
    after, _ = engine.step(state, Batch.of(x, labels, ids))
    guesses = [guess for rows in after.pending.awaiting.held for guess in rows.guesses]
    assert guesses == engine.snapshot(state).classify(x[120:]).codes.tolist()


def test_a_suspicion_whose_samples_all_wait_is_bounded_like_any_other() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False, set_aside_limit=6))
    state = taught(engine, n=20)
    for number in range(0, 80, 4):
        ids = tuple(range(number, number + 4))
        state, _ = engine.step(state, Batch(blob(2, 4, 50 + number), sample_ids=ids))
        assert state.pending.awaiting.suspects + state.pending.set_aside_samples <= 6


def test_a_rollback_forgets_what_waits(engine: Engine) -> None:
    state = kept = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    state, _ = engine.restore(state, kept, "rollback")
    assert not state.pending.awaiting.samples
    _, events = engine.label(state, [1, 2, 3], [0, 0, 0])
    assert of(LabelsMatched, events)[0].unmatched["late"] == 3


def test_a_change_among_samples_that_wait_is_explained_by_the_model_of_before_it() -> None:
    """What is learned at the boundary as still of the old sub-task may hold some of the new."""
    engine = Engine(EngineConfig(n_components=12, experts=False, label_wait_samples=100_000))
    known = state = taught(engine)
    events: list[Event] = []
    usual = [one.features for one in batches([0, 1], 5, seed=3)]
    for n, x in enumerate([*usual, *(blob(2, 100, 60 + part) for part in range(5))]):
        ids = tuple(range(100 * n, 100 * n + 100))
        known, (state, events) = state, engine.step(state, Batch(x, sample_ids=ids))
        if of(BoundaryDetected, events):
            break
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.sample_index >= 2000
    assert boundary.version_before == known.model.version
    told = boundary.explanation
    new = engine.snapshot(known).outliers(blob(2, 100, 60))
    assert told["log_likelihood_now"] == pytest.approx(float(new.log_likelihoods.mean()), rel=1e-4)
    assert told["effect"] < -3
    assert told["inliers"] < 0.1
    assert boundary.severity > 0.8


def test_what_is_kept_for_long_holds_no_sample_that_waits(engine: Engine) -> None:
    state, _ = engine.step(taught(engine), Batch(blob(0, 3, 7), sample_ids=(1, 2, 3)))
    assert engine.snapshot(state).info.awaiting == 3
    assert engine.without_raw(state).pending.awaiting.raw_samples == 0


def test_a_checkpoint_of_an_earlier_release_awaits_nothing(engine: Engine) -> None:
    tensors, text = unpack(FORMAT, dump(taught(engine), engine.config, {}))
    tree = json.loads(text["state"])
    assert tree["pending"].pop("awaiting")
    loaded, _, _ = load(pack(FORMAT, tensors, {**text, "state": json.dumps(tree)}))
    assert_identical(loaded.pending.awaiting, AwaitingSamples())


def test_single_samples_are_held_in_few_tensors() -> None:
    awaiting = AwaitingSamples()
    for number in range(300):
        awaiting = awaiting.joined(Rows((number,), (number,), (-1,), torch.zeros(1, 2)))
    assert awaiting.samples == 300
    assert len(awaiting.held) == 3


def test_one_name_per_sample_is_expected(engine: Engine) -> None:
    with pytest.raises(InvalidLabels, match="3 samples came with 2 sample ids"):
        engine.step(engine.start(), Batch(blob(0, 3, 1), sample_ids=(1, 2)))


def test_a_name_that_waits_already_is_no_name_for_another_sample(engine: Engine) -> None:
    state = taught(engine)
    state, _ = engine.step(state, Batch(blob(0, 2, 7), sample_ids=(1, 2)))
    assert state.pending.awaiting.samples == 2
    state, _ = engine.step(state, Batch(blob(0, 2, 8), sample_ids=(2, 3)))
    assert state.pending.awaiting.samples == 3
    assert state.model.samples_seen + 3 == state.stream.samples


def test_labels_and_ids_of_numpy_are_those_of_python_and_a_checkpoint_holds_them() -> None:
    engine, _ = watched()
    state, _ = engine.step(engine.start(), Batch.of(stamped([*range(20)]), [0, 1] * 10))
    state, _ = engine.step(state, Batch.of(stamped([20, 21]), sample_ids=[20, 21]))
    state, _ = engine.label(state, np.array([20, 21, 90, 91]), np.array([1, 0, 1, 2], np.int32))
    assert state.model.classes == (0, 1)
    assert {type(one.label) for one in state.pending.awaiting.early} == {int}
    assert {type(one.id) for one in state.pending.awaiting.early} == {int}
    loaded, *_ = load(dump(state, engine.config, {}))
    assert_identical(tensors_of(loaded), tensors_of(state))


@pytest.mark.parametrize("mode", [Mode.LEARN, Mode.FROZEN])
@pytest.mark.parametrize("label", [1.0, True, float("nan"), (1, 2), None, np.float32(1), b"cat"])
def test_labels_that_are_no_integer_and_no_string_are_refused(mode: Mode, label: Any) -> None:
    engine, _ = watched()
    state, _ = engine.step(engine.start(), Batch.of(stamped([*range(20)]), [0, 1] * 10))
    state, _ = engine.change_mode(state, mode)
    with pytest.raises(InvalidLabels, match=r"label .* is of type .*; expected an integer"):
        engine.label(state, [1, 2], [0, label])
    with pytest.raises(InvalidLabels, match=r"sample id .* is of type .*; expected an integer"):
        engine.label(state, [1, label], [0, 1])


@pytest.mark.parametrize("mode", [Mode.LEARN, Mode.FROZEN])
def test_there_must_be_as_many_labels_as_ids(mode: Mode) -> None:
    engine, _ = watched()
    state, _ = engine.step(engine.start(), Batch.of(stamped([*range(20)]), [0, 1] * 10))
    state, _ = engine.change_mode(state, mode)
    with pytest.raises(InvalidLabels, match="2 sample ids came with 1 label;") as caught:
        engine.label(state, ["a", "b"], [1])
    assert caught.value.context == {"sample_ids": 2, "labels": 1}


@pytest.mark.parametrize("experts", [False, True])
def test_a_change_is_told_by_samples_that_await_their_labels_as_by_those_that_await_none(
    experts: bool,
) -> None:
    """Of a hundred samples one has a label at once; the others may get one later, or never."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4500, 8, generator=generator)
    rows[2000:3500] += 6
    engine = Engine(EngineConfig(preset="flat", n_components=16, warm_up=500, experts=experts))

    def told(ids: bool) -> list[tuple[Any, ...]]:
        state, found = engine.start(), list[tuple[Any, ...]]()
        for start in range(0, 4500, 100):
            x = rows[start : start + 100]
            usual = 6 if 2000 <= start < 3500 else 0
            n = 1 if start >= 2000 else 5
            labels: list[Label | None] = [
                "a" if row < n and x[row, 0] > usual else "b" if row < n else None
                for row in range(100)
            ]
            named = [f"{start}-{row}" for row in range(100)] if ids else None
            state, events = engine.step(state, Batch.of(x, labels, named))
            found += [
                (
                    one.sample_index,
                    one.estimated_start_sample,
                    one.explanation["examined"],
                    len(one.explanation["features"]),
                    one.recurrence_of,
                )
                for one in events
                if isinstance(one, BoundaryDetected)
            ]
            assert not [one for one in events if isinstance(one, PriorShift)]
        return found

    expected = [(2000, 2000, 100, 8, None), (3500, 3500, 100, 8, 0)]
    assert told(ids=False) == expected
    assert told(ids=True) == expected
