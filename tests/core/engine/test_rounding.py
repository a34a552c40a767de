"""Tests for core.engine.rounding: an engine warns of what the cast to float32 loses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clients.rounding import COARSE
from clients.rounding import rounded_columns as rounded_by_clients
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.rounding import FEWEST_ROWS, MOST_ROWS, WIDTH, rounded_columns
from core.memory.coarse_features import FEWEST_STEPS
from core.precision import PrecisionLost

SECONDS = 1.8e9  # since 1970


def table(n: int = 100, seed: int = 0) -> Tensor:
    """Samples (n, 3) of float64, of which the second feature is a time within minutes."""
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[:, 1] = SECONDS + 40 * x[:, 1]
    return x


def taught(batches: list[Batch]) -> None:
    engine = Engine(EngineConfig(n_components=4))
    state = engine.start()
    for batch in batches:
        state, _ = engine.step(state, batch)


def test_an_engine_warns_once_where_the_batch_is_given(
    every_warning: list[warnings.WarningMessage],
) -> None:
    taught([Batch.of(table(seed=i)) for i in range(4)])
    [told] = every_warning
    assert told.category is PrecisionLost
    assert told.filename == __file__
    assert "Column 1 of the batch lies so far from zero" in str(told.message)
    assert "Subtract an offset" in str(told.message)


@pytest.mark.parametrize(
    "batch",
    [
        Batch.of(table().float()),
        Batch.of(table() - torch.tensor([0, SECONDS, 0])),
        Batch.of(table(FEWEST_ROWS - 1)),
        Batch.of(table().numpy().round()[:, [0, 2]].astype(np.int64)),
        Batch.of(2024 + table().round()[:, [0, 2]]),
        Batch.of(torch.rand(20, 4, 4, dtype=torch.float64)),
        Batch.of((255 * torch.rand(20, 4)).byte()),
    ],
    ids=["float32", "no offset", "few", "integers", "years", "images", "bytes"],
)
def test_nothing_is_said_of_usual_batches(
    every_warning: list[warnings.WarningMessage], batch: Batch
) -> None:
    taught([batch])
    assert every_warning == []


def test_integers_that_float32_does_not_hold_are_told(
    every_warning: list[warnings.WarningMessage],
) -> None:
    taught([Batch.of(table().numpy().round().astype(np.int64))])
    assert len(every_warning) == 1


def test_the_first_samples_of_a_stream_alone_are_looked_at(
    every_warning: list[warnings.WarningMessage],
) -> None:
    """So that a stream of float64 costs nothing later."""
    taught([Batch.of(table(MOST_ROWS).float()), Batch.of(table())])
    assert every_warning == []


def test_a_warning_made_an_error_leaves_the_state_whole() -> None:
    engine = Engine(EngineConfig(n_components=4))
    state = engine.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrecisionLost):
            engine.step(state, Batch.of(table()))
        after, _ = engine.step(state, Batch.of(table()))
    assert after.model.samples_seen == 100


def test_both_rules_ask_for_the_same_steps() -> None:
    assert pytest.approx(1 / (FEWEST_STEPS * WIDTH)) == COARSE


@given(
    st.floats(-3, 12).map(lambda power: 10**power),
    st.floats(-4, 6).map(lambda power: 10**power),
    st.integers(FEWEST_ROWS, 3000),
    st.booleans(),
)
def test_clients_and_engines_say_the_same(
    offset: float, deviation: float, n: int, negative: bool
) -> None:
    """By quantiles that differ a little, so that what is near the limit is left out."""
    x = torch.randn(n, 1, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    x = (-offset if negative else offset) + deviation * x
    spacing = float(np.spacing(np.float32(abs(x.median()))))
    if not 0.25 < FEWEST_STEPS * spacing / deviation < 4:
        assert tuple(rounded_columns(x)) == rounded_by_clients(x.numpy())
