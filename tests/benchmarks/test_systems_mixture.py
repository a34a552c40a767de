"""Tests for the benchmarks.systems.mixture module."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.systems.mixture import Mixture, tensors_of
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BoundaryDetected
from tests.benchmarks.images import N_CLASSES, images, quietly

FLAT = EngineConfig(preset="flat", n_components=10, warm_up=300)
PAPER = EngineConfig(preset="paper", n_components=9, pace="published", detector="none")


def test_it_does_what_the_engine_does_when_fed_the_same_stream():
    engine = Engine(FLAT)
    state, found = engine.start(), 0
    mixture = Mixture("flat", FLAT, N_CLASSES)
    for sub_task, classes in enumerate([(0, 1), (4, 5)]):
        x, y = images(classes, 1950, seed=sub_task)
        for rows in torch.arange(len(x)).split(100):
            state, events = engine.step(state, Batch.of(x[rows], y[rows], images=True))
            found += any(isinstance(event, BoundaryDetected) for event in events)
        mixture.learn(x, y, quietly)
    probe = torch.rand(50, 64, generator=torch.Generator().manual_seed(0))
    snapshot = engine.snapshot(engine.settle(state)[0])
    expected = [snapshot.classes[code] for code in snapshot.classify(probe).codes]
    assert mixture.predict(probe).tolist() == expected
    assert mixture.boundaries == found == 1


def test_asking_between_sub_tasks_changes_nothing_of_what_is_learned_next():
    asked, left_alone = Mixture("flat", FLAT, N_CLASSES), Mixture("flat", FLAT, N_CLASSES)
    probe = torch.rand(50, 64, generator=torch.Generator().manual_seed(0))
    for sub_task, classes in enumerate([(0, 1), (4, 5)]):
        # So few that some may be set aside when the sub-task ends.
        x, y = images(classes, 700 if sub_task == 0 else 250, seed=sub_task)
        for mixture in (asked, left_alone):
            mixture.learn(x, y, quietly)
        asked.predict(probe)
        assert asked.parameters > 0
    assert torch.equal(asked.predict(probe), left_alone.predict(probe))
    assert asked.boundaries == left_alone.boundaries


def test_what_is_kept_is_the_components_and_no_sample():
    mixture = Mixture("flat", FLAT, N_CLASSES)
    assert mixture.parameters == 0
    mixture.learn(*images((0, 1), 900), quietly)
    k, d, c = 10, 64, 2
    # Mean, variance, mass, owner, votes and what these are compared with; the open window of
    # samples is not among them.
    assert k * 2 * d <= mixture.parameters <= k * (2 * d + c + 2 + 1 + c) + 10


def test_several_epochs_with_declared_boundaries_show_every_sample_so_often():
    steps: list[int] = []
    mixture = Mixture("paper-epochs", PAPER, N_CLASSES, epochs=[2, 3])
    assert mixture.told
    assert mixture.epochs == "2/3 epochs"
    assert mixture.boundaries is None
    for classes in ((0, 1), (2, 3), (4, 5)):
        told: list[int] = []
        mixture.learn(*images(classes, 200), told.append)
        assert sum(told) == 200
        steps.append(len(told))
    assert steps == [4, 6, 6]


def test_tensors_are_found_wherever_they_are_in_a_state():
    @dataclass(frozen=True)
    class Part:
        one: torch.Tensor
        rest: object

    state = Part(torch.zeros(1), (Part(torch.zeros(2), None), {"a": [torch.zeros(3)]}, 4, "text"))
    assert [len(tensor) for tensor in tensors_of(state)] == [1, 2, 3]
