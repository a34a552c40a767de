"""Tests for core.engine: a version of the model gives one answer for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from core.batch import Batch, Label
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from tests.core.streams import N_FEATURES, blob

PROBES = torch.cat([blob(1, 5, 77), blob(2, 5, 78), blob(3, 5, 79), torch.rand(5, N_FEATURES)])

CLASSES: tuple[Label, ...] = (1, 2)
"""What the streams' samples are; there is a third that comes without a label."""


def answers_of(engine: Engine, state: EngineState) -> dict[str, Tensor]:
    """All that a snapshot says of a few samples."""
    snapshot = engine.snapshot(state)
    scored, by_c = snapshot.outliers(PROBES), snapshot.outliers(PROBES, c=2.0)
    found = {
        "probabilities": snapshot.classify(PROBES).probabilities if snapshot.answers else None,
        "inliers": scored.inliers,
        "p-values": scored.p_values,
        "typicality": scored.typicality,
        "log-likelihoods": scored.log_likelihoods,
        "threshold": torch.tensor(by_c.threshold),
        "calibration": torch.tensor(scored.calibration),
    }
    return {name: value.clone() for name, value in found.items() if value is not None}


@cache
def labelled(step: int, n: int) -> Batch:
    """Every sample with its class."""
    labels = [CLASSES[row % 2] for row in range(n)]
    rows = [blob(int(label), 1, step * 1000 + row)[0] for row, label in enumerate(labels)]
    return Batch.of(torch.stack(rows), labels)


def awaiting(step: int, n: int) -> Batch:
    """Every sample awaits its label."""
    batch = labelled(step, n)
    ids = [f"{step}-{row}" for row in range(n)]
    return Batch.of(batch.features, [None] * n, ids)


def plain(step: int, n: int) -> Batch:
    """No labels, and none to come."""
    return Batch.of(labelled(step, n).features)


def strangers(step: int, n: int) -> Batch:
    """A class that nobody named, without a label."""
    return Batch.of(blob(3, n, step))


def one_stranger(step: int, n: int) -> Batch:
    """A batch of which a few are of a class that was never seen, labelled; the others wait."""
    batch = awaiting(step, n)
    labels = [3 if row < 12 else None for row in range(n)]
    features = torch.cat([blob(3, 12, step), batch.features[12:]])
    return Batch.of(features, labels, [None] * 12 + list(batch.sample_ids or ())[12:])


def mixed(step: int, n: int) -> Batch:
    """Some labelled, some awaiting their label, some neither."""
    batch = labelled(step, n)
    labels = [label if row % 3 == 0 else None for row, label in enumerate(batch.plain_labels)]
    ids = [f"{step}-{row}" if row % 3 == 1 else None for row in range(n)]
    return Batch.of(batch.features, labels, ids)


LIVES: dict[str, Callable[[int], Batch]] = {
    "all awaiting": lambda step: (labelled if step < 8 else awaiting)(step, 100),
    "few awaiting": lambda step: (labelled if step < 60 else awaiting)(step, 7),
    # Samples that wait are compared with the others' log-likelihoods before there are p-values.
    "early awaiting": lambda step: (labelled if step < 4 else awaiting)(step, 40),
    "unlabelled": lambda step: plain(step, 100),
    "mixed": lambda step: mixed(step, 60),
    "strangers": lambda step: (labelled if step < 8 or step % 3 else strangers)(step, 100),
    "a burst": lambda step: (one_stranger if step == 12 else labelled)(step, 100),
    "again": lambda step: labelled(step if step < 10 else step - 10, 100),
    "a change": lambda step: (labelled if step < 12 else strangers)(step, 100),
}


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_version_gives_one_answer_for_ever(preset: str, life: str) -> None:
    torch.manual_seed(0)
    engine = Engine(EngineConfig(preset=preset, n_components=12, experts=preset == "mfa"))
    state = engine.start()
    known: dict[int, dict[str, Tensor]] = {}

    def look(after: str) -> None:
        version, found = state.model.version, answers_of(engine, state)
        before = known.setdefault(version, found)
        moved = [name for name in before if not torch.equal(before[name], found[name])]
        assert not moved, f"{', '.join(moved)} of version {version} moved by {after}"
        assert before.keys() == found.keys()

    for step in range(75 if life == "few awaiting" else 20):
        batch = LIVES[life](step)
        state, _ = engine.step(state, batch)
        if step < 3:
            continue
        look(f"batch {step}")
        ids = [id for id in batch.sample_ids or () if id is not None]
        if step % 4 == 3 and ids:
            state, _ = engine.label(state, ids[:3], [CLASSES[0]] * 3)
            look(f"labels of batch {step}")
        if step % 7 == 6:
            state, _ = engine.settle(state)
            look(f"settling after batch {step}")
    state, _ = engine.declare_boundary(state)
    look("a boundary")
