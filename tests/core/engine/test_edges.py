"""Tests for the edges of core: what nobody would send on purpose, sent to a whole engine.

Two promises are checked throughout: no number of a state, an event or an answer is ever
NaN or infinite, and what is ordinary beside the odd goes on being learned.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import InvalidBatch, InvalidCheckpoint, InvalidLabels, NonFiniteFeature
from core.events import (
    BatchLearned,
    BatchPassed,
    BoundaryDetected,
    ClassDiscovered,
    Event,
    OutlierBurst,
)
from core.memory.proposals import MOST_RECENT
from core.snapshot import Snapshot
from tests.core.states import assert_finite, lived, play
from tests.core.streams import N_FEATURES, batches, blob


def learned(stream: list[Batch | str], **settings: object) -> tuple[EngineState, Snapshot]:
    """The state and the model after a stream, with every number on the way looked at."""
    engine = Engine(EngineConfig(**{"n_components": 8, **settings}))  # type: ignore[arg-type]
    state, quarantined = engine.start(), 0
    for part in stream:
        state, events = play(engine, state, [part])
        assert_finite(state)
        assert_finite(events)
        quarantined += sum(event.samples for event in events if isinstance(event, OutlierBurst))
        held = state.pending.set_aside_samples + state.pending.proposals.raw_samples
        assert state.model.samples_seen + held + quarantined == state.stream.samples
    snapshot = engine.snapshot(state)
    assert_answers(snapshot)
    return state, snapshot


def assert_answers(snapshot: Snapshot) -> None:
    """Every question gets finite numbers."""
    drawn = snapshot.sample(20, seed=1)
    assert drawn.features.isfinite().all()
    assert drawn.log_likelihoods.isfinite().all()
    assert math.isfinite(snapshot.threshold())
    assert snapshot.outliers(drawn.features).log_likelihoods.isfinite().all()
    if snapshot.classes:
        probabilities = snapshot.classify(drawn.features).probabilities
        torch.testing.assert_close(probabilities.sum(1), torch.ones(20))
        wanted = snapshot.sample(10, list(snapshot.classes), seed=2)
        assert wanted.features.isfinite().all()


def share(snapshot: Snapshot, x: Tensor, label: int | str) -> float:
    """Of samples that are named `label`."""
    named = [snapshot.classes[code] for code in snapshot.classify(x).codes.tolist()]
    return named.count(label) / len(named)


# Shapes and sizes -------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[5], ["only"], None])
def test_a_single_sample_is_a_model(labels: list[int | str | None] | None) -> None:
    state, snapshot = learned([Batch.of(blob(0, 1, 1), labels)])
    assert state.model.version == 1
    assert snapshot.classes == tuple(labels or ())


def test_one_feature_and_one_component_are_enough() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 1, generator=generator) * 3 + 100
    stream = [Batch.of(part, [0] * len(part)) for part in x.split(100)]
    _, snapshot = learned(stream, n_components=1)
    assert snapshot.info.components == 1
    drawn = snapshot.sample(4000).features
    assert float(drawn.mean()) == pytest.approx(100, abs=0.5)
    assert float(drawn.std()) == pytest.approx(3, abs=0.4)


def test_a_batch_of_ten_thousand_is_learned_at_once() -> None:
    codes = torch.arange(10_000) % 4
    x = torch.stack([blob(label, 10_000, 3) for label in range(4)])[codes, torch.arange(10_000)]
    state, snapshot = learned([Batch(x, codes, (0, 1, 2, 3))])
    assert state.model.samples_seen == 10_000
    assert share(snapshot, blob(2, 200, 9), 2) > 0.97


def test_more_classes_than_components_are_learned_within_the_budget() -> None:
    labels = list(range(30))
    four_of_each = [label for label in labels for _ in range(4)]
    stream: list[Batch | str] = [
        Batch.of(torch.cat([blob(label, 4, seed) for label in labels]), list(four_of_each))
        for seed in range(10)
    ]
    _, snapshot = learned(stream, n_components=7)
    assert snapshot.info.components <= 7
    assert len(snapshot.classes) == 30
    hits = [share(snapshot, blob(label, 20, 77), label) for label in labels]
    assert sum(hits[:6]) / 6 > 0.9  # have components of their own
    assert sum(hits) / 30 > 3 / 30  # and chance would be one in thirty


# Values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, -3.0, 1e6, -1e30])
def test_a_stream_of_equal_samples_is_a_model_of_that_value(value: float) -> None:
    stream = [Batch(torch.full((100, 4), value)) for _ in range(8)]
    _, snapshot = learned([*stream, "boundary", *stream])
    drawn = snapshot.sample(50).features
    torch.testing.assert_close(
        drawn / (abs(value) + 1), torch.full((50, 4), value / (abs(value) + 1))
    )


def test_features_that_never_vary_do_not_hide_those_that_do() -> None:
    x = [blob(label, 600, 1) for label in (0, 1)]
    for part in x:
        part[:, ::2] = 7e5
    stream: list[Batch | str] = [
        Batch.of(torch.cat(pair), [0] * 100 + [1] * 100)
        for pair in zip(x[0].split(100), x[1].split(100), strict=True)
    ]
    _, snapshot = learned(stream)
    assert share(snapshot, x[1][:200], 1) > 0.97
    assert torch.allclose(snapshot.sample(20).features[:, ::2], torch.tensor(7e5))


@pytest.mark.parametrize("scale", [1e-15, 1e6, 1e25])
@pytest.mark.parametrize("offset", [0.0, -20.0])
def test_features_of_any_magnitude_are_learned(scale: float, offset: float) -> None:
    def scaled(batch: Batch) -> Batch:
        return Batch((batch.features + offset) * scale, batch.codes, batch.vocabulary)

    _, snapshot = learned([scaled(batch) for batch in batches([0, 1], 15)])
    x = (blob(1, 100, 9) + offset) * scale
    assert share(snapshot, x, 1) > 0.97
    assert float(snapshot.outliers(x).inliers.double().mean()) > 0.8
    assert not snapshot.outliers((blob(7, 100, 9) + offset) * scale).inliers.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.uint8])
def test_features_of_other_types_are_learned_as_they_are(dtype: torch.dtype) -> None:
    stream = [
        Batch((batch.features * 255).to(dtype), batch.codes, batch.vocabulary)
        for batch in batches([0, 1], 12)
    ]
    _, snapshot = learned(stream)
    unit = 1 if dtype == torch.uint8 else 255  # a byte k means k/255
    assert share(snapshot, blob(0, 100, 5) * unit, 0) > 0.97


def test_a_double_that_no_float32_can_hold_is_refused_and_changes_nothing() -> None:
    engine = Engine(EngineConfig())
    x = torch.rand(3, 4, dtype=torch.float64)
    x[1, 2] = 1e300
    with pytest.raises(NonFiniteFeature, match="row 1, column 2"):
        engine.step(engine.start(), Batch(x))


@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["left as they are", "standardised"])
@pytest.mark.parametrize("value", [1e9, -1e30, 3.4e38])
def test_a_broken_sensor_spoils_neither_the_model_nor_what_counts_as_an_outlier(
    scale: float, value: float
) -> None:
    stream = [Batch(b.features * scale, b.codes, b.vocabulary) for b in batches([0, 1], 35)]
    stream[25].features[17, 3] = value
    # Experts scale for themselves, and would hide what became of the mixture.
    _, snapshot = learned(list(stream), experts=scale == 1)
    x = blob(1, 200, 9) * scale
    assert share(snapshot, x, 1) > 0.97
    assert float(snapshot.outliers(x).inliers.double().mean()) > 0.8
    assert not snapshot.outliers(blob(7, 200, 9) * scale).inliers.any()


def test_a_broken_sensor_does_not_blind_the_detector() -> None:
    stream = list(batches([0, 1], 30))
    stream[20].features[17, 3] = 1e30
    engine = Engine(EngineConfig(n_components=8, experts=False))
    _, events = play(engine, engine.start(), [*stream, *batches([2], 3, seed=4)])
    found = [event.batch_index for event in events if isinstance(event, BoundaryDetected)]
    assert found == [30]


@pytest.mark.parametrize("value", [-1e30, 3.4e38])
def test_a_broken_sensor_in_the_very_first_batch_leaves_the_other_features_whole(
    value: float,
) -> None:
    stream = list(batches([0, 1], 20))
    stream[0].features[3, 5] = value
    _, snapshot = learned(list(stream))
    assert share(snapshot, blob(0, 200, 9), 0) > 0.97


WILD = ["normal", "unit", "constant", "large", "small", "sensor", "end", "mixed", "whole"]


@st.composite
def wild_scripts(draw: st.DrawFn) -> list[Batch | str]:
    """Batches whose features have nothing to do with each other from one to the next."""
    d = draw(st.sampled_from([1, 2, 5]))
    script: list[Batch | str] = []
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from([*WILD, *WILD, "boundary", "settle"]))
        if kind in ("boundary", "settle"):
            script.append(kind)
            continue
        n = draw(st.sampled_from([1, 2, 3, 30, 300, 1200]))
        generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
        normal = torch.randn(n, d, generator=generator)
        unit = torch.rand(n, d, generator=generator)
        x = {
            "normal": normal,
            "unit": unit,
            "constant": torch.full((n, d), draw(st.sampled_from([0.0, 0.5, 7.0, 1e6]))),
            "large": normal * 1e6 + 1e7,
            "small": normal * 1e-20,
            "sensor": unit.index_put((torch.tensor(0),), torch.tensor(-1e30)),
            "end": (unit - 0.5) * 6e37,
            "mixed": normal * torch.logspace(-30, 30, d),
            "whole": torch.randint(0, 3, (n, d), generator=generator).float(),
        }[kind]
        classes = draw(st.integers(0, 7))
        codes = torch.randint(-1, classes, (n,), generator=generator) if classes else None
        script.append(Batch(x, codes, tuple(range(classes))))
    return script if isinstance(script[0], Batch) else [Batch(torch.rand(2, d)), *script]


@given(
    script=wild_scripts(),
    preset=st.sampled_from(["flat", "mfa"]),
    budget=st.sampled_from([1, 2, 3, 10]),
    window=st.sampled_from([12, 50, 4096]),
    detector=st.sampled_from(["sequential", "paper", "none"]),
    limit=st.sampled_from([1, 50, 4096]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_whatever_is_sent_every_number_stays_a_number_and_every_limit_holds(
    script: list[Batch | str], preset: str, budget: int, window: int, detector: str, limit: int
) -> None:
    state, snapshot = learned(
        script,
        preset=preset,
        n_components=budget,
        window=window,
        detector=detector,
        set_aside_limit=limit,
        warm_up=100,
    )
    assert snapshot.info.components <= budget
    assert snapshot.info.window <= window
    assert snapshot.info.recent <= min(window, MOST_RECENT)
    assert state.pending.set_aside_samples <= limit
    total = sum(len(part) for part in script if isinstance(part, Batch))
    assert state.stream.samples == total


@pytest.mark.parametrize("preset", ["flat", "mfa"])
@pytest.mark.parametrize("window", [1, 3])
def test_a_window_of_a_sample_or_three_is_enough_to_learn(preset: str, window: int) -> None:
    stream = list(batches([0, 1, 2], 2, size=60))
    state, snapshot = learned(stream, preset=preset, n_components=6, window=window)
    assert snapshot.info.window <= window
    assert state.model.samples_seen == 120
    codes = snapshot.classify(blob(2, 50, 9)).codes
    assert [snapshot.classes[code] for code in codes.tolist()].count(2) > 45


# Labels -----------------------------------------------------------------------------------


def test_a_batch_whose_labels_are_all_missing_is_unlabelled() -> None:
    codes = torch.full((50,), -1)
    state, snapshot = learned([Batch(blob(0, 50, 1), codes), Batch(blob(0, 50, 2), codes, ("x",))])
    assert snapshot.classes == ()
    engine = Engine(EngineConfig(n_components=8))
    _, (event,) = engine.step(state, Batch(blob(0, 50, 3), codes))
    assert isinstance(event, BatchLearned)
    assert (event.labelled, event.prequential_accuracy) == (0, None)


def test_only_labels_that_a_sample_carries_become_classes() -> None:
    batch = Batch(blob(0, 3, 1), torch.tensor([2, -1, 0]), ("first", "never", "last"))
    state, _ = learned([batch])
    assert state.model.classes == ("first", "last")
    assert state.model.class_counts == (1, 1)


def test_a_vocabulary_that_repeats_itself_is_refused() -> None:
    engine = Engine(EngineConfig())
    with pytest.raises(InvalidLabels, match="twice"):
        engine.step(engine.start(), Batch(blob(0, 2, 1), torch.tensor([0, 1]), ("a", "a")))


def test_one_class_is_named_whatever_is_asked() -> None:
    _, snapshot = learned(list(batches([4], 5)))
    assert share(snapshot, blob(9, 50, 1), 4) == 1
    torch.testing.assert_close(snapshot.classify(blob(4, 5, 1)).probabilities, torch.ones(5, 1))


def test_a_class_of_a_single_sample_can_be_named_and_drawn() -> None:
    stream = [Batch.of(torch.cat([blob(0, 99, 1), blob(1, 1, 1)]), [0] * 99 + [1])]
    _, snapshot = learned(list(stream))
    assert snapshot.sample(5, [1], seed=3).features.shape == (5, N_FEATURES)
    assert share(snapshot, blob(0, 100, 5), 0) > 0.97


def test_labels_first_seen_in_a_batch_set_aside_become_classes_when_it_is_learned() -> None:
    engine = Engine(EngineConfig(n_components=12, experts=False))
    state = lived(engine, [0, 1], 20)
    for batch in batches([2], 12, size=4, seed=5):
        tried, _ = engine.step(state, batch)
        if tried.pending.set_aside:
            break
        state, _ = engine.step(state, Batch(batch.features))
    assert len(tried.pending.set_aside) == 1
    assert 2 not in tried.model.classes
    state, events = engine.settle(tried)
    assert [event.label for event in events if isinstance(event, ClassDiscovered)] == [2]
    assert 2 in state.model.classes
    assert state.model.class_counts[-1] == 4


def unlabelled_then_the_first_labels(sizes: tuple[int, int], n: int) -> list[Batch]:
    """Two batches of one blob, and one with the first labels of all, of another blob."""
    known = [Batch(blob(0, size, seed=seed)) for seed, size in enumerate(sizes)]
    return [*known, Batch.of(blob(40, n, seed=9), [1] * n)]


@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_the_first_labels_of_all_may_come_with_the_first_boundary(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, warm_up=100))
    stream = unlabelled_then_the_first_labels((40, 100), 40)
    state, events = play(engine, engine.start(), stream)
    assert any(isinstance(event, BoundaryDetected) for event in events)
    state, _ = engine.settle(state)
    assert state.model.classes == (1,)


def test_a_model_is_asked_while_its_first_labels_wait_to_be_learned() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, warm_up=100))
    stream = unlabelled_then_the_first_labels((40, 40), 100)
    state, _ = play(engine, engine.start(), stream)
    assert state.model.classes == ()
    state, _ = engine.change_mode(state, Mode.FROZEN)
    state, [passed, *_] = engine.step(state, stream[-1])
    assert isinstance(passed, BatchPassed)
    assert passed.samples == 100


def test_accuracy_counts_labelled_samples_only() -> None:
    """A thousand unlabelled samples beside one labelled one weigh nothing."""
    engine = Engine(EngineConfig(n_components=8, detector="none"))
    state = lived(engine, [0, 1], 11)
    assert state.stream.prequential.weight == 1000
    known = state.stream.prequential.mean
    wrong = Batch.of(blob(0, 500, 9), [1] + [None] * 499)
    state, events = engine.step(state, wrong)
    assert state.stream.prequential.weight == 1001
    assert state.stream.prequential.mean == pytest.approx(known * 1000 / 1001)
    (event,) = [event for event in events if isinstance(event, BatchLearned)]
    assert (event.labelled, event.prequential_accuracy) == (1, 0)


def test_a_thousand_classes_that_are_all_new_are_taken_in_their_stride() -> None:
    state, _ = learned([Batch.of(blob(0, 1000, 1), list(range(1000)))], n_components=20)
    assert len(state.model.classes) == 1000
    assert state.model.class_counts == (1,) * 1000


# Outliers while little is known -----------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20, 100])
def test_the_outlier_threshold_makes_sense_before_the_stream_could_calibrate_it(size: int) -> None:
    _, snapshot = learned(list(batches([0, 1], 100 // size, size=size)))
    inside = snapshot.outliers(torch.cat([blob(0, 200, 9), blob(1, 200, 9)])).inliers
    assert float(inside.double().mean()) > 0.6
    assert not snapshot.outliers(blob(7, 200, 9)).inliers.any()


def test_a_boundary_declared_early_keeps_the_threshold_that_there_was() -> None:
    stream = list(batches([0, 1], 3))
    state, snapshot = learned([*stream, "boundary"])
    assert state.sub_task.number == 1
    assert float(snapshot.outliers(blob(0, 200, 9)).inliers.double().mean()) > 0.6
    assert not snapshot.outliers(blob(7, 200, 9)).inliers.any()


def test_scores_known_before_learning_outweigh_the_first_stand_in() -> None:
    state, _ = learned(list(batches([0, 1], 30)), detector="none", experts=False)
    # 500 samples are not counted, and the surrogate for them counts as 50.
    assert state.sub_task.log_likelihood.weight == 2550


# Places in the stream ---------------------------------------------------------------------


def test_a_declared_boundary_begins_with_the_next_batch() -> None:
    engine = Engine(EngineConfig(n_components=8, experts=False))
    state = lived(engine, [0], 5)
    state, events = engine.declare_boundary(state)
    (boundary,) = [event for event in events if isinstance(event, BoundaryDetected)]
    assert (boundary.batch_index, boundary.sample_index) == (5, 500)
    assert (boundary.estimated_start_batch, boundary.estimated_start_sample) == (5, 500)
    assert (state.sub_task.first_batch, state.sub_task.first_sample) == (5, 500)


def test_standardised_data_are_counted_once() -> None:
    stream = [Batch(batch.features * 40 - 3) for batch in batches([0, 1], 4)]
    state, _ = learned(list(stream))
    assert state.standardiser is not None
    assert state.standardiser.samples == 400
    every = torch.cat([batch.features for batch in stream]).double()
    torch.testing.assert_close(state.standardiser.mean, every.mean(0))
    torch.testing.assert_close(
        state.standardiser.shift, every.mean(0).float(), rtol=1e-6, atol=1e-6
    )


def test_a_checkpoint_must_fit_the_number_of_features_in_the_settings() -> None:
    wide = Engine(EngineConfig(n_features=5))
    narrow = Engine(EngineConfig())
    kept, _ = narrow.step(narrow.start(), Batch(torch.rand(20, 3)))
    with pytest.raises(InvalidCheckpoint, match="3 features, but this stream has 5"):
        wide.restore(wide.start(), kept, "checkpoint")


def test_a_refused_batch_leaves_no_trace() -> None:
    engine = Engine(EngineConfig(n_components=8))
    state = lived(engine, [0, 1], 3)
    bad: list[Batch] = [
        Batch(torch.full((2, N_FEATURES), math.inf)),
        Batch(torch.zeros(2, 3)),
        Batch(torch.zeros(2, N_FEATURES), torch.tensor([0, 5]), (9,)),
    ]
    after: list[Event] = []
    for batch in bad:
        with pytest.raises(InvalidBatch):
            engine.step(state, batch)
    one, one_events = engine.step(state, next(iter(batches([0], 1, seed=3))))
    fresh_state = lived(engine, [0, 1], 3)
    other, other_events = engine.step(fresh_state, next(iter(batches([0], 1, seed=3))))
    assert one.model.version == other.model.version
    assert one_events == other_events
    assert not after
