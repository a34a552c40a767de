"""Tests for core.drift.baselines.paper: the paper's rule, c = 1 and a drop of 20 points."""

from __future__ import annotations

import pytest
import torch

from core.drift.baselines.paper import SIGNAL, PaperDetector, PaperState
from core.drift.detector import Level, UnarmedReason
from tests.core.signals import Stretch, boundaries, observations, seen, verdicts

DETECTOR = PaperDetector()


def test_a_drop_by_more_than_twenty_points_is_a_boundary_in_its_first_batch() -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-1)]
    assert boundaries(DETECTOR, observations(stream, 100)) == [30]


def test_a_drop_by_less_is_none() -> None:
    stream = [Stretch(3000), Stretch(2000, mean=-0.3)]
    assert boundaries(DETECTOR, observations(stream, 1000)) == []


def test_a_rise_is_none() -> None:
    stream = [Stretch(3000), Stretch(2000, mean=3)]
    assert boundaries(DETECTOR, observations(stream, 100)) == []


def test_a_stream_without_change_raises_no_alarm_in_batches_of_a_hundred() -> None:
    assert boundaries(DETECTOR, observations([Stretch(100_000)], 100)) == []


def test_in_batches_of_ten_chance_alone_makes_it_speak() -> None:
    """Faithful to the letter: it compares batches, so that small ones alarm falsely."""
    found = boundaries(DETECTOR, observations([Stretch(5000)], 10))
    assert found == [102, 212, 322, 443]


def test_it_is_the_drop_from_the_batch_before_that_counts() -> None:
    # Two falls of 12 points each: more than 20 in all, but not at once.
    steps = [Stretch(3000), Stretch(1000, mean=-0.5), Stretch(1000, mean=-0.85)]
    said = verdicts(DETECTOR, observations(steps, 1000))
    rates = [verdict.inlier_rate for verdict in said]
    assert rates[2] - rates[4] > 0.2
    assert {verdict.level for verdict in said} == {Level.NORMAL}


def test_the_first_batch_has_no_inlier_rate_of_its_own() -> None:
    said = verdicts(DETECTOR, observations([Stretch(300)], 100))
    assert (said[0].inlier_rate, said[0].log_likelihood_before) == (None, None)
    assert [verdict.inlier_rate_mean is None for verdict in said] == [True, True, False]
    assert 0.7 < said[1].inlier_rate < 0.95


def test_it_says_when_it_will_be_armed() -> None:
    state = PaperState(samples=400, batches=4)
    waiting = (DETECTOR.warm_up - 400, UnarmedReason.WARM_UP)
    assert DETECTOR.arming(state, 400, True) == waiting
    # Nobody knows when annealing ends.
    assert DETECTOR.arming(state, 400, False) == (None, UnarmedReason.ANNEALING)
    assert DETECTOR.arming(PaperState(samples=5000), 0, True) == (0, None)


def test_it_knows_no_suspicion_only_yes_and_no() -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-1)]
    said = verdicts(DETECTOR, observations(stream, 10))
    assert Level.WARNING not in {verdict.level for verdict in said}


def test_it_speaks_only_after_the_warm_up_and_after_every_boundary_again() -> None:
    early = [Stretch(500), Stretch(400, mean=-9)]
    said = verdicts(DETECTOR, observations(early, 100))
    assert not any(verdict.armed for verdict in said)
    assert {verdict.level for verdict in said} == {Level.NORMAL}
    twice = [Stretch(2000), Stretch(500, mean=-9), Stretch(2000, mean=-18)]
    assert boundaries(DETECTOR, observations(twice, 100)) == [20]


def test_it_trusts_no_learner_that_has_not_converged() -> None:
    stream = list(observations([Stretch(3000), Stretch(1000, mean=-9)], 100))
    said = verdicts(DETECTOR, stream, settled=False)
    assert {verdict.level for verdict in said} == {Level.NORMAL}


def test_a_smaller_c_and_a_larger_drop_are_other_rules() -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-1)]
    assert boundaries(PaperDetector(drop=0.5), observations(stream, 100)) == []
    # Inliers above the mean + 3 deviations: hardly any, so that none can be lost.
    assert boundaries(PaperDetector(c=-3), observations(stream, 100)) == []


def test_statistics_are_a_plain_average_at_first_and_move_by_a_hundredth_later() -> None:
    state = DETECTOR.start()
    stream = list(observations([Stretch(5000)], 100))
    for batch in stream:
        state, _ = DETECTOR.observe(state, batch, True)
    scores = torch.cat([batch.log_likelihoods for batch in stream]).double()
    assert (state.samples, state.batches) == (5000, 50)
    assert state.mean == pytest.approx(float(scores.mean()), abs=1e-9)
    assert state.variance == pytest.approx(float(scores.var(correction=0)), abs=1e-9)
    late = PaperState(samples=10**6, batches=10**4, mean=0.0, variance=1.0, inlier_rate=0.84)
    moved, _ = DETECTOR.observe(late, seen(torch.tensor([[1.0, 0.0]] * 50)), True)
    assert moved.mean == pytest.approx(0.01)


def test_the_batch_that_is_a_boundary_moves_no_statistic() -> None:
    state = PaperState(samples=5000, batches=50, mean=0.0, variance=1.0, inlier_rate=0.84)
    after, verdict = DETECTOR.observe(state, seen(torch.tensor([[-9.0, 0.0]] * 50)), True)
    assert verdict.level is Level.ALARM
    assert after == state
    assert verdict.statistics == {SIGNAL: 0.84}
    assert verdict.thresholds == {SIGNAL: 0.2}
    assert verdict.change_samples == 50
    assert verdict.evidence == {"log_likelihood_before": 0.0, "log_likelihood_now": -9.0}


def test_there_is_nothing_to_dismiss() -> None:
    state = PaperState(samples=5)
    assert DETECTOR.dismiss(state) is state


def test_it_cannot_tell_old_samples_from_new_and_takes_all_for_what_was_there() -> None:
    assert DETECTOR.typical(PaperState(samples=5), torch.full((4, 2), -99.0)).tolist() == [True] * 4
