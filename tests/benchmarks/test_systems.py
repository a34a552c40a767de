"""Tests for benchmarks.systems: what holds for every system, and the registry."""

from __future__ import annotations

import pytest
import torch

from benchmarks.systems.registry import SYSTEMS, make_system
from benchmarks.systems.system import System
from clients.http.errors import InputError
from core.config import PRESETS
from tests.benchmarks.images import N_CLASSES, SIZE, images

BASELINES = ("ewc", "gr", "lda", "fine-tuning")
TOLD = (*BASELINES, "paper-epochs")
REMEMBER = {"lda", "flat", "mfa"}
FORGETS = "fine-tuning"
SAMPLES = 1200
"""Of a sub-task."""


def made(name: str, seed: int = 0) -> System:
    return make_system(name, SIZE, N_CLASSES, seed, quick=True)


def taught(name: str, seed: int = 0) -> tuple[System, list[int], list[int]]:
    """A system after two sub-tasks of two classes, with the progress it told of each."""
    system = made(name, seed)
    told: tuple[list[int], list[int]] = ([], [])
    system.learn(*images((0, 1), SAMPLES), told[0].append)
    system.learn(*images((2, 3), SAMPLES, seed=1), told[1].append)
    return system, *told


def accuracy(system: System, classes: tuple[int, ...]) -> float:
    x, y = images(classes, 400, seed=5)
    predicted = system.predict(x)
    assert predicted.shape == y.shape
    assert predicted.dtype == torch.int64
    return float((predicted == y).float().mean())


def test_all_systems_of_the_comparison_are_there():
    assert set(SYSTEMS) == {*PRESETS, *TOLD}
    assert {"flat", "paper"} <= set(PRESETS)


def test_an_unknown_system_is_refused_with_the_names_of_the_known():
    with pytest.raises(InputError, match=r"no system 'gan'\. Known: .*fine-tuning"):
        made("gan")


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_learns_two_sub_tasks_and_tells_how_far_it_is(name: str):
    system, first, second = taught(name)
    assert system.name == name
    assert system.told == (name in TOLD)
    assert sum(first) == sum(second) == SAMPLES
    assert len(first) > 1 or name == "lda"
    assert accuracy(system, (2, 3)) > 0.9
    if name in REMEMBER:
        assert accuracy(system, (0, 1)) > 0.9
    if name == FORGETS:
        assert accuracy(system, (0, 1)) < 0.1
    assert (system.boundaries is None) == system.told
    assert system.parameters > 64
    assert system.bytes >= 4 * system.parameters


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_same_seed_gives_the_same_answers(name: str):
    x = torch.rand(200, 64, generator=torch.Generator().manual_seed(0))
    answers = []
    for _ in range(2):
        system = made(name, seed=3)
        system.learn(*images((0, 1, 2, 3), 300), lambda n: None)
        system.learn(*images((4, 5), 300), lambda n: None)
        answers.append(system.predict(x))
        torch.rand(5)  # other people's random numbers are of no account
    assert torch.equal(*answers)


@pytest.mark.parametrize("name", ["ewc", "gr", "fine-tuning"])
def test_another_seed_is_another_network(name: str):
    numbers = [torch.cat([t.flatten() for t in made(name, seed).kept()]) for seed in (0, 1)]
    assert not torch.equal(*numbers)


@pytest.mark.parametrize(
    ("name", "epochs"),
    [
        ("ewc", "10 epochs"),
        ("gr", "50 + 25 epochs"),
        ("lda", "1 pass"),
        ("fine-tuning", "25 epochs"),
        ("paper", "1 pass"),
        ("paper-epochs", "50/100 epochs"),
    ],
)
def test_epochs_at_full_size_are_the_paper_s(name: str, epochs: str):
    assert make_system(name, SIZE, N_CLASSES, 0, quick=False).epochs == epochs
