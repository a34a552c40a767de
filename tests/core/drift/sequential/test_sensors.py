"""Streams of sensors, without labels: one of many fails, and readings depend on each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BoundaryDetected, ChangeContinued, Event, PriorShift
from tests.core.states import lived_through, play

N_SENSORS = 20
ONE = 7

Readings = NDArray[np.float64]


def readings(n: int, seed: int, thinning_interval: float = 0.0) -> Readings:
    """Correlated readings, each a part of the one before it; with shape (n, D)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, N_SENSORS)) * (1 - thinning_interval**2) ** 0.5
    z[0] = rng.normal(size=N_SENSORS)
    for i in range(1, n):
        z[i] += thinning_interval * z[i - 1]
    mixing = np.random.default_rng(7).normal(size=(N_SENSORS, N_SENSORS)) / N_SENSORS**0.5
    return z @ mixing


def batches(x: Readings, labelled: bool = False) -> list[Batch]:
    parts = torch.split(torch.from_numpy(x.astype(np.float32)), 100)
    return [
        Batch.of(part, (part[:, 0] > 0).long().tolist() if labelled else None) for part in parts
    ]


def in_batches(n: int, seed: int, labelled: bool) -> list[Batch]:
    return batches(readings(n, seed), labelled)


def stuck(x: Readings) -> Readings:
    x[:, ONE] = 0
    return x


def off(x: Readings) -> Readings:
    x[:, ONE] += 1
    return x


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("fails", [stuck, off])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_sensor_that_fails_is_found_and_named(
    preset: str, fails: Callable[[Readings], Readings], labelled: bool
) -> None:
    one = Engine(EngineConfig(preset=preset, n_components=60, experts=False))
    state, events = lived_through(one, in_batches, 5000, 0, labelled)
    assert not [event for event in events if isinstance(event, BoundaryDetected)]
    state, events = play(one, state, batches(fails(readings(1500, 1)), labelled))
    (found,) = [event for event in events if isinstance(event, BoundaryDetected)]
    assert found.signal == "features"
    assert found.estimated_start_sample == pytest.approx(5000, abs=400)
    assert found.recurrence_of is None
    first, *_ = found.explanation["features"]
    assert first["feature"] == ONE
    assert first["share"] > 0.8
    assert not [event for event in events if isinstance(event, PriorShift)]


@pytest.mark.parametrize("thinning_interval", [0.5, 0.8])
def test_readings_that_depend_on_the_ones_before_are_no_boundary(thinning_interval: float) -> None:
    one = Engine(EngineConfig(preset="flat"))
    _, events = play(one, one.start(), batches(readings(12_000, 0, thinning_interval)))
    assert not [event for event in events if isinstance(event, BoundaryDetected)]


def test_a_sensor_that_fails_is_found_where_readings_depend_on_each_other() -> None:
    one = Engine(EngineConfig(preset="flat"))
    x = np.concatenate([readings(6000, 0, 0.8), off(readings(6000, 1, 0.8))])
    _, events = play(one, one.start(), batches(x))
    found = [event for event in events if isinstance(event, BoundaryDetected)]
    assert found[0].estimated_start_sample > 5500
    assert found[0].explanation["features"][0]["feature"] == ONE


def told(x: Readings) -> list[Event]:
    """Boundaries, and changes that are told to go on."""
    one = Engine(EngineConfig(preset="flat"))
    _, events = play(one, one.start(), batches(x))
    return [event for event in events if isinstance(event, BoundaryDetected | ChangeContinued)]


@pytest.mark.parametrize("seed", [1, 3])
def test_one_ramp_is_one_boundary(seed: int) -> None:
    x = readings(11_000, seed)
    x[:, ONE] += 2 * np.clip((np.arange(len(x)) - 5000) / 3000, 0, 1)
    boundary, *more = told(x)
    assert isinstance(boundary, BoundaryDetected)
    assert more
    for event in more:
        assert isinstance(event, ChangeContinued)
        assert event.sub_task == 1
        assert event.boundary_sample == boundary.estimated_start_sample
        assert event.evidence["rest_p_value"] < 0.05


@pytest.mark.parametrize("gap", [1200, 2000])
@pytest.mark.parametrize("direction", [1, -1])
def test_two_steps_of_a_sensor_are_two_boundaries(gap: int, direction: int) -> None:
    x = readings(6500 + gap, 2)
    x[5000:, ONE] += 1
    x[5000 + gap :, ONE] += direction
    first, second = told(x)
    assert isinstance(first, BoundaryDetected)
    assert isinstance(second, BoundaryDetected)
    assert first.estimated_start_sample == pytest.approx(5000, abs=50)
    assert second.estimated_start_sample == pytest.approx(5000 + gap, abs=100)


def test_another_sensor_that_fails_while_one_still_drifts_is_a_boundary() -> None:
    x = readings(8500, 0)
    x[:, ONE] += 3 * np.clip((np.arange(len(x)) - 5000) / 6000, 0, 1)
    x[7500:, 3] += 2
    found = [event for event in told(x) if isinstance(event, BoundaryDetected)]
    assert len(found) == 2
    assert found[1].estimated_start_sample == pytest.approx(7500, abs=100)
