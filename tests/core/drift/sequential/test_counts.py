"""Tests for core.drift.sequential.counts: bins of ranks where many samples are equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Batch
from core.config import EngineConfig
from core.drift.sequential.counts import EDGES, edges_between
from core.engine.engine import Engine
from core.events import BoundaryDetected, PriorShift

alike = st.dictionaries(st.integers(-1000, 1000), st.integers(3, 40), min_size=1, max_size=8)


@given(alike)
def test_edges_leave_equals_together_though_their_last_digits_differ(
    groups: dict[int, int],
) -> None:
    values = np.repeat(np.array(list(groups), float), list(groups.values()))
    noise = np.random.default_rng(0).uniform(-1e-8, 1e-8, len(values)) * (1 + np.abs(values))

    edges = edges_between(values + noise)

    assert len(edges) == len(EDGES)
    assert np.isfinite(edges).all()
    assert (np.diff(edges) >= 0).all()
    bins = np.searchsorted(edges, values)
    assert np.array_equal(bins, np.searchsorted(edges, values - 2 * noise))
    # What is lower is in no higher bin, and each bin begins where its rank does, to a group.
    assert (np.diff(bins[values.argsort(kind="stable")]) >= 0).all()
    largest = max(groups.values()) / len(values)
    for number, rank in enumerate(EDGES):
        assert float((bins <= number).mean()) == pytest.approx(rank, abs=largest / 2 + 1e-9)


def test_where_hardly_any_are_equal_ranks_are_asked() -> None:
    values = np.random.default_rng(1).normal(size=1000)

    assert not len(edges_between(values))
    assert not len(edges_between(np.append(values, values[:10])))  # in pairs
    assert not len(edges_between(np.zeros(0)))


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("seed", [3, 6])
def test_a_table_of_yes_and_no_that_stays_as_it_is_has_no_boundary(
    seed: int, labelled: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(12_000, 4, generator=generator) < 0.3).float()
    labels = torch.randint(3, (len(x),), generator=generator).tolist() if labelled else None
    engine = Engine(EngineConfig(preset="flat", experts=False))
    state, told = engine.start(), []
    for start in range(0, len(x), 100):
        rows = slice(start, start + 100)
        state, events = engine.step(
            state, Batch.of(x[rows], None if labels is None else labels[rows])
        )
        told += [one for one in events if isinstance(one, BoundaryDetected | PriorShift)]
    assert state.watch.armed
    assert told == []


def test_a_change_of_a_table_of_yes_and_no_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    before = (torch.rand(5000, 4, generator=generator) < 0.3).float()
    after = (torch.rand(1500, 4, generator=generator) < 0.5).float()
    engine = Engine(EngineConfig(preset="flat"))
    state, found = engine.start(), []
    for batch in torch.cat([before, after]).split(100):
        state, events = engine.step(state, Batch(batch))
        found += [one.estimated_start_sample for one in events if isinstance(one, BoundaryDetected)]
    assert len(found) == 1
    assert found[0] == pytest.approx(5000, abs=150)
