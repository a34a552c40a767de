"""Tests for severity: about 0 without a change, larger for larger ones, told with boundaries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BoundaryDetected
from tests.core.states import lived, play
from tests.core.streams import batches, blob

ENGINE = Engine(EngineConfig(preset="flat", warm_up=300, ert=50_000, experts=False))


@cache
def known(labelled: bool = True) -> EngineState:
    """A model that has seen two classes evenly."""
    state = lived(ENGINE, [0, 1], 15, seed=1, labelled=labelled)
    return state


def of(x: torch.Tensor, labelled: bool = True) -> float:
    severity, _ = ENGINE.severity.of(known(labelled), [Batch(x)], None)
    assert severity is not None
    assert 0 <= severity <= 1
    return severity


def usual(n: int = 400, seed: int = 50) -> torch.Tensor:
    return torch.cat([blob(0, n // 2, seed), blob(1, n - n // 2, seed)])


def strange(size: float) -> torch.Tensor:
    """A share of samples of a class that was never seen."""
    n = int(400 * size)
    return torch.cat([usual(400 - n), blob(7, n, 60)])


def moved(size: float) -> torch.Tensor:
    """One feature lies elsewhere."""
    x = usual()
    x[:, 3] += 0.4 * size
    return x


def shares(size: float) -> torch.Tensor:
    """One class becomes more frequent."""
    n = int(200 * (1 - size))
    return torch.cat([blob(0, 400 - n, 50), blob(1, n, 50)])


@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("change", [strange, moved, shares])
def test_a_larger_change_is_more_severe(
    change: Callable[[float], torch.Tensor], labelled: bool
) -> None:
    values = [of(change(size), labelled) for size in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values[0] < 0.05
    assert values == sorted(values)
    assert values[-1] > values[0] + 0.3


def test_the_share_of_strange_samples_is_found_and_never_overstated_by_much() -> None:
    for size in (0.25, 0.5, 1.0):
        assert size - 0.2 < of(strange(size)) < size + 0.05


def test_without_new_samples_nothing_is_said() -> None:
    assert ENGINE.severity.of(known(), [], None) == (None, None)
    assert ENGINE.severity.of(ENGINE.start(), [Batch(blob(0, 5, 1))], None) == (None, None)
    _, events = ENGINE.declare_boundary(known(), "ada", "the winter begins")
    [boundary] = [one for one in events if isinstance(one, BoundaryDetected)]
    assert (boundary.severity, boundary.severity_view) == (None, None)
    assert (boundary.by, boundary.note) == ("ada", "the winter begins")


def test_a_boundary_says_how_severe_it_is_and_so_do_labels_that_mean_something_else() -> None:
    state = known()
    _, events = play(ENGINE, state, list(batches([7, 8], 4, seed=3)))
    [boundary] = [one for one in events if isinstance(one, BoundaryDetected)]
    assert boundary.severity is not None
    assert boundary.severity > 0.7
    swapped = [
        Batch.of(one.features, [1 - int(label or 0) for label in one.plain_labels])
        for one in batches([0, 1], 6, seed=4)
    ]
    _, events = play(ENGINE, state, swapped)
    [boundary] = [one for one in events if isinstance(one, BoundaryDetected)]
    assert boundary.severity_view == "labels"
    assert boundary.severity is not None
    assert boundary.severity > 0.7


def sensors(n: int, seed: int, **columns: torch.Tensor | float) -> torch.Tensor:
    """Readings of four sensors, of which some are set to something else."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    for name, values in columns.items():
        x[:, int(name[1:])] = values
    return x


def category(n: int, share: float, seed: int = 3) -> torch.Tensor:
    return (torch.rand(n, generator=torch.Generator().manual_seed(seed)) < share).float()


def told(before: torch.Tensor, now: torch.Tensor) -> tuple[float | None, str | None]:
    engine = Engine(EngineConfig(preset="flat", n_components=8, detector="none"))
    state, _ = play(engine, engine.start(), [Batch(part) for part in before.split(100)])
    return engine.severity.of(state, [Batch(now)], None)


@pytest.mark.parametrize("value", [0.0, 3.2])
def test_a_sensor_that_begins_to_vary_has_changed_as_a_whole(value: float) -> None:
    moving = value + 0.25 * sensors(300, 8)[:, 0]
    severity, view = told(sensors(1000, 1, _2=value), sensors(300, 9, _2=moving))
    assert view == "features"
    assert severity is not None
    assert severity > 0.85
    usual, _ = told(sensors(1000, 1, _2=value), sensors(300, 9, _2=value))
    assert usual is not None
    assert usual < 0.1


def test_a_sensor_that_sticks_has_changed_as_a_whole() -> None:
    severity, _ = told(sensors(1000, 1), sensors(300, 9, _2=0.1))
    assert severity is not None
    assert severity > 0.7


@pytest.mark.parametrize(("before", "now"), [(0.05, 0.0), (0.05, 0.003), (0.0, 0.1), (0.05, 0.4)])
def test_a_category_has_changed_by_no_more_than_its_share(before: float, now: float) -> None:
    severity, _ = told(
        sensors(1000, 1, _2=category(1000, before)), sensors(300, 9, _2=category(300, now))
    )
    assert severity is not None
    assert severity <= abs(now - before) + 0.05
    assert severity >= abs(now - before) - 0.2
