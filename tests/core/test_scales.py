"""Tests for the core.scales module: a model asked at several scales."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.calibration import Calibration
from core.checkpoint import dump, load
from core.config import PRESETS, EngineConfig
from core.density.factors import FactorMixture, covariances
from core.engine import Engine
from core.scales import FIRST, GROWTH, MOST_GROWTH, N_TRAITS, SIZES, SOFTNESS, Scales
from core.standardiser import Standardiser
from core.state import EngineState
from tests.core.states import assert_identical, play
from tests.core.streams import batches, blob

FLOOR = 0.05


def standardiser(shift: Tensor, scale: Tensor) -> Standardiser:
    zeros = torch.zeros(len(shift), dtype=torch.float64)
    return Standardiser(False, 0, 0, zeros, zeros, shift, scale)


def mixture(k: int, d: int, seed: int = 0) -> FactorMixture:
    generator = torch.Generator().manual_seed(seed)
    noise = FLOOR + torch.rand(k, d, generator=generator)
    return FactorMixture(
        torch.randn(k, generator=generator).log_softmax(0),
        2 * torch.randn(k, d, generator=generator),
        torch.randn(k, d, 2, generator=generator),
        noise,
    )


def scales_of(k: int = 20, d: int = 5, seed: int = 0) -> Scales:
    units = standardiser(torch.zeros(d), torch.ones(d))
    return Scales.of(mixture(k, d, seed), FLOOR, units, 0, 1000)


def test_traits_are_those_of_covariances_written_out() -> None:
    scales = scales_of()
    x = 2 * torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
    found = scales.traits(x, standardiser(torch.zeros(5), torch.ones(5)))
    assert scales.sizes == SIZES
    assert found.shape == (30, N_TRAITS)
    begin = 0
    for column, size in enumerate(scales.sizes):
        level = FactorMixture(*(part[begin : begin + size] for part in scales.mixture))
        apart = x[:, None] - level.means
        inverse = covariances(level).double().inverse().float()
        distance = torch.einsum("nkd,kde,nke->nk", apart, inverse, apart)
        expected = (level.log_weights - distance / (2 * SOFTNESS)).logsumexp(1)
        torch.testing.assert_close(found[:, column], expected, rtol=1e-3, atol=1e-3)
        if not begin:
            deviation = covariances(level).diagonal(dim1=1, dim2=2).sqrt()
            law = torch.distributions.Normal(level.means, deviation)
            each = (level.log_weights[:, None] + law.log_prob(x[:, None])).logsumexp(1)
            torch.testing.assert_close(found[:, -1], each.sum(1), rtol=1e-3, atol=1e-3)
        begin += size


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.floats(0.01, 100), min_size=5, max_size=5),
    st.lists(st.floats(-100, 100), min_size=5, max_size=5),
)
def test_samples_in_other_units_say_the_same(factors: list[float], offsets: list[float]) -> None:
    """The scale of the features goes on following the data after the scales were made."""
    scales = scales_of()
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(2))
    factor, offset = torch.tensor(factors), torch.tensor(offsets)
    later = standardiser(offset, factor)
    expected = scales.traits(x, standardiser(torch.zeros(5), torch.ones(5)))
    found = scales.traits((x - offset) / factor, later)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


def test_fewer_components_than_a_scale_has_are_all_there_is() -> None:
    scales = scales_of(k=3)
    assert scales.sizes == (3, 3, 1)
    assert scales.components == (3, 3, 1, 3)


def test_they_are_made_again_when_a_sub_task_has_grown_or_begins() -> None:
    scales = replace(scales_of(), sub_task=2, samples=1000)
    assert not scales.due(2, int(GROWTH * 1000) - 1)
    assert scales.due(2, int(GROWTH * 1000))
    assert scales.due(3, 1)
    late = replace(scales, samples=1_000_000)
    assert late.due(2, 1_000_000 + MOST_GROWTH)
    early = replace(scales, samples=1)
    assert not early.due(2, FIRST - 1)


@pytest.mark.parametrize("d", [5, 70])
def test_they_survive_writing(d: int) -> None:
    scales = scales_of(d=d)
    again = Scales.read(scales.tensors(), scales.facts())
    x = torch.randn(9, d, generator=torch.Generator().manual_seed(3))
    units = standardiser(torch.zeros(d), torch.ones(d))
    assert torch.equal(again.traits(x, units), scales.traits(x, units))
    assert again.components == scales.components
    with pytest.raises(ValueError, match="components"):
        Scales.read(scales.tensors(), {**scales.facts(), "sizes": [1]})


# Through an engine ------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_them_but_for_mixtures_of_patches(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=4, detector="none"))
    state, _ = play(engine, engine.start(), list(batches([0, 1], 12)))
    assert (state.scales is None) == (preset == "dcgmm")
    again, _, _ = load(dump(state, engine.config, {}))
    assert_identical(again.scales, state.scales)
    more = list(batches([0, 1], 8, seed=3))
    one, _ = play(engine, state, more)
    other, _ = play(engine, again, more)
    assert_identical(one.scales, other.scales)
    assert_identical(one.calibration, other.calibration)


def test_a_checkpoint_without_them_gains_them_and_calibrates_afresh() -> None:
    engine = Engine(EngineConfig(n_components=4, detector="none"))
    state, _ = play(engine, engine.start(), list(batches([0], 12)))
    rows = state.calibration.current[0]
    single = replace(rows, rows=torch.cat([rows.rows[:, :1], rows.rows[:, 1 + N_TRAITS :]], 1))
    old = replace(state, scales=None, calibration=Calibration(current=(single,)))
    before = engine.snapshot(old).outliers(blob(0, 5, seed=1))
    assert before.calibration == len(single)
    assert before.p_values is not None
    later, _ = play(engine, old, list(batches([0], 5, seed=2)))
    after = engine.snapshot(later).outliers(blob(0, 5, seed=1))
    assert 0 < after.calibration < before.calibration
    assert after.p_values is not None


def grouped(seed: int) -> tuple[Tensor, Tensor]:
    """Three wide clusters, a tighter group of outliers, one sample in sixteen; which are these."""
    generator = torch.Generator().manual_seed(seed)
    centres = 1.2 * torch.randn(3, 16, generator=generator)
    usual = centres[torch.arange(2400) % 3] + torch.randn(2400, 16, generator=generator)
    away = 1.56 * torch.randn(1, 16, generator=generator)
    strange = away + 0.5 * torch.randn(160, 16, generator=generator)
    x = torch.cat([usual, strange])
    order = torch.randperm(len(x), generator=generator)
    return x[order], (torch.arange(len(x)) >= len(usual))[order]


def learned(x: Tensor) -> tuple[Engine, EngineState]:
    engine = Engine(EngineConfig(detector="none"))
    state = engine.start()
    for batch in torch.split(x, 100):
        state, _ = engine.step(state, Batch(batch))
    return engine, engine.settle(state)[0]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_group_of_outliers_that_was_learned_is_strange_from_further_away(seed: int) -> None:
    x, strange = grouped(seed)
    engine, state = learned(x)
    answer = engine.snapshot(state).outliers(x)
    assert answer.typicality is not None
    assert answer.scales is not None

    def beaten(scores: Tensor) -> float:
        return float((scores[~strange][:, None] > scores[strange]).double().mean())

    assert beaten(answer.log_likelihoods) < 0.8  # components of its own make it dense
    assert beaten(answer.typicality) > 0.94
    n_components = engine.learner.n_components(state.learner)
    assert set(answer.scales.tolist()) <= {n_components, *SIZES}
    assert float((answer.scales[strange] < n_components).double().mean()) > 0.25


def test_images_are_asked_by_all_components_alone() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, image="4,4"))
    state, _ = play(engine, engine.start(), list(batches([0, 1], 12)))
    assert state.scales is None
    answer = engine.snapshot(state).outliers(blob(0, 50, 9))
    assert answer.scales is not None
    assert answer.scales.unique().tolist() == [engine.learner.n_components(state.learner)]
