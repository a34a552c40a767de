"""The engine on a device: every life is there as it is on the CPU, whatever is loaded on the way.

Without an accelerator the device is the simulated one, which computes the CPU's numbers, and lives
end in the same bytes. `--device cuda` lives them on a GPU, which rounds sums otherwise: there they
have to come to their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.batch import Batch, Label
from core.config import EngineConfig
from core.density import blocks
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import (
    BatchSetAside,
    BoundaryDetected,
    ClassesMerged,
    ClassProposed,
    Event,
    LabelsMatched,
    OutlierBurst,
    ProposalClosed,
    Replayed,
)
from tests.core import simulated_device
from tests.core.states import leaves, play
from tests.core.streams import N_FEATURES, batches, blob

SMALL: dict[str, EngineConfig] = {
    "mfa": EngineConfig(n_components=12, n_factors=3, window=200, warm_up=200, experts=False),
    "flat": EngineConfig(preset="flat", n_components=12, warm_up=200, experts=False),
    "paper": EngineConfig(preset="paper", n_components=4, warm_up=200),
    "dcgmm": EngineConfig(preset="dcgmm", n_components=4, warm_up=200),
}
"""Every preset at a size at which a life takes a second. Experts live on the CPU, whatever the
device: two kinds of life are with them."""


@pytest.fixture
def accelerator(device: torch.device) -> torch.device:
    """The device that was asked for, if that is not the CPU; else the simulated one."""
    return simulated_device.DEVICE if device.type == "cpu" else device


class Life:
    """An engine and its state, led through a stream by hand."""

    def __init__(self, config: EngineConfig, device: torch.device | str) -> None:
        self.engine = Engine(config, device)
        self.state = self.engine.start()
        self.events: list[Event] = []
        self.answers: list[Any] = []

    def learn(self, stream: Iterable[Batch | str]) -> None:
        self.take(play(self.engine, self.state, list(stream)))

    def take(self, step: tuple[EngineState, list[Event]]) -> None:
        """Go on from a step of the engine's."""
        self.state, events = step
        self.events += events

    def saved(self) -> bytes:
        return dump(self.state, self.engine.config, {})

    def kept(self, data: bytes) -> EngineState:
        return load(data, self.engine.device)[0]

    def restart(self) -> None:
        """As after the end of a process: load what was saved, and serve it at once."""
        self.state = self.kept(self.saved())
        self.ask()

    def restore(self, data: bytes, source: str) -> None:
        self.take(self.engine.restore(self.state, self.kept(data), source))
        self.ask()

    def ask(self) -> None:
        """Ask the model everything that it can be asked."""
        snapshot = self.engine.snapshot(self.state)
        x = torch.cat([blob(label, 20, seed=99) for label in (0, 2, 7)])
        x = x[:, : snapshot.info.features]
        self.answers += snapshot.classify(x, p_values=True) if snapshot.classes else ()
        self.answers += snapshot.outliers(x)
        self.answers += snapshot.sample(5, seed=3)
        self.answers += [row for one in self.engine.held(self.state) for row in [one]]

    def found(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def assert_lived_alike(
    config: EngineConfig, script: Callable[[Life], None], accelerator: torch.device
) -> Life:
    """Live it on the CPU, which works as a device does meanwhile, and on the device; compare."""
    here, there = Life(config, "cpu"), Life(config, accelerator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ALL_AT_ONCE", True)
        script(here)
    with simulated_device.operators() as operators:
        script(there)
    if accelerator != simulated_device.DEVICE:
        return there
    assert sum(operators.values()) > 1000  # it was there that it was computed
    assert there.events == here.events
    for mine, other in zip(there.answers, here.answers, strict=True):
        assert torch.equal(mine.cpu(), other) if isinstance(mine, Tensor) else mine == other
    assert there.saved() == here.saved()
    return there


def stream(
    labels: list[int], n_batches: int, seed: int = 0, named: str = "all", size: int = 60
) -> list[Batch]:
    """Batches of which all samples have a label, every other one, or none."""
    made = batches(labels, n_batches, size, seed, labelled=named != "none")
    if named != "half":
        return list(made)
    return [
        Batch.of(
            batch.features, [one if row % 2 else None for row, one in enumerate(batch.plain_labels)]
        )
        for batch in made
    ]


# Loading ----------------------------------------------------------------------------------


def test_every_value_of_a_loaded_state_lies_where_it_lay(accelerator: torch.device) -> None:
    life = Life(EngineConfig(n_components=12, proposal_samples=20, warm_up=200), accelerator)
    life.learn([*stream([0, 1], 5, size=200), "boundary"])
    life.learn(stream([2, 3], 5, seed=3, size=200))
    named = Batch.of(blob(4, 20, seed=5), [None] * 20, [f"s{row}" for row in range(20)])
    life.learn([named, *stream([4], 2, seed=6, size=4)])
    assert life.state.pending.set_aside
    assert life.state.pending.awaiting.held
    assert life.state.past.retention.sets
    pairs = zip(leaves(life.state), leaves(life.kept(life.saved())), strict=True)
    for (path, mine), (_, loaded) in pairs:
        if isinstance(mine, Tensor) and mine.numel():
            assert loaded.device == mine.device, path


def test_a_checkpoint_for_which_the_device_has_no_room_is_not_called_a_wrong_one() -> None:
    life = Life(SMALL["flat"], simulated_device.DEVICE)
    life.learn(stream([0, 1], 2))
    data = life.saved()
    with simulated_device.full(), pytest.raises(torch.OutOfMemoryError):
        life.kept(data)
    life.kept(data)


@pytest.mark.parametrize("preset", SMALL)
def test_after_a_restart_within_the_first_sub_task_it_learns_on(
    preset: str, accelerator: torch.device
) -> None:
    def script(life: Life) -> None:
        life.learn(stream([0, 1], 3, size=200))
        assert life.state.model.calibration.current  # rows of it are what this is about
        life.restart()
        life.learn(stream([0, 1], 2, seed=4))
        life.ask()

    assert_lived_alike(SMALL[preset], script, accelerator)


def test_after_a_restart_beyond_a_boundary_it_is_served_asked_and_learns_on(
    accelerator: torch.device,
) -> None:
    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 5, size=150), "boundary"])
        assert life.state.model.calibration.past
        life.restart()
        life.learn(stream([2, 3], 5, seed=4, size=150))
        life.restart()
        life.learn(stream([2, 3], 2, seed=5))

    life = assert_lived_alike(SMALL["flat"], script, accelerator)
    assert life.found(BoundaryDetected)


@pytest.mark.parametrize("source", ["rollback", "checkpoint"])
def test_after_a_rollback_or_an_upload_it_is_served_and_learns_on(
    source: str, accelerator: torch.device
) -> None:
    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 4, size=170), "boundary"])
        life.learn(stream([2, 3], 4, seed=4, size=170))
        early = life.saved()
        life.learn(["boundary", *stream([4], 3, seed=5)])
        life.restore(early, source)
        life.learn(stream([2, 3, 5], 4, seed=6, size=170))
        life.ask()

    assert_lived_alike(SMALL["flat"], script, accelerator)


# Lives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["all", "half", "none"])
@pytest.mark.parametrize("preset", SMALL)
def test_a_life_of_two_sub_tasks_with_a_restart_in_each(
    preset: str, named: str, accelerator: torch.device
) -> None:
    def script(life: Life) -> None:
        life.learn(stream([0, 1], 3, named=named, size=200))
        assert life.state.model.calibration.current
        life.restart()
        life.learn([*stream([0, 1], 1, seed=1, named=named), "settle", "boundary"])
        life.learn(stream([2, 3], 2, seed=2, named=named))
        life.restart()
        life.learn(stream([2, 3], 1, seed=3, named=named))
        life.ask()

    config = replace(SMALL[preset], experts=named == "half")
    assert_lived_alike(config, script, accelerator)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(n_components=5, n_factors=2, window=200, detector="none", experts=False),
        EngineConfig(preset="flat", n_components=5, detector="none", experts=False),
    ],
    ids=["mfa", "flat"],
)
def test_components_are_merged(config: EngineConfig, accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        for turn, labels in enumerate([[0, 1], [2, 3], [4, 5]]):
            life.learn([*stream(labels, 2, seed=turn, size=150), "boundary"])
        life.restart()
        life.learn(stream([0, 6], 3, seed=8))
        life.ask()

    life = assert_lived_alike(config, script, accelerator)
    assert any(
        event.components_after < event.components_before or event.samples
        for event in life.found(Replayed)
    )


def test_a_burst_is_kept_apart_and_a_suspicion_outlives_a_restart(
    accelerator: torch.device,
) -> None:
    (usual,) = stream([0, 1], 1, seed=5, size=100)
    x = usual.features.clone()
    x[20:35] = blob(7, 15, seed=77)

    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 8, size=250), Batch(x, usual.codes, usual.vocabulary)])
        life.learn(stream([0, 1], 2, seed=6))
        life.learn(stream([2], 2, seed=7, size=4))
        assert life.state.pending.set_aside
        life.restart()
        life.learn(stream([2], 15, seed=8, size=4))

    life = assert_lived_alike(SMALL["flat"], script, accelerator)
    assert life.found(OutlierBurst)
    assert life.found(BatchSetAside)
    assert life.found(BoundaryDetected)


def test_a_sub_task_comes_back(accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        for turn, labels in enumerate([[0, 1], [2, 3], [0, 1]]):
            life.learn(stream(labels, 5, seed=turn + 1, size=180))
            life.restart()

    life = assert_lived_alike(SMALL["flat"], script, accelerator)
    assert 0 in [event.recurrence_of for event in life.found(BoundaryDetected)]


def test_a_class_is_proposed_and_named(accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        life.learn(stream([0, 1], 4, size=300))
        for index, batch in enumerate(stream([0, 1], 4, seed=60, named="none", size=80)):
            life.learn([Batch(torch.cat([batch.features, blob(16, 20, 500 + index)]))])
        life.restart()
        life.take(life.engine.name(life.state, 1, "new"))
        life.restart()
        life.learn(stream([0, 1], 1, seed=70))
        life.ask()

    config = EngineConfig(n_components=24, n_factors=3, detector="none", proposal_samples=20)
    life = assert_lived_alike(config, script, accelerator)
    assert life.found(ClassProposed)
    assert life.found(ProposalClosed)


@pytest.mark.parametrize("preset", sorted(SMALL))
def test_two_classes_become_one(preset: str, accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 3), "boundary", *stream([1, 2], 3, seed=4)])
        life.take(life.engine.merge_classes(life.state, 1, 2))
        life.restart()
        life.learn(stream([0, 2], 2, seed=5))
        life.ask()

    life = assert_lived_alike(SMALL[preset], script, accelerator)
    assert life.state.model.classes == (0, 2)
    assert life.found(ClassesMerged)


def test_samples_await_their_labels_across_a_boundary(accelerator: torch.device) -> None:
    waiting = [
        Batch.of(blob(label, 10, seed=label), [None] * 10, [f"{label}-{row}" for row in range(10)])
        for label in (0, 1, 2)
    ]

    def names(label: int, rows: range) -> tuple[list[str], list[Label]]:
        return [f"{label}-{row}" for row in rows], [label] * len(rows)

    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 3), *waiting[:2]])
        life.restart()
        life.take(life.engine.label(life.state, *names(0, range(5))))
        life.learn(["boundary", *stream([2, 3], 2, seed=4), waiting[2]])
        life.restart()
        for label in (0, 1, 2):
            life.take(life.engine.label(life.state, *names(label, range(5, 8))))
        life.take(life.engine.expire(life.state, life.state.stream.samples))
        life.learn(stream([2, 3], 1, seed=5))
        life.ask()

    life = assert_lived_alike(replace(SMALL["mfa"], experts=True), script, accelerator)
    assert sum(event.matched for event in life.found(LabelsMatched)) == 14


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(preset="flat", n_components=6, warm_up=200, detector="paper"),
        EngineConfig(preset="flat", n_components=6, warm_up=200, shadow_detectors="paper,adwin"),
        EngineConfig(preset="flat", n_components=6, outlier_false_positive_rate=0.05, shift=1),
        EngineConfig(preset="paper", n_components=4, replay="proportional", detector="none"),
    ],
    ids=["paper's detector", "shadows", "shifted images", "proportional replay"],
)
def test_other_settings(config: EngineConfig, accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        life.learn([*stream([0, 1], 4, size=120), "boundary", *stream([2, 3], 2, seed=3)])
        life.restart()
        life.learn(stream([2, 3], 2, seed=4))
        life.ask()

    assert_lived_alike(config, script, accelerator)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_features_of_another_scale(preset: str, accelerator: torch.device) -> None:
    def script(life: Life) -> None:
        scaled = [
            Batch(37 * batch.features - 5, batch.codes, batch.vocabulary)
            for batch in stream([0, 1], 10)
        ]
        life.learn(scaled[:4])
        life.restart()
        life.learn([*scaled[4:8], "boundary", *scaled[8:]])
        life.ask()

    life = assert_lived_alike(SMALL[preset], script, accelerator)
    assert life.state.n_features == N_FEATURES
