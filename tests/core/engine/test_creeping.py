"""Features that creep are told by an event, and change nothing else."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BatchLearned, Event, FeaturesDrifting

N = 12_000
MODEL = Engine(EngineConfig(preset="flat", n_components=20, detector="none", seed=0))


def stream(
    *creeps: tuple[int, int, float], seed: int = 0
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Samples of six features with shape (N, 6).

    Arguments:
        creeps: A feature, where it begins to creep, and how far it has got in the end.
        seed: Of the noise.
    """
    x = np.random.default_rng(seed).normal(size=(N, 6))
    for feature, start, far in creeps:
        x[start:, feature] += np.linspace(0, far, N - start)
    return x.astype(np.float32)


def taken(
    state: EngineState,
    x: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    *,
    images: bool = False,
) -> tuple[EngineState, list[Event]]:
    told: list[Event] = []
    for start in range(0, len(x), 200):
        rows = torch.from_numpy(x[start : start + 200])
        state, events = MODEL.step(state, Batch.of(rows, images=images))
        told += events
    return state, told


@functools.cache
def after(*creeps: tuple[int, int, float]) -> tuple[EngineState, list[Event]]:
    """What `taken` gives of a whole `stream`; tests go on from here."""
    return taken(MODEL.start(), stream(*creeps))


def drifts(events: list[Event]) -> list[FeaturesDrifting]:
    return [event for event in events if isinstance(event, FeaturesDrifting)]


@pytest.mark.parametrize("wild", [1e6, -999.0])
def test_one_wild_value_hides_nothing_that_creeps(wild: float) -> None:
    (expected,) = drifts(after((2, 0, 3.0))[1])
    x = stream((2, 0, 3.0))
    x[700, 2] = wild
    _, events = taken(MODEL.start(), x)
    (found,) = drifts(events)
    assert [row["feature"] for row in found.features] == [2]
    # It is pulled in to twenty deviations, and seen a look later at most.
    assert found.sample_index <= expected.sample_index + 1000


def test_each_feature_that_creeps_is_told_once_and_no_other() -> None:
    _, events = after((2, 0, 3.0), (4, 6000, 4.0))
    first, second = drifts(events)
    assert [row["feature"] for row in first.features] == [2]
    assert [row["feature"] for row in second.features] == [4]
    assert (first.news, first.drifting) == (1, 1)
    assert (second.news, second.drifting) == (1, 2)
    assert first.sample_index < 6000 < second.sample_index
    [row] = first.features
    assert row["drifts"] is True
    change = row["change"]
    assert isinstance(change, float)
    assert 0.2 < change < 3
    assert first.samples >= 1000
    assert first.samples + first.reference_samples == first.sample_index + 200
    assert "explanation" not in first.to_dict()


def test_what_stays_is_never_told() -> None:
    for seed in range(3):
        assert drifts(taken(MODEL.start(), stream(seed=seed))[1]) == []


def test_it_begins_anew_with_a_sub_task() -> None:
    x = stream((1, 0, 3.0))
    state, events = taken(MODEL.start(), x)
    assert len(drifts(events)) == 1
    state, _ = MODEL.declare_boundary(state)
    again = stream((1, 0, 3.0), seed=5)
    [told] = drifts(taken(state, again)[1])
    assert told.sub_task == 1


def test_what_was_told_is_in_the_checkpoint() -> None:
    x = stream((2, 0, 3.0), (4, 6000, 4.0))
    whole, _ = after((2, 0, 3.0), (4, 6000, 4.0))
    half, first = taken(MODEL.start(), x[:7000])
    assert len(drifts(first)) == 1
    kept, _, _ = load(dump(half, MODEL.config, {}))
    loaded, second = taken(kept, x[7000:])
    assert [row["feature"] for event in drifts(second) for row in event.features] == [4]
    assert dump(loaded, MODEL.config, {}) == dump(whole, MODEL.config, {})


def test_single_pixels_are_not_told() -> None:
    x = 0.7 * np.random.default_rng(0).uniform(size=(N, 6)).astype(np.float32)
    x[:, 2] += np.linspace(0, 0.3, N, dtype=np.float32)
    state, events = taken(MODEL.start(), x, images=True)
    assert state.standardiser.identity
    assert len([event for event in events if isinstance(event, BatchLearned)]) == N // 200
    assert drifts(events) == []
    assert len(drifts(taken(MODEL.start(), x)[1])) == 1
    # Nor those of images that are scaled like any table, because they are not in [0, 1].
    shaped = (10 * x - 30).reshape(-1, 2, 3)
    state, events = taken(MODEL.start(), shaped)
    assert not state.standardiser.identity
    assert state.model.image_shape == (2, 3)
    assert drifts(events) == []
