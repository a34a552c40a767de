"""Tests for the benchmarks.detection.measures module: every definition, on its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.detection.measures import Matching, Score, match, regret, run_time
from benchmarks.detection.stream import MIXED, Change, cut

N = 5000
sizes = st.sampled_from([1, 7, 100, 512, MIXED])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Change], list[int], int | None]:
    """Alarms at ends of batches, changes anywhere, and a horizon or none."""
    ends = cut(N, draw(sizes))[1:]
    alarms = sorted(draw(st.lists(st.sampled_from(ends), max_size=12, unique=True)))
    places = sorted(draw(st.lists(st.integers(1, N - 1), max_size=5, unique=True)))
    kinds = st.sampled_from(["abrupt", "burst"])
    changes = [Change(place, draw(kinds)) for place in places]
    return alarms, changes, ends, draw(st.none() | st.integers(1, N))


def abrupt(*samples: int) -> list[Change]:
    return [Change(sample, "abrupt") for sample in samples]


ENDS = list(range(100, 5001, 100))


@given(cases())
def test_every_alarm_finds_or_is_false_or_belongs_to_a_burst(
    case: tuple[list[int], list[Change], list[int], int | None],
) -> None:
    alarms, changes, ends, horizon = case
    matching = match(alarms, changes, ends, horizon)
    found = [changes[one.change].sample + one.delay_samples for one in matching.matches]
    assert sorted([*found, *matching.false, *matching.in_bursts]) == alarms
    assert len({one.change for one in matching.matches}) == len(matching.matches)
    assert len(matching.matches) <= matching.lasting <= len(changes)
    for one in matching.matches:
        assert changes[one.change].lasting
        assert one.delay_batches >= 1
        assert 1 <= one.delay_samples <= (horizon or N)


@given(cases())
def test_found_are_exactly_the_changes_with_an_alarm_before_the_next_and_the_horizon(
    case: tuple[list[int], list[Change], list[int], int | None],
) -> None:
    alarms, changes, ends, horizon = case
    expected = set()
    for index, change in enumerate(changes):
        last = changes[index + 1].sample if index + 1 < len(changes) else N
        last = min(last, change.sample + horizon) if horizon else last
        if change.lasting and any(change.sample < alarm <= last for alarm in alarms):
            expected.add(index)
    assert {one.change for one in match(alarms, changes, ends, horizon).matches} == expected


@given(cases())
def test_an_alarm_more_never_finds_less_and_one_less_is_never_more_false(
    case: tuple[list[int], list[Change], list[int], int | None],
) -> None:
    alarms, changes, ends, horizon = case
    whole = match(alarms, changes, ends, horizon)
    for left_out in alarms:
        fewer = match([one for one in alarms if one != left_out], changes, ends, horizon)
        assert len(fewer.matches) <= len(whole.matches)
        assert len(fewer.false) <= len(whole.false)


def test_the_first_batch_after_a_change_is_a_delay_of_one() -> None:
    (first,) = match([1100], abrupt(1000), ENDS).matches
    assert (first.delay_batches, first.delay_samples) == (1, 100)
    (third,) = match([1300], abrupt(1000), ENDS).matches
    assert (third.delay_batches, third.delay_samples) == (3, 300)


def test_a_batch_that_straddles_the_change_is_its_first() -> None:
    (one,) = match([1100], abrupt(1030), ENDS).matches
    assert (one.delay_batches, one.delay_samples) == (1, 70)


def test_an_alarm_that_ends_where_the_change_begins_is_too_early() -> None:
    matching = match([1000], abrupt(1000), ENDS)
    assert (matching.matches, matching.false) == ((), (1000,))


def test_a_second_alarm_for_the_same_change_is_false() -> None:
    assert match([1100, 1200], abrupt(1000), ENDS).false == (1200,)


def test_an_alarm_beyond_the_horizon_is_false() -> None:
    matching = match([1700], abrupt(1000), ENDS, horizon=600)
    assert (matching.matches, matching.false) == ((), (1700,))
    assert len(match([1600], abrupt(1000), ENDS, horizon=600).matches) == 1


def test_alarms_in_a_burst_are_counted_apart() -> None:
    changes = [Change(1000, "burst"), Change(2000, "abrupt")]
    matching = match([500, 1100, 1200, 2100], changes, ENDS)
    assert (matching.false, matching.in_bursts, matching.lasting) == ((500,), (1100, 1200), 1)


def test_scores_of_streams_are_pooled() -> None:
    good = match([1100], abrupt(1000), ENDS)
    bad = match([500, 1300], abrupt(1000, 2000), ENDS)
    score = Score.pooled([(good, 50, 5000), (bad, 50, 5000)])
    assert (score.streams, score.changes, score.found, score.false) == (2, 3, 2, 1)
    assert score.recall == pytest.approx(2 / 3)
    assert score.precision == pytest.approx(2 / 3)
    assert score.f1 == pytest.approx(2 / 3)
    assert score.false_per_1000 == pytest.approx(10)
    assert (score.delay(0.5), score.delay(1.0)) == (1, 3)
    assert score.delay(0.5, samples=True) == 100


def test_of_nothing_nothing_is_said() -> None:
    score = Score.pooled([])
    for value in (score.recall, score.precision, score.f1, score.false_per_1000, score.delay(0.5)):
        assert math.isnan(value)
    quiet = Score.pooled([(Matching((), (), (), 2), 10, 1000)])
    assert (quiet.recall, quiet.f1) == (0, 0)
    assert math.isnan(quiet.precision)


@given(st.integers(0, 400), st.integers(1000, 10**7))
def test_the_interval_holds_the_mean_and_narrows_as_alarms_come(alarms: int, samples: int) -> None:
    one, more = run_time(alarms, samples), run_time(4 * alarms, 4 * samples)
    assert 0 < one.low <= one.mean <= one.high
    if alarms:
        assert more.mean == pytest.approx(one.mean)
        assert more.high / more.low < one.high / one.low
    wide = run_time(alarms, samples, confidence=0.99)
    assert wide.low < one.low
    assert wide.high >= one.high


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    samples, true = 1_000_000, 50_000
    intervals = [run_time(int(k), samples) for k in rng.poisson(samples / true, 2000)]
    covered = np.mean([one.low <= true <= one.high for one in intervals])
    assert 0.95 <= covered <= 0.975


def test_a_stream_of_no_samples_has_no_run_time() -> None:
    assert math.isnan(run_time(0, 0).mean)


def test_regret_is_what_being_told_would_have_brought() -> None:
    assert regret([0.90, 0.92], [0.91, 0.93]) == pytest.approx(1.0)
    assert regret([0.9], [0.89]) == pytest.approx(-1.0)
    assert math.isnan(regret([], []))
