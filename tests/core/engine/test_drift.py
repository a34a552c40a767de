"""Tests for what an engine does about drift: bursts, mixtures, returns, and saving in between."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.density.factors.part import FactorPart
from core.drift.detector import Cause, Level, Observation, Verdict
from core.drift.sequential.detector import SequentialDetector, SequentialState
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.engine.judgement import BatchPosition
from core.engine.state import EngineState
from core.events import (
    BatchLearned,
    BatchSetAside,
    BoundaryDetected,
    Event,
    OutlierBurst,
    PriorShift,
    Replayed,
    SetAsideReleased,
)
from core.memory.burst import RECURRENT, Burst
from core.tensors import pack, unpack
from tests.core.states import Script, assert_identical, lived, play
from tests.core.streams import batches, blob

CONFIG = EngineConfig(n_components=12, experts=False)


def of(kind: type[Event], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def spoiled(batch: Batch, rows: list[int], label: int = 7) -> Batch:
    """The same batch with samples of another class, unlabelled, in some rows."""
    x = batch.features.clone()
    x[rows] = blob(label, len(rows), seed=77)
    return Batch(x)


def rows_of(parts: tuple[Batch, ...]) -> set[tuple[float, ...]]:
    return {tuple(row) for part in parts for row in part.features.tolist()}


# Bursts -----------------------------------------------------------------------------------


def test_outliers_of_a_burst_are_kept_apart_and_the_rest_is_learned() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    (batch,) = batches([0, 1], 1, seed=5, labelled=False)
    rows = list(range(20, 35))
    batch = spoiled(batch, rows)
    state, events = engine.step(state, batch)
    (burst,) = of(OutlierBurst, events)
    assert not of(BoundaryDetected, events)
    outliers = {tuple(row) for row in batch.features[rows].tolist()}
    apart = rows_of(state.pending.quarantined)
    assert outliers <= apart
    # A few of the usual samples are as rare; hardly more.
    assert len(apart - outliers) <= 6
    assert burst.samples == len(apart)
    assert (burst.batch_index, burst.sample_index, burst.sub_task) == (20, 2000, 0)
    assert burst.estimated_start_batch == 20
    (learned,) = of(BatchLearned, events)
    assert learned.quarantined == len(apart)
    assert learned.samples == 100
    assert state.model.samples_seen == state.stream.samples - len(apart) == 2100 - len(apart)
    # The next batch has no burst, and nothing is quarantined any more.
    state, events = engine.step(state, next(iter(batches([0, 1], 1, seed=6, labelled=False))))
    assert state.pending.quarantined == ()
    assert {event.kind for event in events} == {"batch_learned"}


@pytest.mark.parametrize(("n", "kind"), [(60, OutlierBurst), (100, BoundaryDetected)])
def test_outliers_of_one_kind_on_end_are_a_burst_up_to_a_limit(n: int, kind: type[Event]) -> None:
    """The limit that docs/detector.md tells."""
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 25, labelled=False)
    usual = [batch.features for batch in batches([0, 1], 6, seed=5, labelled=False)]
    x = torch.cat([usual[0][:30], blob(7, n, seed=77), *usual])
    state, events = play(engine, state, [Batch(part) for part in x.split(100)])
    assert [type(one) for one in of(BoundaryDetected, events) + of(OutlierBurst, events)] == [kind]


def test_batches_set_aside_with_a_burst_are_learned_but_for_the_outliers() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    small = list(batches([0, 1], 12, size=10, seed=5, labelled=False))
    bad = [spoiled(small[0], [2, 3, 4, 5, 6, 7, 8])]
    seen = state.model.samples_seen
    state, events = play(engine, state, [*bad, *small[1:]])
    assert of(BatchSetAside, events)
    (burst,) = of(OutlierBurst, events)
    assert not of(BoundaryDetected, events) + of(SetAsideReleased, events)
    assert burst.samples + burst.released > 0
    assert burst.set_aside_batches >= 1
    assert burst.samples >= 7
    assert state.model.samples_seen == seen + 120 - burst.samples
    assert state.pending.set_aside == ()


def test_labelled_outliers_keep_their_labels() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20)
    (batch,) = batches([0, 1], 1, seed=5)
    x = batch.features.clone()
    x[:15] = blob(7, 15, seed=77)
    state, _ = engine.step(state, Batch(x, batch.codes, batch.vocabulary))
    labels = {tuple(row): code for row, code in zip(x.tolist(), batch.codes.tolist(), strict=True)}
    assert state.pending.quarantined
    for part in state.pending.quarantined:
        for row, code in zip(part.features.tolist(), part.codes.tolist(), strict=True):
            assert batch.vocabulary[labels[tuple(row)]] == part.vocabulary[code]


def sensors(n: int, n_sensors: int = 10, seed: int = 0) -> Tensor:
    """Readings of correlated sensors, with shape (n, D)."""
    rng, mixing = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(7)
    mixed = torch.randn(n_sensors, n_sensors, generator=mixing) / n_sensors**0.5
    return torch.randn(n, n_sensors, generator=rng) @ mixed


def bursting(seed: int, begin: int, batches: int, outliers: int = 40) -> Tensor:
    """4,000 readings, of which so many in each of a few batches of 100 are outliers."""
    x = sensors(4000, seed=seed)
    rng = torch.Generator().manual_seed(100 + seed)
    for batch in range(batches):
        rows = begin + 100 * batch + torch.randperm(60, generator=rng)[:outliers]
        x[rows] = 6 + torch.randn(outliers, x.shape[1], generator=rng)
    return x


def test_one_burst_in_three_batches_is_one_event_and_what_goes_on_of_it() -> None:
    engine = Engine(EngineConfig(preset="flat"))
    state, events = engine.start(), list[Event]()
    quarantined = 0
    for place, batch in enumerate(map(Batch, bursting(0, 3000, 3).split(100))):
        # Half way through the burst, too, all that is remembered of it is in a checkpoint.
        if place >= 29:
            state, _, _ = load(dump(state, engine.config, {}))
        state, told = engine.step(state, batch)
        events += told
        quarantined += sum(map(len, state.pending.quarantined))
    first, *more = of(OutlierBurst, events)
    assert first.kind == "outlier_burst"
    assert [one.kind for one in more] == ["outlier_burst_continued"] * len(more) != []
    assert {one.burst for one in (first, *more)} == {1}
    assert {one.burst_start_sample for one in more} == {first.estimated_start_sample}
    # Every outlier is in one of the events, and all of them in the last.
    samples = [one.samples for one in (first, *more)]
    totals = [one.burst_samples for one in (first, *more)]
    assert totals == list(accumulate(samples))
    assert totals[-1] == quarantined >= 110


def test_outliers_after_a_pause_are_another_burst() -> None:
    x = bursting(0, 2500, 1)
    x[3000:] = bursting(1, 3200, 1)[3000:]
    engine = Engine(EngineConfig(preset="flat"))
    _, events = play(engine, engine.start(), [Batch(part) for part in x.split(100)])
    assert [(one.kind, one.burst) for one in of(OutlierBurst, events)] == [
        ("outlier_burst", 1),
        ("outlier_burst", 2),
    ]


@pytest.mark.parametrize(
    ("start_batch", "start", "boundary", "held"),
    [
        (11, 5000, 0, True),  # the very next batch, however large
        (12, 1100, 0, True),  # close by, however small the batches
        (12, 1101, 0, False),
        (11, 1050, 1000, False),  # of another sub-task
    ],
)
def test_a_burst_goes_on_in_the_next_batch_or_close_by(
    start_batch: int, start: int, boundary: int, held: bool
) -> None:
    burst = Burst().followed(900).with_outliers(7, 0, batch=10, end=1000)
    assert burst.holds(start_batch, start, boundary) == held
    assert not Burst().holds(0, 0, -1)


@pytest.mark.parametrize(
    ("parts", "outliers", "unheard", "size", "lasts"),
    [
        (5, 10, 0, 100, True),  # in every batch, as on a belt with one machine of ten
        (4, 10, 0, 100, False),
        (5, 5, 0, 100, False),  # so many look strange of what is usual
        (5, 7, 0, 1000, False),
        (1, 40, 29, 100, False),
        (1, 40, 30, 100, True),  # a new label for as many as a change must last
        (3, 10, 10, 1000, True),
    ],
)
def test_a_burst_that_comes_again_and_again_or_has_a_new_label_lasts(
    parts: int, outliers: int, unheard: int, size: int, lasts: bool
) -> None:
    burst = Burst().followed(1000)
    for part in range(parts):
        assert not burst.lasts
        burst = burst.with_outliers(outliers, unheard, part, 1000 + (part + 1) * size)
    assert burst.lasts is lasts
    assert not burst.over().holds(parts, burst.end, 0)


def in_blocks(n: int, begin: int, size: int, labelled: bool) -> list[Batch]:
    """Batches of 100 of classes 0 and 1, each with a block of class 2."""
    return [
        Batch(
            batch.features.index_put(
                (torch.arange(begin, begin + size),), blob(2, size, seed=500 + place)
            ),
            None
            if batch.codes is None
            else batch.codes.index_put((torch.arange(begin, begin + size),), torch.tensor(2)),
            batch.vocabulary and (*batch.vocabulary, 2),
        )
        for place, batch in enumerate(batches([0, 1], n, seed=3, labelled=labelled))
    ]


@pytest.mark.parametrize(("begin", "size"), [(0, 30), (0, 10), (40, 30), (90, 10)])
def test_what_is_new_as_a_block_of_every_batch_is_a_change(begin: int, size: int) -> None:
    """Batches of a producer that sorts them, or puts them together from several sources."""
    engine = Engine(CONFIG)
    usual = lived(engine, [0, 1], 20, labelled=False)
    state, events = usual, list[Event]()
    stream = in_blocks(40, begin, size, labelled=False)
    for batch in stream:
        state, told = engine.step(state, batch)
        events += told
        if of(BoundaryDetected, told):
            assert len(of(OutlierBurst, events)) <= RECURRENT - 1
            break
    (boundary,) = of(BoundaryDetected, events)
    assert 2000 <= boundary.estimated_start_sample <= 2000 + begin
    assert boundary.signal in {"inliers", "doubt"}
    assert boundary.evidence["statistic_highest"] > engine.detector.threshold()
    # Of the batches set aside what is usual is learned as the end of the old.
    assert boundary.mixed_samples >= 60
    # What bursts in the new sub-task is a burst of its own, however soon.
    assert not state.watch.burst.holds(state.stream.batch_at(state.stream.samples), 2000, 0)
    # From now on it belongs to the stream.
    state, events = play(engine, state, stream[20:])
    assert not of(OutlierBurst, events) + of(BoundaryDetected, events)
    x = blob(2, 50, seed=9)
    after, before = (engine.snapshot(one).outliers(x).log_likelihoods for one in (state, usual))
    assert float((after - before).mean()) > 20


@pytest.mark.parametrize("begin", [0, 40, 70])
def test_a_new_class_as_a_block_of_every_batch_is_learned_at_once(begin: int) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20)
    state, events = play(engine, state, in_blocks(3, begin, 30, labelled=True))
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.estimated_start_sample == 2000
    assert not of(OutlierBurst, events)
    assert state.model.samples_seen == state.stream.samples
    snapshot = engine.snapshot(state)
    codes = snapshot.classify(blob(2, 50, seed=9)).codes.tolist()
    assert {snapshot.classes[code] for code in codes} == {2}


def test_bursts_are_not_numbered_anew_after_a_rollback() -> None:
    engine = Engine(EngineConfig(preset="flat"))
    x = bursting(0, 2500, 1)
    kept, _ = play(engine, engine.start(), [Batch(part) for part in x[:2000].split(100)])
    state, _ = play(engine, kept, [Batch(part) for part in x[2000:3000].split(100)])
    state, _ = engine.restore(state, kept, "rollback")
    _, events = play(engine, state, [Batch(part) for part in bursting(1, 2500, 1).split(100)])
    assert of(OutlierBurst, events)[0].burst == 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_change_after_a_burst_begins_where_it_begins(seed: int) -> None:
    later = sensors(500, seed=50 + seed)
    later[:, 5] += 1
    x = torch.cat([bursting(seed, 3000, 3), later])
    engine = Engine(EngineConfig(preset="flat"))
    _, events = play(engine, engine.start(), [Batch(part) for part in x.split(100)])
    assert of(OutlierBurst, events)
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.estimated_start_sample == pytest.approx(4000, abs=20)


# Mixtures ---------------------------------------------------------------------------------


def mixed_batches(share: float, n: int, seed: int) -> list[Batch]:
    """Batches of 0 and 1 that end in a share of 2, unlabelled."""
    rows = list(range(100 - round(share * 100), 100))
    return [
        Batch(
            batch.features.index_put(
                (torch.tensor(rows),), blob(2, len(rows), seed=100 * seed + place)
            )
        )
        for place, batch in enumerate(batches([0, 1], n, seed=seed, labelled=False))
    ]


def test_a_boundary_in_the_middle_of_a_batch_parts_old_samples_from_new() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    (batch,) = mixed_batches(0.5, 1, seed=3)
    state, events = engine.step(state, batch)
    (boundary,) = of(BoundaryDetected, events)
    assert 45 <= boundary.mixed_samples <= 50
    assert state.sub_task.number == 1
    assert state.model.samples_seen == state.stream.samples == 2100
    assert state.pending.quarantined == ()


@pytest.mark.parametrize(
    ("cause", "parted"),
    [(Cause.NOVELTY, True), (Cause.SHARES, False), (Cause.FEATURES, False), (Cause.UNKNOWN, False)],
)
def test_old_and_new_are_parted_where_fewer_samples_fit(cause: Cause, parted: bool) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    (batch,) = mixed_batches(0.5, 1, seed=3)
    verdict = engine.judge.judge(state, batch).verdict
    assert verdict is not None
    old, new = engine.change_type.mixture(state, (batch,), verdict._replace(cause=cause))
    assert sum(map(len, (*old, *new))) == len(batch)
    assert (len(old) > 0) is parted


def test_a_boundary_whose_samples_are_all_new_parts_nothing() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    state, events = engine.step(state, next(iter(batches([2, 3], 1, seed=3, labelled=False))))
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.mixed_samples == 0
    assert boundary.signal == "inliers"
    assert boundary.recurrence_of is None


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_class_that_comes_mixed_is_shown_by_its_own_samples(share: float) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, labelled=False)
    (batch,) = mixed_batches(share, 1, seed=3)
    _, events = engine.step(state, batch)
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.mixed_samples
    assert boundary.explanation["samples"] == 100 - boundary.mixed_samples
    assert boundary.severity is not None
    assert boundary.severity > 0.6


def test_wear_is_shown_by_all_samples_since_it_began() -> None:
    """The strange ones of them are those that happened to lie far out."""
    rng = np.random.default_rng(21)
    rows = []
    for place in range(4100):
        load = rng.normal()
        temperature, pressure = rng.normal(0, 1.5), 8000 * load + rng.normal(0, 1500)
        vibration, current = abs(2 + 0.3 * load + rng.normal(0, 0.2)), rng.normal(0, 0.3)
        vibration += max(0, place - 2000) / 1500
        rows.append([62.5 + temperature, 501325 + pressure, vibration, 12 + 1.5 * load + current])
    x = torch.tensor(rows, dtype=torch.float32)
    engine = Engine(EngineConfig())
    _, events = play(engine, engine.start(), [Batch(part) for part in x.split(100)])
    mixed = [one for one in of(BoundaryDetected, events) if one.mixed_samples]
    assert mixed
    for boundary in mixed:
        assert boundary.explanation["samples"] > boundary.mixed_samples
        assert [row["feature"] for row in boundary.explanation["features"]] == [2]
        assert boundary.severity is not None
        assert boundary.severity < 0.45


# Returns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "unlabelled"])
def test_a_sub_task_that_returns_is_named_and_with_labels_not_consolidated_again(
    preset: str, labelled: bool
) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, experts=False))
    state, told = engine.start(), []
    for turn, labels in enumerate([[0, 1], [2, 3], [0, 1], [2, 3]]):
        stream = list(batches(labels, 20, seed=turn + 1, labelled=labelled))
        state, events = play(engine, state, list(stream))
        told.append(events)
        assert state.sub_task.number == turn
    boundaries = [event for events in told for event in of(BoundaryDetected, events)]
    assert [event.recurrence_of for event in boundaries] == [None, 0, 1]
    assert [event.batch_index for event in boundaries] == [20, 40, 60]
    assert state.sub_task.recurrence == 1
    # What is known is replayed at the first boundary only: afterwards all of it is known.
    # Without labels it is put away each time, or the old components would learn what returns.
    replays = [[event.reason for event in of(Replayed, events)] for events in told]
    assert "boundary" in replays[1]
    assert ("boundary" in replays[2] + replays[3]) is not labelled
    assert [one.sub_task for one in state.past.retention.sets] == [0, 1]
    snapshot = engine.snapshot(state)
    for label in range(4):
        assert float(snapshot.outliers(blob(label, 200, seed=99)).inliers.double().mean()) > 0.8
        if labelled:
            codes = snapshot.classify(blob(label, 200, seed=99)).codes.tolist()
            assert [snapshot.classes[code] for code in codes].count(label) > 190


def test_a_return_with_a_new_class_beside_it_is_new() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 20, seed=1)
    state, _ = play(engine, state, list(batches([2, 3], 20, seed=2)))
    state, events = play(engine, state, list(batches([0, 1, 4], 5, seed=3)))
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.recurrence_of is None
    assert of(Replayed, events)


def test_a_declared_boundary_asks_for_no_return() -> None:
    engine = Engine(CONFIG)
    script: Script = [*batches([0, 1], 8, seed=1), "boundary", *batches([2], 8, seed=2)]
    state, _ = play(engine, engine.start(), script)
    state, events = play(engine, state, ["boundary"])
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.recurrence_of is None
    assert of(Replayed, events)


# Saving in between ------------------------------------------------------------------------

PRESETS = {
    "mfa": EngineConfig(n_components=6, n_factors=3, warm_up=200),
    "flat": EngineConfig(preset="flat", n_components=6, warm_up=200, experts=False),
    "paper": EngineConfig(preset="paper", n_components=9, warm_up=200),
    "dcgmm": EngineConfig(preset="dcgmm", n_components=4, warm_up=200, image="4,4"),
}


def watches(state: EngineState) -> bool:
    return state.watch.detector.watch is not None and state.watch.detector.successor is None


def has_successor(state: EngineState) -> bool:
    return (
        state.watch.detector.successor is not None and len(state.watch.detector.successor.seen) > 0
    )


def is_alarmed(state: EngineState) -> bool:
    return state.watch.detector.alarm is not None


@pytest.mark.parametrize("size", [40, 700])
def test_versions_of_a_model_share_one_forward_pass_and_say_the_same_without(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven hundred samples are more than are scored at a time."""
    config = replace(PRESETS["mfa"], experts=False)
    asked = list[tuple[FactorPart, int, float]]()
    scores, observe = FactorPart.log_joint, SequentialDetector.observe

    def counting(part: FactorPart, x: Tensor, x_squared: Tensor) -> Tensor:
        asked.append((part, x.shape[0], float(x.sum())))
        return scores(part, x, x_squared)

    def alone(
        self: SequentialDetector, state: SequentialState, seen: Observation, settled: bool
    ) -> tuple[SequentialState, Verdict]:
        return observe(self, state, seen._replace(passed=None), settled)

    n = max(2, 1000 // size)
    stream = [*batches([0, 1], n, size=size), *batches([2, 3], n, size=size, seed=1)]
    shared, events = play(Engine(config), Engine(config).start(), stream)
    assert of(BoundaryDetected, events)
    engine, state, most = Engine(config), Engine(config).start(), 0
    monkeypatch.setattr(FactorPart, "log_joint", counting)
    for batch in stream:
        if state.model.standardiser is not None:
            asked.clear()
            engine.judge.judge(state, engine.delayed_labels.claim(state, batch)[1])
            assert len(asked) == len(set(asked))
            most = max(most, len({part for part, *_ in asked}))
        state, _ = engine.step(state, batch)
    assert most >= 3
    assert_identical(state, shared)
    monkeypatch.setattr(SequentialDetector, "observe", alone)
    apart, _ = play(Engine(config), Engine(config).start(), stream)
    assert_identical(apart, shared)


@functools.cache
def watched_throughout(preset: str) -> tuple[list[Batch], list[tuple[EngineState, list[Event]]]]:
    """Batches of a life; its states before any and after each, with what that one told."""
    usual = list(batches([0, 1], 60, size=40, seed=2))
    outliers = [Batch(blob(7, 5, seed=4)) for _ in range(3)]
    stream = [*usual[:40], *outliers, *usual[40:48], *batches([2], 4, seed=5)]
    engine = Engine(PRESETS[preset])
    states: list[tuple[EngineState, list[Event]]] = [(engine.start(), [])]
    for batch in stream:
        states.append(engine.step(states[-1][0], batch))
    return stream, states


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "moment", [watches, has_successor, is_alarmed], ids=lambda one: one.__name__
)
def test_a_life_saved_in_the_middle_of_a_watch_goes_on_bit_for_bit(
    preset: str, moment: Callable[[EngineState], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PRESETS[preset]
    # Presets that anneal would take thousands of samples to settle.
    monkeypatch.setattr(type(Engine(config).learner), "converged", lambda learner, state: True)
    stream, lived_so_far = watched_throughout(preset)
    at = next(at for at, (state, _) in enumerate(lived_so_far) if moment(state))
    state = lived_so_far[at][0]
    data = dump(state, config, {})
    loaded, loaded_config, _ = load(data)
    assert_identical(loaded, state)
    assert dump(loaded, loaded_config, {}) == data
    again, events_again = play(Engine(loaded_config), loaded, list(stream[at:]))
    assert events_again == [event for _, events in lived_so_far[at + 1 :] for event in events]
    assert_identical(again, lived_so_far[-1][0])


@pytest.mark.parametrize("detector", ["paper", "none"])
def test_a_detectors_state_of_another_kind_begins_anew_and_the_model_stays(detector: str) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 12)
    assert state.watch.detector.watch is not None
    tensors, text = unpack(FORMAT, dump(state, CONFIG, {}))
    text["config"] = json.dumps({**CONFIG.to_dict(), "detector": detector})
    loaded, config, _ = load(pack(FORMAT, tensors, text))
    assert config.detector == detector
    assert_identical(loaded.watch.detector, Engine(config).start().watch.detector)
    assert_identical(loaded.model.learner, state.model.learner)
    again, events = play(Engine(config), loaded, list(batches([0, 1], 2, seed=4)))
    assert again.model.version == state.model.version + 2
    assert {event.kind for event in events} == {"batch_learned"}


def test_a_state_of_the_last_releases_detector_begins_anew() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 12)
    tensors, text = unpack(FORMAT, dump(state, CONFIG, {}))
    tree = json.loads(text["state"])
    for old in (
        {"samples": 5, "inliers": {}, "occupancy": {}},
        {},
        None,
        [],
        "text",
        {"samples": 1},
    ):
        text["state"] = json.dumps({**tree, "watch": {**tree["watch"], "detector": old}})
        loaded, _, _ = load(pack(FORMAT, tensors, text))
        assert_identical(loaded.watch.detector, engine.detector.start())
        assert_identical(loaded.model.learner, state.model.learner)


# A change of shares alone ------------------------------------------------------------------


def shares_shift(labelled: bool, n_batches: int = 8) -> tuple[EngineState, list[Event]]:
    """Two classes evenly, then one of them alone."""
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 25, seed=1, labelled=labelled)
    return play(engine, state, list(batches([0], n_batches, seed=2, labelled=labelled)))


def test_with_labels_a_change_of_shares_alone_is_no_boundary() -> None:
    state, events = shares_shift(labelled=True)
    (shift,) = of(PriorShift, events)
    assert shift.estimated_start_sample == pytest.approx(2500, abs=60)
    assert not of(BoundaryDetected, events)
    assert state.sub_task.number == shift.sub_task == 0
    assert state.pending.set_aside == ()
    assert state.model.samples_seen == state.stream.samples


def test_after_a_change_of_shares_the_new_ones_are_usual_and_the_detector_stays_on() -> None:
    state, events = shares_shift(labelled=True, n_batches=40)
    assert len(of(PriorShift, events)) == 1
    assert not of(BoundaryDetected, events)
    # Another frozen model has taken over, with a reference in which the new shares are usual.
    assert state.watch.detector.watch.frozen_model.taken_at > 2500
    assert not state.watch.detector.watch.reference.outdated
    state, _ = shares_shift(labelled=True, n_batches=4)
    assert state.watch.detector.watch.reference.outdated
    assert state.watch.armed
    # Two batches later another class comes: it is found as if nothing had been before.
    _, events = play(Engine(CONFIG), state, list(batches([2], 2, seed=3)))
    (boundary,) = of(BoundaryDetected, events)
    assert boundary.estimated_start_sample == pytest.approx(2900, abs=10)


@pytest.mark.parametrize(
    ("cause", "shifts"),
    [
        (Cause.SHARES, 1),
        (Cause.NOVELTY, 1),
        (Cause.FEATURES, 0),
        (Cause.LABELS, 0),
        (Cause.UNKNOWN, 0),
    ],
)
def test_only_a_detector_that_names_a_cause_can_tell_a_change_of_shares(
    cause: Cause, shifts: int
) -> None:
    """One that watches the likelihood alone has seen that change."""
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 25, seed=1)
    (batch,) = batches([0], 1, seed=2)
    batch = engine.delayed_labels.claim(state, batch)[1]
    verdict = engine.judge.judge(state, batch).verdict
    assert verdict is not None
    said = verdict._replace(level=Level.ALARM, cause=cause)
    assert (
        len(engine.change_type.prior_shift(state, batch, BatchPosition(25, 2500), said)) == shifts
    )


@pytest.mark.parametrize(("strange", "shifts"), [(10, 1), (11, 0)])
def test_it_is_a_change_of_shares_where_nine_tenths_look_as_before(
    strange: int, shifts: int
) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 25, seed=1)
    known = blob(0, 200, seed=2)
    known = known[engine.detector.typical(state.watch.detector, known)][: 100 - strange]
    batch = Batch.of(torch.cat([known, blob(7, strange, seed=3)]), [0] * 100)
    batch = engine.delayed_labels.claim(state, batch)[1]
    verdict = engine.judge.judge(state, batch).verdict
    assert verdict is not None
    said = verdict._replace(level=Level.ALARM, cause=Cause.NOVELTY)
    assert (
        len(engine.change_type.prior_shift(state, batch, BatchPosition(25, 2500), said)) == shifts
    )
    old, _ = engine.change_type.mixture(state, (batch,), said)
    assert bool(old) is not bool(shifts)


def test_it_is_no_change_of_shares_where_a_few_without_labels_are_strange() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 25, seed=1)
    events: list[Event] = []
    for n in range(12):
        known = next(iter(batches([0, 1], 1, size=94, seed=n + 2)))
        x = torch.cat([known.features, blob(7, 6, seed=n)])
        assert known.codes is not None
        named = [known.vocabulary[code] for code in known.codes.tolist()]
        state, more = play(engine, state, [Batch.of(x, [*named, *[None] * 6])])
        events += more
    assert not of(PriorShift, events)
    assert of(BoundaryDetected, events)


def test_classes_of_which_the_sub_task_had_no_label_are_not_its_own() -> None:
    engine = Engine(CONFIG)
    script: Script = [*batches([0, 1], 3, seed=1), "boundary"]
    state, _ = play(engine, engine.start(), [*script, *batches([2, 3], 3, seed=2, labelled=False)])
    assert state.shown.tolist() == [False, False]
    state, _ = play(engine, state, list(batches([1], 1, seed=3)))
    assert [state.model.classes[code] for code in state.shown.nonzero()[:, 0].tolist()] == [1]


def test_without_labels_it_is_a_boundary_for_it_may_be_a_class_in_hiding() -> None:
    state, events = shares_shift(labelled=False)
    assert not of(PriorShift, events)
    assert of(BoundaryDetected, events)
    assert state.sub_task.number == 1


def test_a_class_that_had_only_trickled_in_is_new_when_it_takes_over() -> None:
    engine = Engine(CONFIG)
    main = [*batches([0], 24, seed=1), *batches([1], 1, size=10, seed=1)]
    state, _ = play(engine, engine.start(), [*main, *batches([0], 3, seed=4)])
    assert state.sub_task.number == 0
    _, events = play(engine, state, list(batches([1], 4, seed=3)))
    assert not of(PriorShift, events)
    assert of(BoundaryDetected, events)


@pytest.mark.parametrize("size", [1, 7])
def test_where_all_samples_have_moved_a_few_that_lie_far_out_are_not_taken_for_the_new(
    size: int,
) -> None:
    draws = np.random.default_rng(1).standard_t(2.5, size=(2100, 16)).astype(np.float32)
    draws[2000:, :8] += 2
    rows = torch.from_numpy(draws)
    engine = Engine(EngineConfig())
    state = engine.start()
    for batch in (*rows[:2000].split(100), *rows[2000:].split(size)):
        state, events = engine.step(state, Batch(batch))
        if found := of(BoundaryDetected, events):
            break
    (boundary,) = found
    assert boundary.mixed_samples > 10  # they look typical, most of them
    assert boundary.explanation["samples"] > boundary.mixed_samples
    named = {one["feature"] for one in boundary.explanation["features"]}
    assert len(named & {*range(8)}) > len(named - {*range(8)})


@pytest.mark.parametrize("seed", [1, 2])
def test_a_boundary_tells_the_statistic_that_has_passed_the_threshold(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(1600, 16, generator=generator)
    rows[1000:, :4] += 0.8
    engine = Engine(EngineConfig(preset="flat"))
    state, found = engine.start(), list[BoundaryDetected]()
    for part in (*rows[:1000].split(100), *rows[1000:].split(20)):
        state, events = engine.step(state, Batch(part))
        found += of(BoundaryDetected, events)
        if found:
            break
    (boundary,) = found
    assert boundary.evidence["statistic_highest"] >= boundary.evidence["threshold"]
