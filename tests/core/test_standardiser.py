"""Tests for the core.standardiser module."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.config import EngineConfig
from core.learners.per_class.flat import FlatLearner
from core.standardiser import CLIP, SETTLING_SAMPLES, Standardiser, strays

CPU = torch.device("cpu")


def normal(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def uniform(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed))


def learned(x: Tensor, cuts: list[int]) -> Standardiser:
    """What the engine does: choose by the first batch, then observe every batch."""
    batches = x.tensor_split(cuts)
    standardiser = Standardiser.of(batches[0])
    for batch in batches:
        standardiser = standardiser.observed(batch).refitted()
    return standardiser


# Which scale ------------------------------------------------------------------------------


def test_images_that_fill_the_unit_interval_are_left_as_they_are() -> None:
    x = uniform(50, 4)
    standardiser = Standardiser.of(x, images=True)
    assert standardiser.identity
    assert torch.equal(standardiser.apply(x), x)
    assert torch.equal(standardiser.invert(x), x)
    assert standardiser.log_volume == 0


@pytest.mark.parametrize(
    "x",
    [
        uniform(50, 4) * 2,  # outside
        uniform(50, 4) - 0.5,
        uniform(50, 4) * 0.01 + 0.3,  # inside, but in a corner of it
        torch.full((50, 4), 0.5),
    ],
    ids=["too large", "negative", "a narrow band", "constant"],
)
def test_images_that_do_not_are_standardised(x: Tensor) -> None:
    assert not Standardiser.of(x, images=True).identity


def test_a_table_is_standardised_even_where_it_fills_the_unit_interval() -> None:
    assert not Standardiser.of(uniform(50, 4)).identity


def test_after_the_first_batch_its_features_have_mean_zero_and_deviation_one() -> None:
    x = normal(200, 3) * torch.tensor([1e-3, 1.0, 1e6]) + torch.tensor([5.0, -2.0, 3e7])
    standardised = Standardiser.of(x).apply(x)
    assert torch.allclose(standardised.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(standardised.std(0, correction=0), torch.ones(3), atol=1e-3)


def test_early_samples_outside_the_unit_interval_end_the_identity_and_late_ones_do_not() -> None:
    early = Standardiser.of(uniform(50, 2), images=True)
    assert not early.without_unit_range(normal(50, 2)).identity
    assert early.without_unit_range(uniform(50, 2, seed=1)).identity
    late = early.observed(uniform(SETTLING_SAMPLES, 2))
    assert late.without_unit_range(normal(50, 2)).identity


# Moments ----------------------------------------------------------------------------------


@given(
    cuts=st.lists(st.integers(1, 199), max_size=12, unique=True).map(sorted),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e12]),
    offset=st.sampled_from([0.0, 1.0, -1e3]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_running_moments_are_those_of_all_samples_however_they_are_cut(
    cuts: list[int], scale: float, offset: float
) -> None:
    x = (normal(200, 3) + offset) * scale
    standardiser = learned(x, cuts)
    values = x.double().numpy()
    assert standardiser.samples == standardiser.fresh == 200
    np.testing.assert_allclose(standardiser.mean.numpy(), values.mean(0), rtol=1e-9)
    variance = standardiser.squares.numpy() / 200
    np.testing.assert_allclose(variance, values.var(0), rtol=1e-6)
    np.testing.assert_allclose(standardiser.scale.numpy(), values.std(0), rtol=1e-5)
    np.testing.assert_allclose(standardiser.shift.numpy(), values.mean(0), rtol=1e-5)


def test_the_first_batch_is_not_counted_before_it_is_learned() -> None:
    assert Standardiser.of(normal(50, 2)).samples == 0


def test_it_follows_the_data_for_a_while_and_then_rests() -> None:
    standardiser = Standardiser.of(normal(10, 2))
    assert standardiser.settling
    assert standardiser.observed(normal(SETTLING_SAMPLES - 1, 2)).settling
    assert not standardiser.observed(normal(SETTLING_SAMPLES, 2)).settling


def test_at_a_boundary_the_past_counts_no_more_than_what_settles_a_sub_task() -> None:
    known = Standardiser.of(normal(10, 1)).observed(normal(50_000, 1)).refitted()
    discounted = known.discounted()
    assert discounted.settling
    assert discounted.samples == SETTLING_SAMPLES
    # The variance is the old one, the memory shorter.
    assert discounted.refitted().scale.item() == pytest.approx(known.scale.item(), rel=1e-6)
    moved = discounted.observed(normal(SETTLING_SAMPLES, 1) + 10).refitted()
    assert moved.shift.item() == pytest.approx(5, abs=0.2)


# Strays -----------------------------------------------------------------------------------


def moments_of(*batches: Tensor) -> Standardiser:
    standardiser = Standardiser.of(batches[0])
    for batch in batches:
        standardiser = standardiser.observed(batch).refitted()
    return standardiser


def with_strays(x: Tensor, value: float, every: int) -> Tensor:
    x = x.clone()
    x.view(-1)[every // 2 :: every] = value
    return x


@pytest.mark.parametrize("size", [1, 10, 100, 1000])
@pytest.mark.parametrize("value", [-999.0, 1e6, 3e38])
def test_a_value_that_stands_for_nothing_sets_no_scale(size: int, value: float) -> None:
    x = with_strays(normal(2000, 4) * 2 + 5, value, every=1003)
    standardiser = moments_of(*x.split(size))
    assert (standardiser.scale < 2 * 2).all()
    assert (standardiser.scale > 2 * 0.9).all()
    assert (standardiser.shift - 5).abs().max() < 1


@pytest.mark.parametrize("size", [10, 100, 1000])
@pytest.mark.parametrize("share", [0.01, 0.03])
def test_strays_that_keep_coming_do_not_make_a_scale_grow(size: int, share: float) -> None:
    rows = torch.rand(8000, generator=torch.Generator().manual_seed(1)) < share
    x = torch.where(rows[:, None], 1e4 * normal(8000, 4, seed=2), normal(8000, 4) * 2 + 5)
    standardiser = moments_of(*x.split(size))
    assert (standardiser.scale < 2 * 1.5).all()
    assert (standardiser.scale > 2 * 0.9).all()
    assert (standardiser.shift - 5).abs().max() < 1


@pytest.mark.parametrize("strays", [1, 2, 100])
@pytest.mark.parametrize("size", [10, 100])
def test_where_the_first_samples_were_strays_later_ones_take_their_place(
    strays: int, size: int
) -> None:
    first = normal(strays, 3, seed=9) * 1e4 + 7e4
    standardiser = moments_of(first, *normal(1000, 3).split(size))
    assert (standardiser.scale < 1.2).all()
    assert standardiser.samples == 1000 + strays


@pytest.mark.parametrize("size", [1, 10, 100])
def test_a_feature_that_moves_far_at_a_boundary_is_followed(size: int) -> None:
    known = moments_of(*normal(5000, 2).split(100)).discounted()
    moved = known
    for batch in (normal(1000, 2, seed=1) + 500).split(size):
        moved = moved.observed(batch)
    plain = torch.cat([normal(1000, 2, seed=2), normal(1000, 2, seed=1) + 500]).double()
    assert (moved.mean - plain.mean(0)).abs().max() < 25
    assert ((moved.squares / moved.samples).sqrt() / plain.std(0)).log().abs().max() < 0.2


@given(rare=st.integers(15, 50))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_a_rare_kind_far_away_is_no_stray(rare: int) -> None:
    x = normal(1000, 2)
    kind = torch.arange(1000) % 100 < rare
    x[kind] += 300
    standardiser = moments_of(
        *x[torch.randperm(1000, generator=torch.Generator().manual_seed(rare))].split(100)
    )
    assert (standardiser.scale / x.std(0)).log().abs().max() < 0.1


def test_what_was_wide_for_long_stays_wide() -> None:
    wide = moments_of(*(normal(300, 2) * 1e4).split(100))
    later = wide.observed(normal(100, 2, seed=1)).refitted()
    assert (later.scale > 5e3).all()


@given(st.sampled_from([1e-6, 0.25, 1024.0]), st.integers(1, 300))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_strays_are_the_same_in_any_units(unit: float, size: int) -> None:
    x = with_strays(normal(900, 3), -999.0, every=400)
    plain, scaled = moments_of(*x.split(size)), moments_of(*(x * unit).split(size))
    torch.testing.assert_close(scaled.scale, plain.scale * unit, rtol=1e-4, atol=0)


def test_samples_far_out_are_strays_while_they_are_few() -> None:
    x = normal(100, 3)
    assert strays(x) is None
    assert strays(x[:0]) is None
    x[7, 1], x[50, 2] = 11.0, -300.0
    found = strays(x)
    assert found is not None
    assert found.nonzero()[:, 0].tolist() == [7, 50]
    # Where many are far out, that is where the samples are; and some must be left.
    assert strays(torch.cat([x, normal(12, 3) + 30])) is None
    assert strays(x[50:51]) is None
    assert strays(x[50:52]) is not None


# Edges ------------------------------------------------------------------------------------


def test_a_constant_feature_gets_the_usual_scale_of_the_others_or_a_tenth_of_its_size() -> None:
    x = normal(500, 3) * torch.tensor([10.0, 20.0, 40.0])
    x = torch.cat([x, torch.tensor([7.0, 1e6, 0.0]).expand(500, 3)], 1)
    standardiser = Standardiser.of(x)
    expected = torch.stack([torch.tensor(0.7), standardiser.scale[1], torch.tensor(1.0)])
    torch.testing.assert_close(standardiser.scale[3:], expected)
    assert torch.equal(standardiser.apply(x)[:, 3:], torch.zeros(500, 3))
    small = Standardiser.of(x[:, [0, 5]] / 100)
    assert small.scale[1] == small.scale[0]


def test_a_single_sample_and_equal_samples_get_a_scale_of_one() -> None:
    for x in (torch.tensor([[5.0, -3e7]]), torch.full((9, 2), 1e6)):
        standardiser = Standardiser.of(x)
        assert torch.equal(standardiser.scale, torch.ones(2))
        assert torch.equal(standardiser.apply(x), torch.zeros_like(x))


@pytest.mark.parametrize("value", [1e30, -1e30, 3.4e38])
def test_a_broken_sensor_is_cut_off_instead_of_overflowing(value: float) -> None:
    image = Standardiser.of(uniform(100, 2), images=True)
    for standardiser in (Standardiser.of(normal(100, 2)), image):
        x = torch.tensor([[value, 0.5]])
        standardised = standardiser.apply(x)
        assert abs(standardised[0, 0].item()) == CLIP
        assert standardised.square().isfinite().all()


def test_what_is_inverted_stays_a_number_even_at_the_end_of_the_range() -> None:
    huge = Standardiser.of((uniform(100, 2) - 0.5) * 3e38)
    assert not huge.identity
    assert huge.invert(torch.tensor([[1000.0, -1000.0]])).isfinite().all()


@given(st.integers(0, 10_000), st.sampled_from([1e-25, 1e-3, 1.0, 1e4, 1e25]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_inverting_undoes_applying(seed: int, scale: float) -> None:
    x = normal(20, 3, seed) * scale
    standardiser = Standardiser.of(x)
    back = standardiser.invert(standardiser.apply(x))
    torch.testing.assert_close(back / scale, x / scale, rtol=1e-4, atol=1e-5)


def test_features_with_a_scale_of_their_own_do_not_count_as_constant_for_being_small() -> None:
    x = normal(100, 2) * 1e-15
    assert not Standardiser.of(x).apply(x).eq(0).any()


def test_a_change_of_units_is_finite_whatever_the_units() -> None:
    small, large = Standardiser.of(normal(50, 2) * 1e-28), Standardiser.of(normal(50, 2) * 1e37)
    for new, old in ((small, large), (large, small)):
        factor, offset = new.change_from(old)
        assert factor.isfinite().all()
        assert (factor > 0).all()
        assert offset.isfinite().all()


def test_scales_are_the_same_where_samples_come_out_the_same() -> None:
    one = Standardiser.of(normal(50, 3, 0) * 9)
    assert one.same_scale(replace(one, samples=7, scale=one.scale.clone()))
    assert not one.same_scale(replace(one, shift=one.shift + 1))
    assert not one.same_scale(replace(one, identity=True))
    kept = replace(one, identity=True)
    assert kept.same_scale(replace(kept, shift=one.shift + 1))


# With a learner ---------------------------------------------------------------------------


@given(seed=st.integers(0, 1000), grown=st.sampled_from([0.1, 1.0, 3.0, 50.0]))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_log_likelihoods_in_the_senders_units_do_not_depend_on_the_scale(
    seed: int, grown: float
) -> None:
    """Rescaling the model is exact where no variance is at its floor."""
    learner = FlatLearner(EngineConfig(n_components=3, variance_floor=1e-9))
    x = normal(300, 4, seed) * torch.tensor([0.1, 1.0, 10.0, 1e4]) + 2
    old = Standardiser.of(x).observed(x)
    generator = torch.Generator().manual_seed(seed)
    codes = torch.full((300,), -1)
    state, _ = learner.learn(learner.start(4, CPU), old.apply(x), codes, None, generator)
    new = old.observed(normal(100, 4, seed + 1) * grown * 10 - grown).refitted()
    assert not torch.equal(new.scale, old.scale)

    before = learner.score(state, old.apply(x))
    after = learner.score(learner.rescale(state, *new.change_from(old)), new.apply(x))
    assert before is not None
    assert after is not None
    torch.testing.assert_close(
        before.log_likelihood - old.log_volume,
        after.log_likelihood - new.log_volume,
        rtol=1e-4,
        atol=2e-2,
    )


def test_far_values_are_pulled_in_and_others_stay_what_they_are() -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) + 3.0
    standardiser = Standardiser.of(x, images=False)
    assert standardiser.within_reach(x) is x
    wild = x.clone()
    wild[7, 1], wild[9, 0] = 1e9, -999.0
    near = standardiser.within_reach(wild)
    assert torch.equal(near == wild, wild == x)
    away = (near - x.mean(0)).abs()
    assert away.max() < 21 * x.std(0).max()
    assert torch.equal(standardiser.within_reach(wild, standardiser.apply(wild)), near)
