"""The same numbers are the same model and the same answers, wherever in memory they are read to."""

from __future__ import annotations

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from tests.core.states import assert_identical


def at(place: int, x: torch.Tensor) -> torch.Tensor:
    """The same samples, that many bytes behind a place where memory of torch's begins."""
    size = x.numel() * x.element_size()
    room = torch.empty(size + 128, dtype=torch.uint8)
    begin = -room.data_ptr() % 64 + place
    moved = room[begin : begin + size].view(x.dtype).view(x.shape)
    return moved.copy_(x)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("place", [8, 56])
def test_samples_may_lie_anywhere(preset: str, place: int) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(400, 35, generator=generator)
    y = torch.randint(0, 3, (400,), generator=generator).tolist()
    engine = Engine(EngineConfig(preset=preset, n_components=20, window=200, warm_up=200))
    one, other = engine.start(), engine.start()
    for first in range(0, 400, 50):
        part, labels = x[first : first + 50].clone(), y[first : first + 50]
        one, events = engine.step(one, Batch.of(part, labels, images=True))
        other, moved = engine.step(other, Batch.of(at(place, part), labels, images=True))
        assert moved == events
    assert_identical(other, one)
    asked = x[:30].clone()
    answer = engine.snapshot(one).classify(asked, p_values=True)
    again = engine.snapshot(one).classify(at(place, asked), p_values=True)
    assert torch.equal(answer.probabilities, again.probabilities)
    assert torch.equal(answer.log_likelihoods, again.log_likelihoods)
