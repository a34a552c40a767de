"""Tests for the benchmarks.gpu module: what it compares, on the CPU where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu
from benchmarks._images import images
from clients.http.errors import InputError


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="torch sees none"):
        gpu.measure(True, print)


def test_the_same_stream_twice_is_told_from_another_one() -> None:
    learned, asked = images("digits", 1200)
    first, again = (gpu.live("flat", gpu.CPU, learned, asked) for _ in range(2))
    assert first == again
    assert first.accuracy > 50
    other, _ = images("digits", 1200, seed=1)
    assert gpu.live("flat", gpu.CPU, other, asked).digest != first.digest


def test_steps_are_timed_by_their_second_half() -> None:
    learned, _ = images("digits", 600)
    taken, model = gpu.steps("flat", gpu.CPU, learned, 100)
    assert model.info.samples_seen == 600
    assert taken.rate == pytest.approx(1e5 / taken.mean_ms)
    assert (taken.kernels, taken.waits, taken.busy) == (0, 0, 0)
