"""Tests for the core.engine.engine module: the life of one model, told as a stream of batches."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import InvalidBatch, InvalidCheckpoint, ModelNotReady, NonFiniteFeature
from core.events import (
    BatchLearned,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ClassDiscovered,
    Event,
    ModelRestored,
    OutlierBurst,
    Replayed,
    SetAsideReleased,
    WindowsSettled,
)
from tests.core.states import assert_identical, lived
from tests.core.streams import N_FEATURES, batches, blob


def run(engine: Engine, state: EngineState, stream: list[Batch]) -> tuple[EngineState, list[Event]]:
    happened: list[Event] = []
    for batch in stream:
        state, events = engine.step(state, batch)
        happened += events
    return state, happened


def of(kind: type[Event], events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


def accuracy(engine: Engine, state: EngineState, labels: list[int]) -> float:
    """Share of fresh samples of these classes that the model names rightly."""
    snapshot = engine.snapshot(state)
    hits = total = 0
    for label in labels:
        codes = snapshot.classify(blob(label, 200, seed=991)).codes
        hits += sum(snapshot.classes[code] == label for code in codes.tolist())
        total += 200
    return hits / total


@pytest.fixture
def engine() -> Engine:
    """One that names by its mixture alone."""
    return Engine(EngineConfig(n_components=12, experts=False))


@pytest.fixture
def advised() -> Engine:
    """One with experts, as by default."""
    return Engine(EngineConfig(n_components=12))


def test_a_stream_of_three_sub_tasks_is_learned_without_forgetting_any(advised: Engine) -> None:
    state, events = run(advised, advised.start(), list(batches([0, 1], 20, seed=1)))
    assert [event.label for event in of(ClassDiscovered, events)] == [0, 1] or [
        event.label for event in of(ClassDiscovered, events)
    ] == [1, 0]
    assert not of(BoundaryDetected, events)
    assert accuracy(advised, state, [0, 1]) > 0.97

    state, events = run(advised, state, list(batches([2, 3], 20, seed=2)))
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.batch_index == 20
    assert boundary.estimated_start_batch == 20
    assert boundary.estimated_start_sample == 2000
    assert boundary.version_before == 20
    assert boundary.version_after == state.model.version - 19
    assert accuracy(advised, state, [0, 1, 2, 3]) > 0.97

    state, events = run(advised, state, list(batches([4, 5], 20, seed=3)))
    assert [event.sub_task for event in of(BoundaryDetected, events)] == [2]
    assert accuracy(advised, state, [0, 1, 2, 3, 4, 5]) > 0.97
    assert state.model.samples_seen == 6000
    assert advised.snapshot(state).info.components <= 12


def test_every_batch_is_reported_once_and_in_order(engine: Engine) -> None:
    stream = list(batches([0, 1], 15)) + list(batches([2], 15))
    _, events = run(engine, engine.start(), stream)
    reports = of(BatchScored, events)
    assert [event.batch_index for event in reports] == list(range(30))
    assert [event.sample_index for event in reports] == list(range(0, 3000, 100))


def test_prequential_accuracy_is_that_of_the_model_before_the_batch(engine: Engine) -> None:
    state, events = run(engine, engine.start(), list(batches([0, 1], 3)))
    first, second, _ = of(BatchLearned, events)
    assert first.prequential_accuracy is None
    assert second.prequential_accuracy > 0.9
    # A class nobody has seen cannot have been guessed.
    _, events = engine.step(state, next(iter(batches([9], 1))))
    (report,) = of(BatchLearned, events)
    assert report.prequential_accuracy == 0


def test_suspicious_batches_are_set_aside_and_become_the_new_sub_task() -> None:
    engine = Engine(EngineConfig(n_components=12, experts=False))
    state = lived(engine, [0, 1], 20)
    # Small batches of something new: suspicion first, then certainty.
    small = [Batch(batch.features) for batch in batches([2], 12, size=4, seed=5)]
    learned_before = state.model.samples_seen
    kinds: list[str] = []
    for batch in small:
        state, events = engine.step(state, batch)
        if of(BatchSetAside, events):
            # What came before the suspicion was learned, or held back as unknown.
            assert (
                state.model.samples_seen + state.pending.proposals.raw_samples
                == learned_before + sum(len(b) for b in small[: kinds.count("learned")])
            )
        kinds.append(
            "boundary"
            if of(BoundaryDetected, events)
            else "aside"
            if of(BatchSetAside, events)
            else "learned"
        )
        if kinds[-1] == "boundary":
            break
    assert "aside" in kinds
    assert kinds[-1] == "boundary"
    # Nothing that was set aside is lost.
    assert state.model.samples_seen == learned_before + 4 * len(kinds)
    assert state.pending.set_aside == ()


def test_outliers_that_go_away_are_a_burst_neither_learned_nor_lost(engine: Engine) -> None:
    state = lived(engine, [0, 1], 20)
    state = held_aside(engine, state)
    strange = torch.cat([batch.features for batch in state.pending.set_aside])
    before, n_stream = state.model.samples_seen, state.stream.samples
    for batch in batches([0, 1], 10, seed=8):
        state, events = engine.step(state, batch)
        if of(OutlierBurst, events):
            break
    (burst,) = of(OutlierBurst, events)
    assert not of(BoundaryDetected, events)
    assert state.sub_task.number == burst.sub_task == 0
    assert state.pending.set_aside == ()
    quarantined = torch.cat([batch.features for batch in state.pending.quarantined])
    assert burst.samples == len(quarantined) >= len(strange)
    assert torch.equal(quarantined[: len(strange)], strange)
    assert before == n_stream - len(strange)
    assert state.model.samples_seen == state.stream.samples - burst.samples
    assert burst.evidence["statistic_highest"] > engine.detector.threshold()
    assert burst.estimated_start_sample == pytest.approx(n_stream - len(strange), abs=5)
    assert engine.without_raw(state).pending.quarantined == ()
    state, _ = engine.step(state, next(iter(batches([0, 1], 1, seed=9))))
    assert state.pending.quarantined == ()


def test_a_burst_within_a_batch_calibrates_nothing(engine: Engine) -> None:
    state = lived(engine, [0, 1], 20)
    (usual,) = batches([0, 1], 1, seed=8)
    (strange,) = batches([2], 1, size=30, seed=5)
    x = torch.cat([usual.features[:20], strange.features, usual.features[50:]])
    after, events = engine.step(state, Batch(x))
    (burst,) = of(OutlierBurst, events)
    # Two in a hundred inliers look as strange as that.
    assert 30 <= burst.samples <= 34
    assert_identical(after.model.calibration, state.model.calibration)
    assert after.sub_task.log_likelihood == state.sub_task.log_likelihood


def held_aside(engine: Engine, state: EngineState) -> EngineState:
    """A state that holds at least one batch aside."""
    for batch in batches([2], 12, size=4, seed=5):
        state, _ = engine.step(state, batch)
        if state.pending.set_aside:
            return state
    raise AssertionError("no batch was set aside")


def test_a_quiet_stream_settles_what_is_set_aside(engine: Engine) -> None:
    state = lived(engine, [0, 1], 20)
    state = held_aside(engine, state)
    state, events = engine.settle(state)
    assert of(SetAsideReleased, events)
    assert state.model.samples_seen == state.stream.samples
    assert engine.settle(state) == (state, [])


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_quiet_stream_takes_in_what_waits_once(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, experts=False))
    assert engine.is_settled(engine.start())
    begun = engine.start()
    assert engine.settle(begun) == (begun, [])
    state = lived(engine, [0, 1], 3)
    before = engine.snapshot(state)
    assert before.info.waiting > 0
    assert not engine.is_settled(state)
    settled, events = engine.settle(state)
    (event,) = events
    assert event == WindowsSettled(before.info.waiting, 0, state.model.version + 1)
    after = engine.snapshot(settled)
    assert (after.info.model_version, after.info.waiting) == (state.model.version + 1, 0)
    assert after.info.window == before.info.window
    assert after.info.samples_seen == before.info.samples_seen == 300
    x = blob(0, 50, seed=9)
    assert not torch.equal(before.classify(x).probabilities, after.classify(x).probabilities)
    assert engine.is_settled(settled)
    assert engine.settle(settled) == (settled, [])


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_stream_with_pauses_ends_as_one_without(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, detector="none", experts=False))
    steady = pausing = engine.start()
    settled = 0
    for batch in batches([0, 1, 2], 12, seed=3):
        steady, _ = engine.step(steady, batch)
        pausing, _ = engine.step(pausing, batch)
        pausing, events = engine.settle(pausing)
        settled += len(events)
    assert settled > 2
    steady, _ = engine.declare_boundary(steady)
    pausing, _ = engine.declare_boundary(pausing)
    x = torch.cat([blob(label, 50, seed=9) for label in range(3)])
    one, other = (engine.snapshot(state).classify(x) for state in (steady, pausing))
    torch.testing.assert_close(one.probabilities, other.probabilities, atol=1e-4, rtol=0)


def test_a_suspicion_cannot_hold_more_than_the_limit() -> None:
    engine = Engine(EngineConfig(n_components=12, set_aside_limit=6, experts=False))
    state = lived(engine, [0, 1], 20)
    most = 0
    for batch in batches([2], 20, size=4, seed=5):
        state, _ = engine.step(state, batch)
        most = max(most, state.pending.set_aside_samples)
    assert most == 4


def test_a_boundary_can_be_declared(engine: Engine) -> None:
    state = lived(engine, [0, 1], 5)
    state, events = engine.declare_boundary(state)
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.detector == "declared"
    assert boundary.batch_index == 5
    assert of(Replayed, events)
    assert state.sub_task.number == 1
    # Twice in a row there is nothing to end.
    assert engine.declare_boundary(state) == (state, [])
    state, _ = run(engine, state, list(batches([2], 5)))
    assert accuracy(engine, state, [0, 1, 2]) > 0.97


def test_no_number_of_a_boundary_is_given_twice(engine: Engine) -> None:
    state = lived(engine, [0, 1], 2)
    kept, numbers = state, list[int]()
    for label in (2, 3, 4):
        state, events = engine.declare_boundary(state)
        numbers += [one.boundary for one in events if isinstance(one, BoundaryDetected)]
        state, _ = run(engine, state, list(batches([label], 2)))
    state, _ = engine.restore(state, kept, "rollback")
    assert (state.sub_task.number, state.past.boundaries) == (0, 3)
    state, events = engine.declare_boundary(state)
    numbers += [one.boundary for one in events if isinstance(one, BoundaryDetected)]
    assert numbers == [1, 2, 3, 4]
    assert state.sub_task.number == 1
    # A state that an earlier release has written counted sub-tasks only.
    old = state.with_sub_task(number=7).with_past(boundaries=0)
    old, _ = run(engine, old, list(batches([2], 1)))
    (number,) = [
        one.boundary for one in engine.declare_boundary(old)[1] if isinstance(one, BoundaryDetected)
    ]
    assert number == 8


@pytest.mark.parametrize("source", ["rollback", "checkpoint"])
def test_a_restored_sub_task_can_end_at_once_if_it_had_begun(engine: Engine, source: str) -> None:
    fresh = engine.start()
    begun, _ = run(engine, fresh, list(batches([0, 1], 5)))
    ended, _ = engine.declare_boundary(begun)
    restored, _ = engine.restore(ended, begun, source)
    crossed, events = engine.declare_boundary(restored)
    assert len(of(BoundaryDetected, events)) == 1
    assert crossed.sub_task.number == 1
    assert engine.declare_boundary(crossed) == (crossed, [])
    # Not so one of which there was no sample, and not after it was ended.
    for kept in (fresh, ended):
        restored, _ = engine.restore(begun, kept, source)
        assert engine.declare_boundary(restored) == (restored, [])
        # Restored again before anything came, it is still so.
        assert engine.declare_boundary(engine.restore(restored, restored, source)[0])[1] == []
    state, _ = run(engine, crossed, list(batches([2], 5)))
    assert accuracy(engine, state, [0, 1, 2]) > 0.97


@pytest.mark.parametrize("labelled", [True, False])
def test_after_a_rollback_the_next_change_is_found_as_it_would_have_been(labelled: bool) -> None:
    """The same data once more must tell the same; the detector need not begin anew."""
    engine = Engine(EngineConfig(n_components=12, experts=False))
    kept = lived(engine, [0, 1], 20, labelled=labelled)
    assert kept.watch.armed
    change = list(batches([2, 3], 4, seed=9, labelled=labelled))
    crossed, events = run(engine, kept, change)
    (boundary,) = of(BoundaryDetected, events)
    back, _ = engine.restore(crossed, kept, "rollback")
    assert (back.watch.armed, engine.arming(back).samples, back.phase) == (True, 0, "armed")
    _, events = run(engine, back, change)
    (again,) = of(BoundaryDetected, events)
    moved = back.stream.samples - kept.stream.samples
    assert again.sample_index - moved == boundary.sample_index
    # What was suspected then is no evidence against what comes now.
    suspicious, _ = engine.step(kept, change[0].select(torch.arange(12)))
    assert suspicious.phase == "warning"
    assert suspicious.watch.detector.suspected.shape[1]
    back, _ = engine.restore(crossed, suspicious, "rollback")
    assert back.phase == "armed"
    assert not back.watch.detector.suspected.shape[1]
    _, events = run(engine, back, list(batches([0, 1], 10, seed=8, labelled=labelled)))
    assert not of(BoundaryDetected, events)
    assert not of(BatchSetAside, events)


def test_whoever_is_watched_anew_is_not_armed() -> None:
    """An uploaded state is not trusted to tell what its samples were like."""
    engine = Engine(EngineConfig(n_components=12, experts=False))
    kept = lived(engine, [0, 1], 20)
    uploaded, _ = engine.restore(engine.start(), kept, "checkpoint")
    for state in (uploaded, engine.watched_anew(kept)):
        assert not state.watch.armed
        assert state.phase == "learning"
        assert engine.arming(state).samples != 0


def test_what_was_set_aside_in_what_is_restored_is_dropped_too() -> None:
    engine = Engine(EngineConfig(n_components=12, experts=False))
    kept = lived(engine, [0, 1], 20)
    later, _ = run(engine, kept, list(batches([2, 3], 4, seed=9)))
    (change,) = batches([2, 3], 1, seed=9)
    suspicious, _ = engine.step(kept, change.select(torch.arange(12)))
    assert suspicious.pending.set_aside_samples == 12
    end = later.stream.samples
    # Whether the version has let its raw samples go by then makes no difference.
    for one in (suspicious, engine.without_raw(suspicious)):
        back, _ = engine.restore(later, one, "rollback")
        assert back.stream.dropped == ((2000, end),)
        assert back.stream.samples == end
    at_once, _ = engine.restore(suspicious, suspicious, "rollback")
    assert at_once.stream.dropped == ((2000, 2012),)
    # What passed by meanwhile was never part of the model, nor is it now.
    resting, _ = engine.change_mode(suspicious, Mode.FROZEN)
    resting, _ = engine.step(resting, change)
    more, _ = engine.step(resting, change)
    back, _ = engine.restore(more, resting, "rollback")
    assert back.stream.dropped == ((2000, 2012), (2112, 2212))


def test_what_a_restored_model_has_not_seen_is_told(engine: Engine) -> None:
    """Samples of the stream that are no past of the model, through rollbacks upon rollbacks."""
    early = lived(engine, [0, 1], 2)
    size = early.stream.samples // 2
    later, _ = run(engine, early, list(batches([0, 1], 3)))
    back, _ = engine.restore(later, early, "rollback")
    assert back.stream.dropped == ((2 * size, 5 * size),)
    on, _ = run(engine, back, list(batches([0, 1], 1)))
    again, _ = engine.restore(on, on, "rollback")
    assert again.stream.dropped == back.stream.dropped
    # Once more behind the first drop, which is then part of the second; and forward again.
    twice, _ = engine.restore(on, early, "rollback")
    assert twice.stream.dropped == ((2 * size, 6 * size),)
    forward, _ = engine.restore(twice, later, "rollback")
    assert forward.stream.dropped == ((5 * size, 6 * size),)
    elsewhere, _ = engine.restore(on, early, "checkpoint")
    assert elsewhere.stream.dropped == ((0, 6 * size),)
    learned = elsewhere.model.samples_seen
    assert twice.stream.all_samples - 4 * size == twice.model.samples_seen == learned


def test_an_empty_engine_has_no_boundary_to_declare(engine: Engine) -> None:
    state = engine.start()
    assert engine.declare_boundary(state) == (state, [])


def test_no_raw_sample_survives_its_sub_task(advised: Engine) -> None:
    state = lived(advised, [0, 1], 2)
    assert advised.snapshot(state).info.window == 200
    state, _ = advised.declare_boundary(state)
    assert advised.snapshot(state).info.window == 0
    tensors: list[torch.Tensor] = []
    collect(state, tensors)
    rows = {tuple(row) for batch in batches([0, 1], 2) for row in batch.features.tolist()}
    kept = [
        tuple(row)
        for tensor in tensors
        if tensor.ndim == 2 and tensor.shape[1] == N_FEATURES
        for row in tensor.tolist()
    ]
    assert kept
    assert not rows & set(kept)


def collect(value: object, tensors: list[torch.Tensor]) -> None:
    """Every tensor of a state."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            collect(getattr(value, field.name), tensors)
    elif isinstance(value, (tuple, list)):
        for item in value:
            collect(item, tensors)


def test_the_same_stream_gives_the_same_model_bit_for_bit() -> None:
    stream = list(batches([0, 1], 12)) + list(batches([2, 3], 12))
    states = []
    for _ in range(2):
        engine = Engine(EngineConfig(n_components=12))
        states.append(run(engine, engine.start(), stream)[0])
    tensors: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for state, found in zip(states, tensors, strict=True):
        collect(state, found)
    assert len(tensors[0]) == len(tensors[1]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def test_a_step_leaves_the_state_it_was_given_alone(advised: Engine) -> None:
    state = lived(advised, [0, 1], 12)
    before: list[torch.Tensor] = []
    collect(state, before)
    copies = [tensor.clone() for tensor in before]
    run(advised, state, list(batches([2, 3], 12)))
    assert all(torch.equal(a, b) for a, b in zip(before, copies, strict=True))


def test_a_bad_batch_raises_and_changes_nothing(engine: Engine) -> None:
    state = lived(engine, [0, 1], 3)
    with pytest.raises(InvalidBatch, match="5 features, but this model was built for 16"):
        engine.step(state, Batch(torch.zeros(3, 5)))
    broken = torch.zeros(3, N_FEATURES)
    broken[1, 2] = torch.nan
    with pytest.raises(NonFiniteFeature, match="row 1, column 2"):
        engine.step(state, Batch(broken))


def test_the_configured_number_of_features_binds_the_first_batch() -> None:
    engine = Engine(EngineConfig(n_features=3))
    with pytest.raises(InvalidBatch, match="built for 3"):
        engine.step(engine.start(), Batch(torch.zeros(2, 4)))


def test_there_is_no_snapshot_before_anything_was_learned(engine: Engine) -> None:
    with pytest.raises(ModelNotReady):
        engine.snapshot(engine.start())


def test_unlabelled_batches_train_the_density_and_the_detector(engine: Engine) -> None:
    state, events = run(engine, engine.start(), list(batches([0, 1], 20, labelled=False)))
    snapshot = engine.snapshot(state)
    assert snapshot.classes == ()
    with pytest.raises(ModelNotReady, match="no label"):
        snapshot.classify(blob(0, 3, seed=4))
    inside = snapshot.outliers(blob(0, 200, seed=4)).inliers.double().mean()
    outside = snapshot.outliers(blob(7, 200, seed=4)).inliers.double().mean()
    assert inside > 0.9
    assert outside < 0.1
    state, events = run(engine, state, list(batches([2, 3], 5, seed=3, labelled=False)))
    assert [event.batch_index for event in of(BoundaryDetected, events)] == [20]


def test_components_without_a_class_become_one_when_labels_come(engine: Engine) -> None:
    state = lived(engine, [0, 1], 20, labelled=False)
    state, _ = engine.step(state, next(iter(batches([0, 1], 1, size=20, seed=9))))
    assert accuracy(engine, state, [0, 1]) > 0.95


def test_one_sample_at_a_time_is_enough(engine: Engine) -> None:
    state = lived(engine, [0, 1], 150, size=1)
    assert state.model.samples_seen == 150
    assert accuracy(engine, state, [0, 1]) > 0.95


def test_a_class_may_have_a_name(advised: Engine) -> None:
    state, _ = advised.step(
        advised.start(),
        Batch.of(torch.cat([blob(0, 50, 1), blob(1, 50, 1)]), ["cat"] * 50 + [1] * 50),
    )
    assert advised.snapshot(state).classes == ("cat", 1)


def test_integer_and_text_labels_are_different_classes(advised: Engine) -> None:
    features = torch.cat([blob(0, 50, 1), blob(1, 50, 1)])
    state, _ = advised.step(advised.start(), Batch.of(features, [1] * 50 + ["1"] * 50))
    snapshot = advised.snapshot(state)
    assert snapshot.classes == (1, "1")
    named = [snapshot.classes[code] for code in snapshot.classify(blob(1, 20, 3)).codes.tolist()]
    assert named == ["1"] * 20


def test_versions_grow_by_one_and_are_never_reused(engine: Engine) -> None:
    state = lived(engine, [0, 1], 4)
    kept = state
    assert kept.model.version == 4
    # Of the same classes: at a boundary replay would count, too.
    state, _ = run(engine, state, list(batches([0, 1], 3, seed=1)))
    assert state.model.version == 7
    state, events = engine.restore(state, kept, "rollback")
    (restored,) = of(ModelRestored, events)
    assert (restored.model_version, restored.replaced_version) == (4, 7)
    assert state.model.version == 4
    assert state.stream.batches == 7
    state, _ = run(engine, state, list(batches([0, 1], 1, seed=2)))
    assert state.model.version == 8


def test_a_checkpoint_from_elsewhere_gets_a_version_of_its_own(engine: Engine) -> None:
    kept = lived(engine, [0, 1], 4)
    state, _ = engine.restore(engine.start(), kept, "checkpoint")
    assert state.model.version == 5
    assert accuracy(engine, state, [0, 1]) > 0.95


def test_a_checkpoint_of_another_width_is_refused(engine: Engine) -> None:
    state = lived(engine, [0, 1], 4)
    narrow, _ = engine.step(engine.start(), Batch(torch.rand(50, 3)))
    with pytest.raises(InvalidCheckpoint, match="3 features"):
        engine.restore(state, narrow, "checkpoint")


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_features_of_any_scale_are_learned(scale: float) -> None:
    engine = Engine(EngineConfig(n_components=12, experts=False))
    scales = torch.logspace(-1, 1, N_FEATURES) * scale

    def scaled(batch: Batch) -> Batch:
        return dataclasses.replace(batch, features=(batch.features - 0.5) * scales + 3 * scale)

    state, _ = run(engine, engine.start(), [scaled(batch) for batch in batches([0, 1], 20)])
    snapshot = engine.snapshot(state)
    x = scaled(Batch(blob(1, 200, seed=77))).features
    named = [snapshot.classes[code] for code in snapshot.classify(x).codes.tolist()]
    assert named.count(1) > 195
    drawn = snapshot.sample(500, [1], seed=0).features
    assert torch.allclose(drawn.mean(0) / scales, x.mean(0) / scales, atol=0.15)
    _, events = run(engine, state, [scaled(batch) for batch in batches([2, 3], 3, seed=3)])
    assert [event.batch_index for event in of(BoundaryDetected, events)] == [20]


def test_the_cost_of_a_batch_does_not_grow_with_the_sub_tasks_seen() -> None:
    """Counted, not timed: components, replayed rows and held samples stay within the budget."""
    engine = Engine(EngineConfig(n_components=12, experts=False))
    state = engine.start()
    for sub_task in range(10):
        state, events = run(engine, state, list(batches([sub_task], 12, seed=sub_task)))
        snapshot = engine.snapshot(state)
        assert snapshot.info.components <= 12
        for replay in of(Replayed, events):
            assert replay.components_before <= 24
    assert len(snapshot.classes) == 10
    assert accuracy(engine, state, list(range(10))) > 0.9


def test_every_labelled_sample_is_counted_in_what_the_generator_stands_for(engine: Engine) -> None:
    state = lived(engine, [0, 1], 16, size=97)
    state, events = engine.declare_boundary(state)
    (replay,) = of(Replayed, events)
    assert replay.samples == 16 * 97


def test_labels_that_are_unique_by_mistake_are_refused() -> None:
    engine = Engine(EngineConfig(max_classes=3))
    state, _ = engine.step(engine.start(), Batch.of(blob(0, 4, 1), [0, 1, 2, 0]))
    with pytest.raises(InvalidBatch, match="number of classes to 4; at most 3"):
        engine.step(state, Batch.of(blob(0, 2, 2), [0, "four"]))
    state, _ = engine.step(state, Batch.of(blob(0, 2, 2), [0, 2]))
    assert state.model.classes == (0, 1, 2)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_state_without_raw_samples_is_the_same_model_and_learns_on(
    advised: Engine, labelled: bool
) -> None:
    state = lived(advised, [0, 1], 2, labelled=labelled)
    bare = advised.without_raw(state)
    assert advised.snapshot(state).info.window == 200
    assert advised.snapshot(bare).info.window == 0
    x = blob(0, 50, seed=3)
    asked = [advised.snapshot(one).outliers(x).log_likelihoods for one in (state, bare)]
    assert torch.equal(*asked)
    bare, _ = run(advised, bare, list(batches([0, 1, 2], 10, labelled=labelled, seed=4)))
    assert bool(advised.snapshot(bare).outliers(x).log_likelihoods.isfinite().all())
    if labelled:
        assert accuracy(advised, bare, [0, 1, 2]) > 0.95


def test_an_empty_state_without_raw_samples_is_empty(advised: Engine) -> None:
    assert advised.without_raw(advised.start()).model.version == 0


def test_a_rollback_does_not_depend_on_whether_raw_samples_were_let_go(advised: Engine) -> None:
    kept = lived(advised, [0, 1], 2)
    state, _ = run(advised, kept, list(batches([2], 3)))
    found: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for one, tensors in zip((kept, advised.without_raw(kept)), found, strict=True):
        restored, _ = advised.restore(state, one, "rollback")
        collect(run(advised, restored, list(batches([0, 1, 2], 4, seed=6)))[0], tensors)
    assert len(found[0]) == len(found[1]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
