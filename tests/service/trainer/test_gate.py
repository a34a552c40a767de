"""Tests for the gate's decisions, and that a death at any instant changes none of them."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest

from core.memory.retention import SubTaskRetention
from service.settings import Settings
from service.trainer.gate import Gate, Hold
from service.wire import Control, RawBatch
from tests.service.conftest import MakeSettings
from tests.service.running import D, send, training
from tests.service.trainer.test_instants import dies, told
from tests.service.trainer.test_writer import published


def row(sub_task: int, then: float | None, now: float | None) -> SubTaskRetention:
    """How well a past sub-task is held."""
    return SubTaskRetention(sub_task, 64, (), then, now, then, now, 0.0, 0.0, 7)


def test_the_worst_past_sub_task_decides() -> None:
    gate = Gate().asked([row(0, 1.0, 0.9), row(1, 0.8, 0.75), row(2, None, None)], 7, 500)
    assert gate.finding is not None
    assert gate.finding.sub_task == 0
    assert gate.passes(0.1)  # 1.0 - 0.9 is a hair more in floating point
    assert not gate.passes(0.09)
    assert (gate.checked, gate.checked_at) == (7, 500)


def test_without_a_past_sub_task_with_labels_everything_passes() -> None:
    assert Gate().asked([], 1, 0).passes(0.0)
    assert Gate().asked([row(0, None, None)], 1, 0).passes(0.0)


def test_what_was_accepted_counts_from_there_and_only_what_was_beyond_the_limit() -> None:
    rows = [row(0, 1.0, 0.5), row(1, 1.0, 0.95)]
    gate = Gate(hold=Hold(3, 5, "9-0")).asked(rows, 7, 500).accepting(rows, 0.1)
    assert gate.hold is None
    assert gate.accepted == ((0, 0.5),)
    assert gate.passes(0.1)
    assert not gate.asked([row(0, 1.0, 0.35)], 8, 600).passes(0.1)
    # The small loss adds up with the next, instead of being forgiven again and again.
    assert not gate.asked([row(0, 1.0, 0.5), row(1, 1.0, 0.85)], 8, 600).passes(0.1)
    # A sub-task that is asked about no longer is forgotten here too.
    assert gate.asked([row(1, 1.0, 1.0)], 8, 600).accepted == ()


A, B = (0, 1), (2, 3)


def both(classes: tuple[int, int], seed: int, n: int = 100) -> RawBatch:
    """Samples of two classes, taking turns."""
    generator = np.random.default_rng([*classes, seed])
    codes = np.array(classes)[np.arange(n) % 2]
    centres = np.stack([np.random.default_rng(code).random(D) for code in range(4)])
    features = centres[codes] + generator.normal(size=(n, D)) * 0.02
    return RawBatch.of(features.astype("f4"), codes.tolist(), f"{classes}-{seed}")


STREAM: list[RawBatch | Control] = [
    *(both(A, seed) for seed in range(8)),
    Control("boundary"),
    both(B, 0),
    Control("check"),
    *(both(B, seed) for seed in range(1, 12)),
    Control("check"),
    *(both(B, seed) for seed in range(12, 14)),
]


@pytest.fixture
def forgetful(settings: MakeSettings) -> MakeSettings:
    """Settings of a model that forgets, whose trainer asks nothing by the clock."""

    def make(**more: object) -> Settings:
        return settings(
            preset="paper",
            n_components=4,
            replay_factor=0.0,
            detector="none",
            gate_max_forgetting=0.02,
            publish_interval_s=3600,
            checkpoint_interval_s=3600,
            **more,
        )

    return make


INSTANTS = {
    "the snapshot that answers is on disk": (
        "service.store.in_folder.FolderCheckpoints",
        "write_held",
        "after",
        1,
    ),
    "the checkpoint of what answers is being written": (
        "service.trainer.saver.Saver",
        "save",
        "after",
        2,
    ),
}


@pytest.fixture(scope="module")
def plain() -> dict[str, object]:
    """What a life without a death comes to; filled by the first test."""
    return {}


@pytest.mark.parametrize("instant", list(INSTANTS))
def test_a_death_changes_neither_what_is_held_nor_what_answers(
    forgetful: MakeSettings, instant: str, plain: dict[str, object], tmp_path: Path
) -> None:
    def lived(one: Settings) -> dict[str, object]:
        with training(one):
            pass
        every = told(one)
        assert sum(event["kind"] == "version_held" for event in every) == 1
        assert every[-1]["kind"] == "batch_learned"
        return {"events": every, "answers": published(one).to_bytes({})}

    if not plain:
        other = forgetful(model=uuid.uuid4().hex, data_dir=tmp_path / "plain")
        send(other, *STREAM)
        plain.update(lived(other))
    one = forgetful()
    send(one, *STREAM)
    dies(one, *INSTANTS[instant])
    assert lived(one) == plain
    # And once more, from a checkpoint that holds the hold.
    with training(one):
        pass
    assert published(one).to_bytes({}) == plain["answers"]
