"""Tests for the prequential accuracy of each class."""

from __future__ import annotations

import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.class_accuracy import MOST_CLASSES, by_class
from core.engine.engine import Engine
from core.events import BatchScored

D = 4


def blobs(codes: list[int], seed: int) -> torch.Tensor:
    noise = torch.randn(len(codes), D, generator=torch.Generator().manual_seed(seed))
    return torch.tensor(codes)[:, None] * 10.0 + noise


def test_the_most_frequent_classes_are_told_and_the_rest_left_out() -> None:
    n = MOST_CLASSES + 10
    codes = torch.cat([torch.arange(n), torch.arange(n - 5, n)])
    rows = by_class(codes, torch.ones(len(codes), dtype=torch.bool), range(n))
    assert len(rows) == MOST_CLASSES
    assert [row["label"] for row in rows[:5]] == list(range(n - 5, n))
    assert {row["samples"] for row in rows[5:]} == {1}
    assert by_class(codes[:0], torch.zeros(0, dtype=torch.bool), []) == []


def test_a_batch_tells_of_each_class_and_agrees_with_the_whole() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=8, detector="none"))
    state = engine.start()
    codes = [0, 1, 1] * 20
    for seed in range(4):
        state, _ = engine.step(state, Batch.of(blobs(codes, seed), [["a", 7][k] for k in codes]))
    # A class that the model takes for another: every label is swapped.
    mixed = [0] * 6 + [1] * 3
    swapped = [7] * 6 + ["a"] * 2 + [7]
    state, events = engine.step(state, Batch.of(blobs(mixed, 9), swapped))
    [told] = [event for event in events if isinstance(event, BatchScored)]
    assert told.class_accuracies == [
        {"label": 7, "samples": 7, "accuracy": 1 / 7},
        {"label": "a", "samples": 2, "accuracy": 0.0},
    ]
    assert told.prequential_accuracy == 1 / 9

    _, events = engine.step(state, Batch(blobs([0, 1, 1], 10)))
    [told] = [event for event in events if isinstance(event, BatchScored)]
    assert told.class_accuracies == []
