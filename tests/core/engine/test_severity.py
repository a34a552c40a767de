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
from tests.core.states import play
from tests.core.streams import batches, blob

ENGINE = Engine(EngineConfig(preset="flat", warm_up=300, ert=50_000))


@cache
def known(labelled: bool = True) -> EngineState:
    """A model that has seen two classes evenly."""
    state, _ = play(ENGINE, ENGINE.start(), list(batches([0, 1], 15, seed=1, labelled=labelled)))
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
