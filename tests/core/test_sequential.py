"""Tests for the core.drift.sequential module: when exactly it speaks, on seeded streams."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.drift.detector import Level, Observation
from core.drift.occupancy import OccupancyState
from core.drift.sequential import INLIERS, OCCUPANCY, SequentialDetector, SequentialState
from core.running import Running
from tests.core.signals import EVEN, Stretch, boundaries, observations, verdicts
from tests.core.states import assert_identical

DETECTOR = SequentialDetector()
SHIFTED = (0.1, 0.2, 0.3, 0.4)


def levels(stretches: list[Stretch], batch: int, seed: int = 0) -> list[Level]:
    return [verdict.level for verdict in verdicts(DETECTOR, observations(stretches, batch, seed))]


# What is found, and when ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "expected"), [(1, [3042]), (10, [304]), (100, [30]), (500, [6]), (1000, [3])]
)
def test_an_abrupt_drop_is_found_within_fifty_samples_or_in_its_first_batch(
    batch: int, expected: list[int]
) -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-3)]
    assert boundaries(DETECTOR, observations(stream, batch)) == expected


@pytest.mark.parametrize(("batch", "expected"), [(1, [3211]), (10, [321]), (100, [32])])
def test_a_small_drop_that_no_single_batch_shows_accumulates(
    batch: int, expected: list[int]
) -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-0.5)]
    assert boundaries(DETECTOR, observations(stream, batch)) == expected


@pytest.mark.parametrize(
    ("batch", "expected"), [(1, [3399]), (10, [339]), (100, [33]), (1000, [3])]
)
def test_other_components_winning_with_the_same_likelihood_is_a_change(
    batch: int, expected: list[int]
) -> None:
    stream = [Stretch(3000), Stretch(2000, shares=SHIFTED)]
    said = verdicts(DETECTOR, observations(stream, batch, seed=1))
    found = [index for index, verdict in enumerate(said) if verdict.level is Level.BOUNDARY]
    assert found == expected
    assert said[found[0]].speaker == OCCUPANCY


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_a_rise_of_the_likelihood_is_a_model_that_learns_and_no_boundary(batch: int) -> None:
    stream = [Stretch(1500), Stretch(500, mean=2), Stretch(500, mean=4)]
    assert set(levels(stream, batch)) == {Level.NORMAL}


def test_every_change_is_found_once_with_its_beginning() -> None:
    stream = [Stretch(3000), Stretch(3000, mean=-3), Stretch(3000, mean=-6)]
    said = verdicts(DETECTOR, observations(stream, 10))
    found = [index for index, verdict in enumerate(said) if verdict.level is Level.BOUNDARY]
    assert found == [304, 604]
    for index, began in zip(found, [3000, 6000], strict=True):
        assert said[index].speaker == INLIERS
        assert (index + 1) * 10 - said[index].change_samples == pytest.approx(began, abs=50)


def test_a_gradual_change_is_found_before_it_is_over() -> None:
    ramp = [Stretch(100, mean=-2 * step / 50) for step in range(50)]
    found = boundaries(DETECTOR, observations([Stretch(3000), *ramp], 100))
    assert found[0] == 44


def test_the_last_samples_of_a_huge_batch_are_not_hidden_by_its_first() -> None:
    stream = [Stretch(29_500), Stretch(500, mean=-2)]
    assert boundaries(DETECTOR, observations(stream, 10_000)) == [2]
    # Weighed as a whole, the batch of 9,500 old and 500 new would have passed.
    assert boundaries(DETECTOR, observations([Stretch(10_000)] * 3, 10_000)) == []


def test_one_huge_batch_after_another_is_enough() -> None:
    assert boundaries(DETECTOR, observations([Stretch(10_000)] * 2, 10_000)) == []
    stream = [Stretch(10_000), Stretch(10_000, mean=-2)]
    assert boundaries(DETECTOR, observations(stream, 10_000)) == [1]


# What is no change ------------------------------------------------------------------------

RARE = (0.95, *(0.05 / 99,) * 99)


@pytest.mark.parametrize(
    ("samples", "batch", "shares"),
    [
        (5_000, 1, EVEN),
        (100_000, 10, EVEN),
        (200_000, 100, EVEN),
        (200_000, 1000, EVEN),
        (200_000, 10_000, EVEN),
        (100_000, 250, (0.01,) * 100),
        (100_000, 1000, (0.9995, 0.0005)),
        (100_000, 1000, RARE),
        (100_000, 1000, (1.0,)),
    ],
    ids=["1", "10", "100", "1000", "10000", "K=100", "a rare one", "99 rare ones", "K=1"],
)
def test_a_stream_without_change_raises_no_alarm(
    samples: int, batch: int, shares: tuple[float, ...]
) -> None:
    assert boundaries(DETECTOR, observations([Stretch(samples, shares=shares)], batch, 1)) == []


def test_a_single_strange_batch_is_not_a_boundary() -> None:
    stream = [Stretch(3000), Stretch(10, mean=-5), Stretch(2000)]
    assert boundaries(DETECTOR, observations(stream, 10)) == []


@pytest.mark.parametrize("far", [1e3, 1e7, 1e30])
def test_one_sample_of_a_broken_sensor_neither_alarms_nor_blinds(far: float) -> None:
    stream = list(observations([Stretch(4000), Stretch(500, mean=-1)], 100))
    stream[20].log_likelihoods[3] = -far
    assert boundaries(DETECTOR, stream) == [41]


# Warm-up ----------------------------------------------------------------------------------


def test_until_warmed_up_it_says_nothing_whatever_happens() -> None:
    said = verdicts(DETECTOR, observations([Stretch(500), Stretch(500, mean=-50)], 100))
    assert [verdict.armed for verdict in said] == [False] * 10
    assert {verdict.level for verdict in said} == {Level.NORMAL}
    assert all(verdict.statistic == 0 for verdict in said)


def test_it_is_armed_exactly_when_warm_up_samples_have_passed() -> None:
    short = SequentialDetector(warm_up=300)
    said = verdicts(short, observations([Stretch(1000)], 50))
    assert next(index for index, verdict in enumerate(said) if verdict.armed) == 6
    # A change that began in the first half of the warm-up is what it takes for normal.
    stream = [Stretch(100), Stretch(2000, mean=-5)]
    assert boundaries(short, observations(stream, 50)) == []


def test_after_a_boundary_it_warms_up_again() -> None:
    stream = [Stretch(3000), Stretch(200, mean=-3), Stretch(3000, mean=-9)]
    said = verdicts(DETECTOR, observations(stream, 100))
    assert [index for index, verdict in enumerate(said) if verdict.level is Level.BOUNDARY] == [30]
    assert not any(verdict.armed for verdict in said[31:41])
    assert all(verdict.armed for verdict in said[41:])


def test_it_trusts_no_learner_that_has_not_settled() -> None:
    stream = list(observations([Stretch(2000), Stretch(1000, mean=-5)], 100))
    said = verdicts(DETECTOR, stream, settled=False)
    assert not any(verdict.armed for verdict in said)
    assert {verdict.level for verdict in said} == {Level.NORMAL}


# While a change is suspected --------------------------------------------------------------


def suspicious() -> tuple[SequentialState, list[Observation]]:
    """A state in the middle of a suspicion, and what comes next."""
    stream = list(observations([Stretch(3000), Stretch(1000, mean=-1)], 2))
    state = DETECTOR.start()
    for index, seen in enumerate(stream):
        state, verdict = DETECTOR.observe(state, seen, True)
        if index >= 1500 and verdict.level is Level.WARNING:
            return state, stream[index + 1 :]
    raise AssertionError("no suspicion arose")


def statistics(state: SequentialState) -> SequentialState:
    """Everything that the next batch is compared with: the state without its evidence."""
    return replace(
        DETECTOR.dismiss(state),
        occupancy=replace(
            DETECTOR.dismiss(state).occupancy, pending=OccupancyState.empty().pending
        ),
    )


def test_while_a_change_is_suspected_nothing_it_is_compared_with_moves() -> None:
    state, stream = suspicious()
    warnings = 0
    for seen in stream:
        before = statistics(state)
        state, verdict = DETECTOR.observe(state, seen, True)
        if verdict.level is Level.BOUNDARY:
            break
        if verdict.level is Level.WARNING:
            warnings += 1
            assert_identical(statistics(state), before)
    assert warnings >= 20
    assert verdict.level is Level.BOUNDARY


def test_a_first_batch_that_shows_little_is_suspected_rather_than_learned() -> None:
    """Learned, it could bring a new class and a new partition, and the change be lost."""
    stream = [Stretch(3000), Stretch(2000, shares=SHIFTED)]
    said = levels(stream, 100, seed=1)
    assert said[30:34] == [Level.WARNING] * 3 + [Level.BOUNDARY]


def test_a_dismissed_suspicion_starts_from_nothing_with_what_was_known() -> None:
    state, stream = suspicious()
    dismissed = DETECTOR.dismiss(state)
    assert_identical(statistics(dismissed), statistics(state))
    _, verdict = DETECTOR.observe(dismissed, stream[0], True)
    assert verdict.level is Level.NORMAL
    assert verdict.statistic < DETECTOR.suspicion * DETECTOR.threshold


def test_a_suspicion_passes_by_itself_when_the_old_data_come_back() -> None:
    stream = [Stretch(3000), Stretch(100, mean=-0.9), Stretch(2000)]
    said = levels(stream, 10, seed=3)
    assert Level.WARNING in said
    assert Level.BOUNDARY not in said
    assert said[-1] is Level.NORMAL


# Components -------------------------------------------------------------------------------


def test_components_that_are_replaced_are_counted_anew_and_the_inlier_rate_goes_on() -> None:
    old = list(observations([Stretch(3000)], 100))
    new = list(observations([Stretch(3000, shares=SHIFTED)], 100, seed=1, partition=1))
    assert boundaries(DETECTOR, old + new) == []
    same = list(observations([Stretch(3000, shares=SHIFTED)], 100, seed=1))
    assert boundaries(DETECTOR, old + same) == [34]
    worse = list(observations([Stretch(300, mean=-3)], 100, seed=1, partition=1))
    assert boundaries(DETECTOR, old + worse) == [30]


def test_another_number_of_components_is_another_partition() -> None:
    old = list(observations([Stretch(3000)], 100))
    new = list(observations([Stretch(3000, shares=(0.01,) * 100)], 100, seed=1))
    assert boundaries(DETECTOR, old + new) == []


# Reports ----------------------------------------------------------------------------------


def test_a_verdict_says_what_it_is_based_on() -> None:
    stream = list(observations([Stretch(3000), Stretch(100, mean=-3)], 100))
    verdict = verdicts(DETECTOR, stream)[30]
    assert set(verdict.statistics) == set(verdict.thresholds) == {INLIERS, OCCUPANCY}
    assert verdict.speaker == INLIERS
    assert verdict.statistic == verdict.statistics[INLIERS] > verdict.threshold == 20
    last = stream[30].log_likelihoods
    assert verdict.evidence["log_likelihood_now"] == pytest.approx(float(last.mean()), abs=1e-5)
    assert verdict.evidence["log_likelihood_before"] == pytest.approx(0, abs=0.1)
    # One standard deviation below the mean of a normal distribution.
    assert verdict.inlier_rate_mean == pytest.approx(0.84, abs=0.02)
    assert verdict.inlier_rate < 0.1
    assert verdict.change_samples == 100


def test_before_anything_is_known_there_is_no_mean_to_compare_with() -> None:
    verdict = verdicts(DETECTOR, observations([Stretch(100)], 100))[0]
    assert verdict.inlier_rate_mean is None
    assert 0.75 < verdict.inlier_rate < 0.95


def test_a_single_sample_has_no_deviation_and_is_an_inlier_of_itself() -> None:
    seen = Observation(torch.tensor([-3.0]), torch.tensor([0]), 1, 0)
    state, verdict = DETECTOR.observe(DETECTOR.start(), seen, True)
    assert verdict.inlier_rate == 1
    assert state.samples == 1
    assert state.inliers.scores == Running()


def test_the_state_it_was_given_is_not_changed() -> None:
    stream = list(observations([Stretch(3000)], 100))
    state = DETECTOR.start()
    for seen in stream:
        state, _ = DETECTOR.observe(state, seen, True)
    counts = state.occupancy.reference.clone(), state.occupancy.pending.clone()
    for seen in observations([Stretch(550, mean=-3)], 50, seed=9):
        DETECTOR.observe(state, seen, True)
    assert torch.equal(state.occupancy.reference, counts[0])
    assert torch.equal(state.occupancy.pending, counts[1])
