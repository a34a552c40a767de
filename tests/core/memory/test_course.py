"""Tests for core.memory.course: a stream that moves on, and one that has come to rest."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from scipy.stats import t
from torch import Tensor

from core.memory.course import BLOCK, MOST_BLOCKS, Course, critical, trend

D = 12


def noise(n: int, seed: int, scale: Tensor | float = 1.0) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed)) * scale


def walked(x: Tensor, size: int = 100) -> Course:
    course, end = Course(), 0
    for part in x.split(size):
        end += len(part)
        course = course.observed(part, end)
    return course


def ramp(n: int, seed: int, pace: float = 1 / 1000) -> Tensor:
    """One feature rises steadily."""
    x = noise(n, seed)
    x[:, 3] += pace * torch.arange(n)
    return x


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [10, 100, 250])
def test_a_ramp_that_goes_on_continues(seed: int, size: int) -> None:
    x = ramp(2200, seed)
    found = walked(x[:2000], size).continuation(x[2000:], 2000)
    assert found is not None
    assert found.p_value < 0.05
    assert found.moved > 0.6


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [0.5, 2.0])
def test_a_second_step_after_a_rest_is_a_change_of_its_own(seed: int, step: float) -> None:
    later = noise(200, seed + 100)
    later[:, 3] += step
    assert walked(noise(2000, seed)).continuation(later, 2000) is None


def test_a_change_in_another_direction_than_that_of_the_ramp_is_one_of_its_own() -> None:
    x = ramp(2000, 0)
    later = ramp(2200, 1)[2000:]
    later[:, 8] += 3
    assert walked(x).continuation(later, 2000) is None
    # Nor is a return to where the ramp began more of it.
    assert walked(x).continuation(noise(200, 1), 2000) is None


def test_a_step_after_a_ramp_that_has_ended_is_a_change_of_its_own() -> None:
    still = noise(2000, 1)
    still[:, 3] += 1
    later = noise(200, 2)
    later[:, 3] += 3
    course = walked(torch.cat([ramp(1000, 0), still]))
    assert course.continuation(later, 3000) is None


@pytest.mark.parametrize("pace", [1 / 2000, 1 / 1000, 1 / 500])
def test_a_ramp_that_begins_after_a_rest_is_a_change_of_its_own(pace: float) -> None:
    seeds = range(20)
    taken = 0
    for seed in seeds:
        x = torch.cat([noise(2000, 1000 + seed), ramp(1200, seed, pace)])
        taken += walked(x[:3000]).continuation(x[3000:], 3000) is not None
    # By chance a stream at rest rises as steadily in one of five.
    assert taken <= 7
    goes_on = [ramp(2200, seed, pace) for seed in seeds]
    kept = [walked(x[:2000]).continuation(x[2000:], 2000) for x in goes_on]
    assert sum(one is not None for one in kept) >= 19


def test_samples_of_the_change_itself_are_no_movement_before_it() -> None:
    """The estimate of its start may be late by up to a block."""
    x = noise(2000, 0)
    x[1930:, 3] += 3
    later = noise(100, 1)
    later[:, 3] += 3
    assert walked(x).continuation(later, 2000) is None


def test_while_little_is_known_nothing_continues() -> None:
    x = ramp(2200, 0)
    assert Course().continuation(x, 0) is None
    assert walked(x[:300]).continuation(x[300:], 300) is None
    assert walked(x[:2000]).continuation(x[:3], 2000) is None
    constant = torch.ones(2000, D)
    assert walked(constant).continuation(constant[:50], 2000) is None


@settings(max_examples=30, deadline=None)
@given(
    scale=st.lists(st.sampled_from([1e-3, 1.0, 1e4]), min_size=D, max_size=D),
    offset=st.sampled_from([0.0, -5.0, 1e3]),
)
def test_other_units_change_nothing(scale: list[float], offset: float) -> None:
    units = torch.tensor(scale, dtype=torch.float64)
    x = ramp(2200, 0).double()
    plain = walked(x[:2000]).continuation(x[2000:], 2000)
    other = x * units + offset * units
    found = walked(other[:2000]).continuation(other[2000:], 2000)
    assert plain is not None
    assert found is not None
    assert found.p_value == plain.p_value
    assert found.moved == pytest.approx(plain.moved, rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_what_is_kept_is_bounded_and_counts_every_sample(size: int) -> None:
    x = noise(20_000 if size > 1 else 4000, 0)
    course = walked(x, size)
    assert course.sums is not None
    assert course.sizes is not None
    assert course.ends is not None
    assert course.origin is not None
    assert len(course.sums) == len(course.sizes) == len(course.ends) <= MOST_BLOCKS
    assert float(course.sizes.sum()) == float(course.ends[-1]) == len(x)
    # Every block but the last is a mean of many samples.
    assert bool((course.sizes[:-1] >= min(BLOCK, course.width)).all())
    total = course.sums.sum(0) + len(x) * course.origin
    assert torch.allclose(total, x.double().sum(0), atol=1e-6)


def test_the_trend_is_that_of_all_orders_of_five_numbers() -> None:
    """The normal approximation against the exact distribution of Kendall's S."""
    orders = [torch.tensor(order).double() for order in itertools.permutations(range(5))]
    risen = sum(trend(order) <= trend(torch.tensor([0.0, 1, 2, 4, 3])) for order in orders)
    assert trend(torch.tensor([0.0, 1, 2, 4, 3])) == pytest.approx(risen / 120, abs=0.01)
    assert trend(torch.arange(5.0)) < trend(torch.tensor([0.0, 1, 2, 4, 3]))
    assert trend(torch.ones(9)) == 0.5
    assert trend(torch.ones(1)) == 1


# What has changed -------------------------------------------------------------------------


def test_features_that_have_not_changed_are_said_to_have_as_rarely_as_asked() -> None:
    course = walked(noise(2000, 0))
    for by_chance in (0.5, 0.1):
        found = [course.changed(noise(150, seed), by_chance) for seed in range(1, 301)]
        some = sum(bool(one.any()) for one in found if one is not None)
        # Bonferroni asks for no more than that; 3 binomial deviations are allowed for.
        assert 0.2 * by_chance * 300 < some < (by_chance + 3 * (by_chance / 300) ** 0.5) * 300


@seeded(0)  # the same examples, whatever the text of the test
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    share=st.floats(0.005, 0.5),
    size=st.integers(10, 400),
    before=st.integers(200, 3000),
    kinds=st.integers(2, 4),
)
@example(share=0.05, size=12, before=2000, kinds=2)
@example(share=0.05, size=34, before=2000, kinds=3)
@example(share=0.01, size=120, before=500, kinds=2)
def test_features_of_few_values_are_named_as_rarely_as_asked(
    share: float, size: int, before: int, kinds: int
) -> None:
    """A rare category that is absent from a few samples by chance has not changed."""
    trials, by_chance = 300, 0.05
    generator = torch.Generator().manual_seed(1000 * size + before)

    def drawn(n: int) -> Tensor:
        rare = torch.rand(n, 1, generator=generator) < share
        return rare * torch.randint(1, kinds, (n, 1), generator=generator).float()

    drawings = [(drawn(before), drawn(size)) for _ in range(trials)]
    known, later = (torch.cat(part, 1) for part in zip(*drawings, strict=True))
    # Each feature is a trial, and asked about as if there were no other.
    found = walked(known, before).changed(later, by_chance * trials)
    assert found is not None
    some = int(found.count_nonzero())
    assert some < (by_chance + 3 * (by_chance / trials) ** 0.5) * trials


@pytest.mark.parametrize("place", [0.0, 0.5, -2.0])
@pytest.mark.parametrize("digits", [1, 6])
def test_a_sensor_that_sticks_is_found_wherever_it_does(place: float, digits: int) -> None:
    course = walked(noise(2000, 0).round(decimals=digits))
    later = noise(20, 1).round(decimals=digits)
    later[:, 4] = place
    changed = course.changed(later, 0.01)
    assert changed is not None
    assert changed.nonzero()[:, 0].tolist() == [4]


def test_a_category_that_lasts_is_found_and_one_that_never_came_before() -> None:
    generator = torch.Generator().manual_seed(0)
    x, later = torch.zeros(2000, 3), torch.zeros(60, 3)
    x[:, 0] = (torch.rand(2000, generator=generator) < 0.3).float()
    later[30:, 1] = 1.0
    x[:, 2] = later[:, 2] = 501325.1  # no float32
    changed = walked(x).changed(later, 0.01)
    assert changed is not None
    assert changed.nonzero()[:, 0].tolist() == [0, 1]


def test_a_course_of_an_earlier_release_knows_of_no_equal_values() -> None:
    course = replace(walked(noise(2000, 0)), ties=None, pairs=0.0)
    later = noise(20, 1)
    later[:, 4] = 2.0
    changed = course.changed(later, 0.01)
    assert changed is not None
    assert changed.nonzero()[:, 0].tolist() == [4]
    more = course.observed(noise(100, 2), 2100)
    assert more.ties is not None
    assert more.pairs > 0


@pytest.mark.parametrize("tail", [1.0, 3.0])
def test_a_feature_with_another_mean_or_variance_is_found(tail: float) -> None:
    def drawn(n: int, seed: int) -> Tensor:
        return noise(n, seed).sign() * noise(n, seed).abs() ** tail

    course = walked(drawn(2000, 0))
    later = drawn(300, 1)
    later[:, 2] += 1.5 * later[:, 2].std()
    later[:, 6] *= 0.01
    changed = course.changed(later, 0.01)
    assert changed is not None
    assert changed.nonzero()[:, 0].tolist() == [2, 6]


def test_readings_that_depend_on_each_other_are_worth_fewer() -> None:
    def slow(n: int, seed: int) -> Tensor:
        x = noise(n, seed)
        for i in range(1, n):
            x[i] = 0.9 * x[i - 1] + (1 - 0.81) ** 0.5 * x[i]
        return x

    course = walked(slow(3000, 0))
    found = [course.changed(slow(200, seed), 0.01) for seed in range(1, 21)]
    assert sum(bool(one.any()) for one in found if one is not None) <= 4


def test_of_a_handful_nothing_is_said() -> None:
    assert Course().changed(noise(100, 0), 0.01) is None
    assert walked(noise(2000, 0)).changed(noise(9, 1), 0.01) is None


@settings(max_examples=50, deadline=None)
@given(p_value=st.floats(1e-6, 0.5), freedom=st.floats(8, 1e6))
def test_critical_values_are_those_of_students_t(p_value: float, freedom: float) -> None:
    assert critical(p_value, freedom) == pytest.approx(t.isf(p_value / 2, freedom), rel=0.03)
