"""Tests for returns in tables: what comes again is named, and what is new is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BoundaryDetected, PriorShift
from tests.core.states import play

BATCHES = 9
CONFIG = EngineConfig(warm_up=400, experts=False)

Change = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Part:
    """A sub-task: which clouds there are, whether labelled, and what is done to the samples."""

    clouds: Sequence[int]
    labelled: bool
    change: Change | None = None

    def batches(self, d: int, seed: int, n: int = BATCHES) -> Iterator[Batch]:
        """Batches of 100 samples."""
        centres = 2 * torch.randn(8, d, generator=torch.Generator().manual_seed(d))
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n):
            codes = torch.tensor(self.clouds)[
                torch.randint(len(self.clouds), (100,), generator=generator)
            ]
            x = centres[codes] + torch.randn(100, d, generator=generator)
            if self.change is not None:
                x = self.change(x, generator)
            yield Batch.of(x, codes if self.labelled else None)


def passed(
    d: int, parts: Sequence[Part], seed: int = 0, config: EngineConfig = CONFIG
) -> tuple[EngineState, list[list[Any]]]:
    """The state after all parts, and boundaries and shifts of shares in each."""
    engine = Engine(config)
    state, told = engine.start(), []
    for place, part in enumerate(parts):
        state, events = play(engine, state, list(part.batches(d, 100 * seed + place)))
        told.append([one for one in events if isinstance(one, BoundaryDetected | PriorShift)])
    return state, told


def returns(told: list[list[Any]]) -> list[list[int | None]]:
    return [[getattr(one, "recurrence_of", -1) for one in each] for each in told]


@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("d", [8, 40, 150])
def test_a_sub_task_that_returns_is_named_whichever_it_was(d: int, labelled: bool) -> None:
    parts = [Part(clouds, labelled) for clouds in ([0, 1], [2, 3], [4, 5], [2, 3], [0, 1])]
    _, told = passed(d, parts, seed=1)
    assert returns(told) == [[], [None], [None], [1], [0]]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_return_after_an_unlabelled_sub_task_is_a_boundary(preset: str) -> None:
    config = EngineConfig(preset=preset, warm_up=400, experts=False)
    parts = [Part([0, 1], True), Part([2, 3], False), Part([0, 1], True)]
    state, told = passed(150, parts, config=config)
    assert returns(told) == [[], [None], [0]]
    assert (state.sub_task.number, state.sub_task.recurrence) == (2, 0)
    (boundary,) = told[2]
    assert {row["label"]: row["before"] for row in boundary.explanation["classes"]} == {
        0: None,
        1: None,
    }


def test_a_sub_task_returns_as_often_as_it_comes() -> None:
    """What one return has shown is no part of the next sub-task."""
    parts = [Part(clouds, True) for clouds in ([0, 1], [2, 3]) * 3]
    _, told = passed(8, parts, seed=1)
    assert returns(told) == [[], [None], [0], [1], [0], [1]]


def test_a_sub_task_after_a_return_is_remembered_by_its_own_classes() -> None:
    clouds = ([0, 1], [2, 3], [0, 1], [4, 5], [2, 3], [4, 5])
    state, told = passed(8, [Part(one, True) for one in clouds], seed=1)
    assert returns(told) == [[], [None], [0], [None], [1], [3]]
    shown = [set(one.codes.tolist()) for one in state.past.retention.sets]
    assert shown == [{0, 1}, {2, 3}, {4, 5}]
    assert state.model.samples_seen - state.past.retention.samples_seen == 100 * BATCHES


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_no_raw_sample_survives_its_sub_task_where_another_returns(preset: str) -> None:
    parts = [Part(clouds, True) for clouds in ([0, 1], [2, 3], [0, 1])]
    state, told = passed(8, parts, seed=1, config=EngineConfig(preset=preset, warm_up=400))
    assert returns(told) == [[], [None], [0]]
    ended = {code for code, label in enumerate(state.model.classes) if label in (2, 3)}
    groups = {group.owner: group.held for group in state.model.learner.groups}
    assert [groups.get(code, 0) for code in ended] == [0, 0]
    assert state.model.panel is not None
    near = state.model.panel.neighbours
    few = near.clusters.masses[: near.size] < 3
    assert not ended & set(near.clusters.codes[: near.size][few].tolist())


def off(x: Tensor, _: torch.Generator) -> Tensor:
    """One sensor is off by a deviation of one cloud and a half."""
    return x + 1.5 * torch.eye(x.shape[1])[3]


def stuck(x: Tensor, _: torch.Generator) -> Tensor:
    """One sensor sticks."""
    return x * (1 - torch.eye(x.shape[1])[3])


def shifted(x: Tensor, _: torch.Generator) -> Tensor:
    """All features are off by half a deviation of one cloud."""
    return x + 0.5


def noisier(x: Tensor, generator: torch.Generator) -> Tensor:
    """All features vary by half more."""
    return x + 1.1 * torch.randn(x.shape, generator=generator)


@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("d", [8, 40, 150])
def test_what_is_new_is_never_called_a_return(d: int, labelled: bool) -> None:
    engine = Engine(CONFIG)
    parts = [Part([0, 1], labelled), Part([2, 3], labelled)]
    before = engine.start()
    for place, part in enumerate(parts):
        before, _ = play(engine, before, list(part.batches(d, place)))
    new = [Part([0, 1], labelled, change) for change in (off, stuck, shifted, noisier)]
    new += [Part(clouds, labelled) for clouds in ([4, 5], [0, 4])]
    for part in new:
        _, events = play(engine, before, list(part.batches(d, 7, 4)))
        found = [one for one in events if isinstance(one, BoundaryDetected)]
        assert found, part
        assert [one.recurrence_of for one in found] == [None] * len(found), part
    _, events = play(engine, before, list(Part([0, 1], labelled).batches(d, 7, 4)))
    assert [one.recurrence_of for one in events if isinstance(one, BoundaryDetected)] == [0]


def test_a_faulty_sensor_is_new_and_its_repair_is_the_return_of_what_was_before() -> None:
    """Both boundaries are by single features."""
    parts = [Part([0, 1], False), Part([0, 1], False, off), Part([0, 1], False)]
    _, told = passed(40, parts)
    assert [[one.signal for one in each] for each in told] == [[], ["features"], ["features"]]
    assert returns(told) == [[], [None], [0]]


def test_unlabelled_samples_are_drawn_from_what_learned_them() -> None:
    """Else those of a sub-task are those of all before it, and a return may name any of them."""
    state, _ = passed(16, [Part([0, 1], False), Part([2, 3], False), Part([4, 5], False)])
    centres = 2 * torch.randn(8, 16, generator=torch.Generator().manual_seed(16))
    for one, own in zip(state.past.retention.sets, ([0, 1], [2, 3]), strict=True):
        nearest = torch.cdist(one.features.float(), centres).argmin(1)
        assert float(torch.isin(nearest, torch.tensor(own)).double().mean()) > 0.97


def test_drawn_samples_say_what_became_of_data() -> None:
    """They are drawn when what was learned is at rest: real ones have lost as little since."""
    engine = Engine(EngineConfig(detector="none", experts=False))
    state = engine.start()
    fresh = {
        place: next(Part(clouds, True).batches(150, 50, 1)).features
        for place, clouds in enumerate(PAIRS)
    }
    log_likelihoods: dict[int, float] = {}

    def mean(place: int) -> float:
        return float(engine.snapshot(state).outliers(fresh[place]).log_likelihoods.mean())

    for place, clouds in enumerate(PAIRS):
        state, _ = play(engine, state, [*Part(clouds, True).batches(150, place), "boundary"])
        log_likelihoods[place] = mean(place)
    for row in engine.held(state):
        assert row.log_likelihood_now is not None
        told = row.log_likelihood_now - row.log_likelihood_then
        assert told == pytest.approx(mean(row.sub_task) - log_likelihoods[row.sub_task], abs=1.0)
        assert told <= 0


PAIRS = ([0, 1], [2, 3], [4, 5])


@pytest.mark.parametrize("delay", [2, None], ids=["late", "never"])
def test_where_every_sample_waits_for_its_label_changes_are_explained_and_returns_named(
    delay: int | None,
) -> None:
    engine = Engine(replace(CONFIG, label_wait_samples=300))
    state, told, n = engine.start(), list[list[BoundaryDetected]](), 0
    pending = list[tuple[range, list[int | str]]]()
    for place, clouds in enumerate(([0, 1], [2, 3], [4, 5], [2, 3], [0, 1])):
        found = list[BoundaryDetected]()
        for batch in Part(clouds, labelled=True).batches(16, 100 + place):
            ids, n = range(n, n + len(batch)), n + len(batch)
            labels = [label for label in batch.plain_labels if label is not None]
            pending.append((ids, labels))
            state, events = engine.step(state, Batch(batch.features, sample_ids=tuple(ids)))
            if delay is not None and len(pending) > delay:
                late, names = pending.pop(0)
                state, more = engine.label(state, list(late), names)
                events = [*events, *more]
            found += [one for one in events if isinstance(one, BoundaryDetected)]
        told.append(found)
    assert returns(told) == [[], [None], [None], [1], [0]]
    for boundaries in told[1:]:
        assert boundaries[0].explanation["samples"] >= 100
        assert boundaries[0].explanation["features"]
