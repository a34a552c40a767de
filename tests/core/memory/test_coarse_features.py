"""Tests for core.memory.coarse_features: what float32 is too coarse for, by what was learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.memory.coarse_features import FEWEST_STEPS, MOST_TOLD, coarse_features, spacing_at
from core.standardiser import FEWEST_TOLD, Standardiser

SECONDS = 1.8e9  # since 1970


def normal(n: int, d: int = 1) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def after(x: Tensor, *, images: bool = False) -> Standardiser:
    """What has seen samples as the engine does: as float32."""
    x = x.float()
    return Standardiser.of(x, images=images).observed(x).refitted()


@pytest.mark.parametrize(
    ("mean", "deviation", "coarse"),
    [
        (SECONDS, 40.0, True),
        (-SECONDS, 40.0, True),
        (SECONDS, 86_400.0, False),
        (1e5, 1.0, False),
        (1e5, 0.01, True),
        (0.0, 1e-20, False),
        (2024.0, 3.0, False),
        (SECONDS, 0.0, True),
        (5.3, 0.0, False),
        (2.0**24, 0.0, False),
    ],
)
def test_a_feature_is_coarse_by_its_mean_and_deviation(
    mean: float, deviation: float, coarse: bool
) -> None:
    plain = normal(500)
    x = torch.cat([plain, mean + deviation * plain, plain], dim=1)
    found = coarse_features(after(x))
    assert found is not None
    assert [row["feature"] for row in found] == ([1] if coarse else [])
    for row in found:
        assert row["mean"] == pytest.approx(mean, abs=max(deviation, float(spacing_at(x[0])[1])))
        assert row["spacing"] == np.spacing(np.float32(abs(mean)))
        assert row["deviation"] < FEWEST_STEPS * row["spacing"]
        assert (row["deviation"] == 0) == (deviation == 0)


@given(
    st.floats(1e-3, 1e6),
    st.floats(-1, 1).map(lambda power: 10 ** (8 * power)),
    st.booleans(),
)
def test_the_unit_of_a_feature_changes_nothing_and_only_an_offset_does(
    deviation: float, factor: float, negative: bool
) -> None:
    """By an affine map: a factor leaves the ratio of mean and deviation as it is."""
    x = deviation * normal(200)
    for steps, coarse in ((FEWEST_STEPS * 4, False), (FEWEST_STEPS / 4, True)):
        # So far from zero that a deviation is so many steps of float32, or up to twice as many.
        offset = deviation / steps * 2.0**23 * (-1 if negative else 1)
        found = coarse_features(after(factor * (x + offset)))
        assert found is not None
        assert bool(found) is coarse
    assert coarse_features(after(factor * x)) == []


def test_images_are_never_told() -> None:
    x = torch.rand(200, 16, generator=torch.Generator().manual_seed(0)).round()
    assert coarse_features(after(x, images=True)) == []
    far = after(normal(200) + SECONDS)
    assert coarse_features(far)
    assert coarse_features(far, images=True) == []


def test_nothing_is_known_before_there_are_samples() -> None:
    assert coarse_features(None) is None
    assert coarse_features(after(normal(FEWEST_TOLD - 1) + SECONDS)) is None
    assert coarse_features(after(normal(FEWEST_TOLD) + SECONDS))


def test_so_many_are_told_at_most_by_their_places() -> None:
    found = coarse_features(after(normal(50, MOST_TOLD + 20) + SECONDS))
    assert found is not None
    assert [row["feature"] for row in found] == [*range(MOST_TOLD)]


def test_an_engine_tells_it_however_samples_are_cut_into_batches() -> None:
    engine = Engine(EngineConfig(n_components=4))
    x = torch.cat([normal(200), SECONDS + 40 * normal(200)], dim=1).float()
    for sizes in ([200], [5] * 40):
        state = engine.start()
        for part in x.split(sizes):
            state, _ = engine.step(state, Batch.of(part))
        found = coarse_features(state.model.standardiser)
        assert found is not None
        assert [row["feature"] for row in found] == [1]


@pytest.mark.parametrize("value", [0.0, 1.0, 1.5, 1e-30, 2024.0, 1.8e9, 3e38])
def test_the_spacing_is_that_of_numpy(value: float) -> None:
    expected = np.spacing(np.float32(value))
    for sign in (1, -1):
        found = spacing_at(torch.tensor([sign * value], dtype=torch.float64)).item()
        assert found == (pytest.approx(expected) if value < 1e38 else expected / 2)
