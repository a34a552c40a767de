"""Tests for core.drift.sequential.detector: when it speaks, on seeded streams of scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.drift.detector import Cause, Level, Observation, Verdict
from core.drift.sequential.detector import (
    CONFIRMED_THIN,
    LONGEST_LIFETIME,
    LONGEST_WATCH,
    OVERSHOOT,
    Alarm,
    SequentialDetector,
    SequentialState,
)
from core.drift.sequential.evidence import Reading
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.reference import Reference
from core.drift.sequential.signals import (
    BET_TABLE,
    CAUSES,
    DOUBT,
    FEATURES,
    FUSED,
    INLIERS,
    LABELS,
    LIKELIHOOD,
    OCCUPANCY,
)
from tests.core.scripted_density import frozen_model
from tests.core.signals import (
    EVEN,
    Stretch,
    boundaries,
    cut,
    features,
    observations,
    seen,
    verdicts,
)
from tests.core.states import assert_identical

DETECTOR = SequentialDetector()
QUICK = SequentialDetector(warm_up=400)
"""For batches of one sample, which take a step each."""

SHIFTED = (0.1, 0.2, 0.3, 0.4)
FAR = -8.0
"""Log-likelihood of an outlier."""


def of(level: Level, said: Sequence[Verdict]) -> list[int]:
    """Indices of the batches at which that is said."""
    return [index for index, verdict in enumerate(said) if verdict.level is level]


def bursts(said: Sequence[Verdict]) -> list[int]:
    return [index for index, verdict in enumerate(said) if verdict.burst]


def watched(
    stream: Iterable[Observation], detector: SequentialDetector = DETECTOR
) -> SequentialState:
    """The state after a stream."""
    state = detector.start()
    for batch in stream:
        state, _ = detector.observe(state, batch, True)
    return state


def spoiled(x: Tensor, share: float, begin: int, end: int | None = None) -> Tensor:
    """The same with outliers strewn evenly among the samples from `begin` to `end`."""
    every = round(1 / share)
    x = x.clone()
    x[begin:end:every, 0] = FAR
    return x


# What is found, and when ------------------------------------------------------------------


@pytest.mark.parametrize("batch", [10, 100, 500])
def test_an_abrupt_drop_is_found_in_its_first_batch_or_once_it_has_lasted(batch: int) -> None:
    stream = [Stretch(3000), Stretch(1000, mean=-3)]
    (found,) = boundaries(DETECTOR, observations(stream, batch))
    assert found == {10: 302, 100: 30, 500: 6}[batch]


def test_an_abrupt_drop_is_found_one_sample_after_the_other() -> None:
    stream = [Stretch(800), Stretch(60, mean=-3)]
    said = verdicts(QUICK, observations(stream, 1))
    (found,) = of(Level.ALARM, said)
    assert found in (829, 830)  # thirty samples of the change, the first of which shows little
    # Samples that look like a change are set aside from the third or fourth on.
    assert of(Level.WARNING, said)[0] in range(801, 806)


@pytest.mark.parametrize("batch", [50, 100, 500])
@pytest.mark.parametrize("seed", range(3))
def test_a_small_drop_that_no_single_batch_shows_accumulates(batch: int, seed: int) -> None:
    """Half a deviation: a fifth of the samples too few are inliers."""
    stream = [Stretch(3000), Stretch(3000, mean=-0.5)]
    found = boundaries(DETECTOR, observations(stream, batch, seed))
    assert found
    assert 3000 <= found[0] * batch <= 4500


@pytest.mark.parametrize("batch", [50, 100, 500])
def test_a_drop_by_a_deviation_is_found_within_two_hundred_samples_or_two_batches(
    batch: int,
) -> None:
    stream = [Stretch(3000), Stretch(2000, mean=-1)]
    found = boundaries(DETECTOR, observations(stream, batch))
    assert 3000 <= found[0] * batch <= 3200 + batch


@pytest.mark.parametrize("batch", [10, 100, 1000])
def test_other_components_winning_with_the_same_likelihood_is_a_change(batch: int) -> None:
    stream = [Stretch(3000), Stretch(2000, shares=SHIFTED)]
    said = verdicts(DETECTOR, observations(stream, batch, seed=1))
    found = of(Level.ALARM, said)
    assert 3000 <= found[0] * batch <= 3600
    assert said[found[0]].signal == OCCUPANCY


def test_other_classes_winning_is_a_change_though_each_component_is_rare() -> None:
    """A hundred components share a class; which one wins says little."""
    classes = [0] * 50 + [1] * 50
    generator = torch.Generator().manual_seed(0)
    x = features([Stretch(5000)], 0)
    x[:, 1] = torch.randint(100, (5000,), generator=generator).float()
    x[3000:, 1] = torch.randint(50, (2000,), generator=generator).float()
    found = boundaries(DETECTOR, cut(x, 100, 100, classes))
    assert found
    assert found[0] in range(30, 33)


@pytest.mark.parametrize("batch", [10, 100, 500])
def test_a_rise_of_the_likelihood_is_a_change_too(batch: int) -> None:
    stream = [Stretch(3000), Stretch(1000, mean=2)]
    said = verdicts(DETECTOR, observations(stream, batch))
    (found,) = of(Level.ALARM, said)
    assert 3000 <= found * batch <= 3020
    assert said[found].signal == LIKELIHOOD


def test_scores_that_scatter_less_are_a_change_without_any_mean_moving() -> None:
    stream = [Stretch(3000), Stretch(3000, deviation=0.3)]
    found = boundaries(DETECTOR, observations(stream, 100))
    assert found
    assert 30 <= found[0] <= 36


@pytest.mark.parametrize("batch", [100, 500])
def test_a_gradual_change_is_found_before_it_is_over(batch: int) -> None:
    ramp = [Stretch(100, mean=-3 * step / 50) for step in range(50)]
    found = boundaries(DETECTOR, observations([Stretch(3000), *ramp], batch))
    assert 3000 < found[0] * batch < 7000


def test_every_change_is_found_once_with_its_beginning() -> None:
    stream = [Stretch(3000), Stretch(3000, mean=-3), Stretch(3000, mean=3)]
    said = verdicts(DETECTOR, observations(stream, 50))
    found = of(Level.ALARM, said)
    assert found == [60, 120]
    for index, began, signal in zip(found, [3000, 6000], [INLIERS, LIKELIHOOD], strict=True):
        assert said[index].signal == signal
        assert (index + 1) * 50 - said[index].change_samples == pytest.approx(began, abs=20)
    assert bursts(said) == []


def test_the_last_samples_of_a_huge_batch_are_not_hidden_by_its_first() -> None:
    stream = [Stretch(29_500), Stretch(500, mean=-2)]
    assert boundaries(DETECTOR, observations(stream, 10_000)) == [2]
    assert boundaries(DETECTOR, observations([Stretch(30_000)], 10_000)) == []


@pytest.mark.parametrize("mean", [-4.0, -2.0, 2.0])
def test_two_huge_batches_are_enough_to_judge_the_third(mean: float) -> None:
    """Though the third has as many samples as all that they are compared with."""
    stream = [Stretch(20_000), Stretch(10_000, mean=mean)]
    said = verdicts(DETECTOR, observations(stream, 10_000))
    assert of(Level.ALARM, said) == [2]
    assert bursts(said) == []


@pytest.mark.parametrize("mean", [-2.0, -1.0])
def test_detection_hardly_depends_on_how_the_stream_is_cut(mean: float) -> None:
    """Within the block after which what the last samples preferred is counted anew."""
    x = features([Stretch(3000), Stretch(1000, mean=mean)], 0)
    alarms = []
    for sizes in (50, 100, (10, 40, 100, 250), (150, 50)):
        state, place = DETECTOR.start(), 0
        for batch in cut(x, sizes, 4):
            place += len(batch.features)
            state, verdict = DETECTOR.observe(state, batch, True)
            if state.alarm or verdict.burst:
                alarms.append((place - len(batch.features), place))
                break
    assert len(alarms) == 4
    # Each alarm lies somewhere in its batch; all of them have a place in common, or nearly.
    assert max(begin for begin, _ in alarms) <= min(end for _, end in alarms) + 50


# What is no change ------------------------------------------------------------------------

RARE = (0.95, *(0.05 / 99,) * 99)


@pytest.mark.parametrize(
    ("samples", "batch", "shares"),
    [
        (2_000, 1, EVEN),
        (8_000, 10, EVEN),
        (40_000, 100, EVEN),
        (60_000, 1000, EVEN),
        (60_000, 10_000, EVEN),
        (30_000, 250, (0.01,) * 100),
        (30_000, 1000, (0.9995, 0.0005)),
        (30_000, 1000, RARE),
        (30_000, 1000, (1.0,)),
    ],
    ids=["1", "10", "100", "1000", "10000", "K=100", "a rare one", "99 rare ones", "K=1"],
)
def test_a_stream_without_change_raises_no_alarm(
    samples: int, batch: int, shares: tuple[float, ...]
) -> None:
    said = verdicts(QUICK, observations([Stretch(samples, shares=shares)], batch, 1))
    assert of(Level.ALARM, said) == bursts(said) == []


def alarms(detector: SequentialDetector, stream: Iterable[Observation]) -> tuple[int, int]:
    """Samples on the lookout, and alarms, whatever became of them."""
    state, samples, found = detector.start(), 0, 0
    for batch in stream:
        looking = state.watch is not None and state.alarm is None
        before = state.alarm
        state, verdict = detector.observe(state, batch, True)
        samples += len(batch.features) if looking else 0
        found += before is None and (state.alarm is not None or verdict.burst)
        if verdict.level is Level.ALARM:
            state = detector.start()
    return samples, found


@pytest.mark.parametrize(
    ("ert", "batch", "samples"),
    [
        (500, 1, 12_000),
        (2000, 10, 60_000),
        (2000, 100, 120_000),
        (2000, 512, 200_000),
        (2000, (7, 100, 30, 512), 120_000),
    ],
    ids=["1", "10", "100", "512", "mixed"],
)
def test_false_alarms_come_as_often_as_was_asked(
    ert: float, batch: int | tuple[int, ...], samples: int
) -> None:
    """Alarms of both kinds, those that pass included."""
    detector = SequentialDetector(ert=ert, warm_up=800)
    watched_samples, found = alarms(detector, observations([Stretch(samples)], batch, seed=5))
    assert found >= 5
    assert watched_samples / found == pytest.approx(ert, rel=0.35)


@pytest.mark.parametrize(("batch", "outliers"), [(10, 10), (100, 10), (100, 30), (500, 30)])
def test_a_handful_of_outliers_is_a_burst_and_no_boundary(batch: int, outliers: int) -> None:
    stream = [Stretch(3000), Stretch(outliers, mean=FAR), Stretch(2000)]
    said = verdicts(DETECTOR, observations(stream, batch))
    assert of(Level.ALARM, said) == []
    (found,) = bursts(said)
    assert 3000 <= found * batch <= 3100
    assert said[found].level is Level.NORMAL
    assert said[found].signal in (INLIERS, OCCUPANCY)
    # It says when the outliers began, though they are over.
    assert (found + 1) * batch - said[found].change_samples == pytest.approx(3000, abs=batch)


def test_a_handful_of_outliers_one_by_one_is_a_burst() -> None:
    stream = [Stretch(800), Stretch(10, mean=FAR), Stretch(150)]
    said = verdicts(QUICK, observations(stream, 1))
    assert of(Level.ALARM, said) == []
    assert len(bursts(said)) == 1


def test_after_a_burst_it_knows_what_it_knew_and_finds_the_next_change() -> None:
    stream = [Stretch(3000), Stretch(15, mean=FAR), Stretch(985), Stretch(500, mean=-3)]
    said = verdicts(DETECTOR, observations(stream, 100))
    assert bursts(said) == [30]
    assert of(Level.ALARM, said) == [40]
    assert all(verdict.armed for verdict in said[31:41])


def test_a_short_thin_contamination_is_a_burst_and_a_lasting_one_a_boundary() -> None:
    x = features([Stretch(6000)], 1)
    short = verdicts(DETECTOR, cut(spoiled(x, 0.1, 3000, 3120), 20, 4))
    assert of(Level.ALARM, short) == []
    assert len(bursts(short)) == 1
    lasting = verdicts(DETECTOR, cut(spoiled(x, 0.1, 3000), 20, 4))
    found = of(Level.ALARM, lasting)[0]
    assert 3000 + CONFIRMED_THIN <= (found + 1) * 20 <= 3400


@pytest.mark.parametrize("far", [1e2, 1e30])
def test_one_sample_of_a_broken_sensor_neither_alarms_nor_blinds(far: float) -> None:
    stream = list(observations([Stretch(4000), Stretch(500, mean=-1.5)], 100))
    stream[20].features[3, 0] = -far
    said = verdicts(DETECTOR, stream)
    assert of(Level.WARNING, said[:40]) == bursts(said[:40]) == []
    assert of(Level.ALARM, said)[0] in (40, 41)


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
    assert of(Level.ALARM, said) == [30]
    assert not any(verdict.armed for verdict in said[31:41])
    assert all(verdict.armed for verdict in said[41:])


def test_it_trusts_no_learner_that_has_not_converged() -> None:
    stream = list(observations([Stretch(2000), Stretch(1000, mean=-5)], 100))
    said = verdicts(DETECTOR, stream, settled=False)
    assert not any(verdict.armed for verdict in said)
    assert {verdict.level for verdict in said} == {Level.NORMAL}


def known(reference: Reference) -> Array:
    """Log-likelihoods that later ones are compared with, or will be."""
    earlier = reference.scores
    return np.concatenate([part[0] for part in (earlier.ranking.scores, *earlier.unsorted)])


# Frozen models and successors ----------------------------------------------------------------


def versioned(rows: Tensor) -> Observation:
    """Every version of the model is another ruler: it shifts scores by when it was taken."""
    return Observation(rows[:, 0], rows, lambda samples: frozen_model(4, samples, shift=samples))


def ruler(state: SequentialState) -> tuple[FrozenModel, Tensor]:
    """The frozen model, and the scores that it compares with, by its own zero."""
    assert state.watch is not None
    frozen = state.watch.frozen_model
    return frozen, torch.from_numpy(
        state.watch.reference.scores.ranking.scores[0] - frozen.taken_at
    )


def test_heirs_take_over_as_the_model_learns_and_later_less_often() -> None:
    state, taken = DETECTOR.start(), []
    for rows in features([Stretch(30_000)]).split(100):
        state, verdict = DETECTOR.observe(state, versioned(rows), True)
        assert verdict.level is not Level.ALARM
        if state.watch is not None:
            taken.append(state.watch.frozen_model.taken_at)
            assert float(ruler(state)[1].mean()) == pytest.approx(0, abs=0.2)
    steps = sorted(set(taken))
    assert steps[:4] == [500, 1000, 2000, 4000]
    assert all(0 < after - before <= LONGEST_LIFETIME for before, after in pairwise(steps))
    assert taken == sorted(taken)
    assert steps[-1] >= 16_000


def test_an_heir_that_takes_over_while_a_change_begins_is_judged_by_its_own_scores() -> None:
    """What is taken back must not be what another version said."""
    x = features([Stretch(4000)])
    # At 1,000 samples a successor is taken; 500 later it takes over, in the batch of the outliers.
    x[1485:1500, 0] = FAR
    state, said = DETECTOR.start(), []
    for rows in x.split(100):
        state, verdict = DETECTOR.observe(state, versioned(rows), True)
        said.append(verdict)
        if state.watch is not None:
            assert float(ruler(state)[1].median()) == pytest.approx(0, abs=0.5)
    assert of(Level.WARNING, said)[0] == 14
    assert bursts(said) == [15]


def test_what_is_suspected_becomes_no_part_of_what_it_is_compared_with() -> None:
    stream = [Stretch(3000), Stretch(40, mean=FAR), Stretch(60)]
    state = DETECTOR.start()
    for batch in observations(stream, 20):
        state, _ = DETECTOR.observe(state, batch, True)
        if state.watch is not None:
            reference = state.watch.reference
            assert known(reference).min() > FAR + 2
        for sighting in state.successor.seen if state.successor else ():
            assert sighting.log_likelihoods.min() > FAR + 2


def test_an_heir_sees_no_outliers_of_a_burst() -> None:
    x = features([Stretch(3000)])
    x[1250:1265, 0] = FAR  # while a successor watches beside the frozen model
    state, said = DETECTOR.start(), []
    for batch in cut(x, 50, 4):
        state, verdict = DETECTOR.observe(state, batch, True)
        said.append(verdict)
        for sighting in state.successor.seen if state.successor else ():
            assert sighting.log_likelihoods.min() > FAR + 2
    assert bursts(said)


def test_what_it_remembers_does_not_grow_with_the_length_of_a_sub_task() -> None:
    """Ten million samples of one sub-task are behind it already."""
    state = replace(watched(observations([Stretch(2000)], 500)), samples=10_000_000)
    for batch in observations([Stretch(100_000)], 5000, seed=2):
        state, _ = DETECTOR.observe(state, batch, True)
        assert state.watch is not None
        assert len(state.watch.reference) <= 2 * LONGEST_LIFETIME
        if state.successor is not None:
            assert sum(map(len, state.successor.seen)) <= 4 * LONGEST_WATCH
    assert state.watch.frozen_model.taken_at >= 10_000_000 + LONGEST_LIFETIME


def test_the_state_it_was_given_is_not_changed() -> None:
    state = watched(observations([Stretch(3000)], 100))
    (batch,) = observations([Stretch(550, mean=-1)], 550, seed=9)
    one, first = DETECTOR.observe(state, batch, True)
    other, second = DETECTOR.observe(state, batch, True)
    assert first == second
    assert state.watch is not None
    assert one.watch is not None
    assert other.watch is not None
    assert_identical(
        one.watch.reference.counts.cell_counts, other.watch.reference.counts.cell_counts
    )
    assert_identical(one.evidence, other.evidence)
    before = state.watch.reference.counts.cell_counts
    assert not np.array_equal(one.watch.reference.counts.cell_counts.counts, before.counts)


# While a change is suspected --------------------------------------------------------------


def suspicious() -> tuple[SequentialState, list[Observation]]:
    """A state in the middle of a suspicion, and what comes next."""
    stream = list(observations([Stretch(3000), Stretch(1000, mean=-1)], 10))
    state = DETECTOR.start()
    for index, batch in enumerate(stream):
        state, verdict = DETECTOR.observe(state, batch, True)
        if index >= 300 and verdict.level is Level.WARNING:
            return state, stream[index + 1 :]
    raise AssertionError("no suspicion arose")


def test_a_dismissed_suspicion_starts_from_nothing_with_what_was_known() -> None:
    state, stream = suspicious()
    dismissed = DETECTOR.dismiss(state)
    assert dismissed.alarm is None
    assert dismissed.watch is state.watch
    assert dismissed.samples == state.samples
    assert dismissed.evidence.totals.tolist() == [-math.inf] * len(BET_TABLE)
    _, verdict = DETECTOR.observe(dismissed, stream[0], True)
    assert verdict.level is Level.NORMAL
    assert verdict.armed
    # The change goes on, and is found all the same.
    assert boundaries_from(dismissed, stream)


def boundaries_from(state: SequentialState, stream: Iterable[Observation]) -> bool:
    for batch in stream:
        state, verdict = DETECTOR.observe(state, batch, True)
        if verdict.level is Level.ALARM:
            return True
    return False


def test_another_run_time_that_is_asked_for_is_another_threshold() -> None:
    state = watched(observations([Stretch(3000)], 100))
    (batch,) = observations([Stretch(100)], 100, seed=3)
    _, usual = DETECTOR.observe(state, batch, True)
    _, eager = DETECTOR.observe(state, batch._replace(ert=100.0), True)
    assert eager.threshold < usual.threshold == pytest.approx(math.log(1e7 / OVERSHOOT), abs=1e-3)
    assert eager.threshold == DETECTOR.threshold(100.0)
    assert eager.statistic == usual.statistic


def test_typical_samples_are_those_that_the_frozen_model_finds_as_likely_as_earlier_ones() -> None:
    state = watched(observations([Stretch(3000)], 100))
    x = features([Stretch(1000), Stretch(200, mean=FAR), Stretch(200, mean=-FAR)], 4)
    typical = DETECTOR.typical(state, x)
    assert float(typical[:1000].double().mean()) == pytest.approx(0.98, abs=0.02)
    assert not typical[1000:1200].any()
    assert typical[1200:].all()
    assert DETECTOR.typical(DETECTOR.start(), x).all()


# Reports ----------------------------------------------------------------------------------


def test_a_verdict_says_what_it_is_based_on() -> None:
    stream = list(observations([Stretch(3000), Stretch(100, mean=-3)], 100))
    verdict = verdicts(DETECTOR, stream)[30]
    signals = {INLIERS, LIKELIHOOD, DOUBT, OCCUPANCY, LABELS, FEATURES, FUSED}
    assert set(verdict.statistics) == set(verdict.thresholds) == signals
    assert (verdict.names[-1], verdict.signal) == (FUSED, INLIERS)
    assert verdict.statistic == verdict.statistics[FUSED] > verdict.threshold
    assert len(set(verdict.thresholds.values())) == 1
    last = stream[30].log_likelihoods
    assert verdict.evidence["log_likelihood_now"] == pytest.approx(float(last.mean()), abs=1e-5)
    assert verdict.evidence["log_likelihood_before"] == pytest.approx(0, abs=0.1)
    assert 0 < verdict.evidence["p_value"] < 1e-7
    # One standard deviation below the mean of a normal distribution.
    assert verdict.inlier_rate_mean == pytest.approx(0.84, abs=0.02)
    assert verdict.inlier_rate < 0.1
    assert verdict.change_samples == 100


def test_the_fused_statistic_is_made_of_all_signals() -> None:
    for verdict in verdicts(DETECTOR, observations([Stretch(2000)], 100))[12:]:
        parts = [math.expm1(verdict.statistics[name]) for name in BET_TABLE.signals]
        assert math.expm1(verdict.statistics[FUSED]) == pytest.approx(sum(parts), rel=1e-6)
        assert verdict.statistics[verdict.signal] == max(
            verdict.statistics[name] for name in BET_TABLE.signals
        )
        assert 0 < verdict.evidence["p_value"] <= 1


@pytest.mark.parametrize("batch", [1, 1000])
def test_every_number_of_a_verdict_is_ready_for_json(batch: int) -> None:
    quick = SequentialDetector(warm_up=40)
    stream = [Stretch(80), Stretch(30, mean=-900), Stretch(20, mean=900)]
    for verdict in verdicts(quick, observations(stream, batch)):
        numbers = [verdict.statistics, verdict.thresholds, verdict.evidence]
        told = [one for group in numbers for one in group.values()]
        # Not numpy's numbers, which faster encoders refuse.
        assert {type(one) for one in told} == {float}
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
        if verdict.armed:
            assert type(verdict.inlier_rate) is float
            assert math.isfinite(verdict.inlier_rate)
        assert isinstance(verdict.change_samples, int)


def test_before_anything_is_known_there_is_no_mean_to_compare_with() -> None:
    verdict = verdicts(DETECTOR, observations([Stretch(100)], 100))[0]
    assert (verdict.inlier_rate_mean, verdict.inlier_rate) == (None, None)
    assert verdict.probe is None


def test_a_single_sample_is_no_inlier_of_itself() -> None:
    state, verdict = DETECTOR.observe(DETECTOR.start(), seen(torch.tensor([[-3.0, 0.0]])), True)
    assert verdict.inlier_rate is None
    assert verdict.log_likelihood_now == -3
    assert state.samples == 1
    assert state.watch is None


def test_a_probe_is_passed_about_once_in_its_own_run_time_where_nothing_changes() -> None:
    """A long run time cannot be checked live, a short one of the same evidence can."""
    said = verdicts(QUICK, observations([Stretch(60_000)], 100, seed=2))
    probes = [verdict.probe for verdict in said if verdict.probe]
    assert {probe.ert for probe in probes} == {1000}
    samples = sum(probe.samples for probe in probes)
    assert samples > 55_000
    assert samples / sum(probe.alarms for probe in probes) == pytest.approx(1000, rel=0.35)


def test_a_probe_does_not_count_what_may_be_of_a_change() -> None:
    said = verdicts(DETECTOR, observations([Stretch(3000), Stretch(40, mean=-3)], 10))
    for verdict in said:
        if verdict.level is not Level.NORMAL or verdict.burst or not verdict.armed:
            assert verdict.probe is None
    assert of(Level.WARNING, said)


def test_the_outliers_of_a_burst_within_a_batch_never_become_usual() -> None:
    stream = [Stretch(3000), Stretch(15, mean=-8), Stretch(985)]
    state = DETECTOR.start()
    for one in observations(stream, 100):
        state, verdict = DETECTOR.observe(state, one, True)
        if verdict.burst:
            break
    else:
        raise AssertionError("no burst was found")
    for one in observations([Stretch(1000)], 100, seed=7):
        state, _ = DETECTOR.observe(state, one, True)
    assert state.watch is not None
    reference = state.watch.reference
    assert known(reference).min() > -6


@pytest.mark.parametrize("batch", [20, 100])
def test_what_was_counted_of_a_burst_is_forgotten_with_it(batch: int) -> None:
    """Or every usual sample would be paid for ever after, since outliers make it look rarer."""
    before = watched(observations([Stretch(3000)], batch))
    state = before
    for one in observations([Stretch(15, mean=FAR), Stretch(985)], batch, seed=4):
        state, verdict = DETECTOR.observe(state, one, True)
        if verdict.burst:
            break
    else:
        raise AssertionError("no burst was found")
    assert before.watch is not None
    assert state.watch is not None
    known_before, now = before.watch.reference.counts, state.watch.reference.counts
    assert np.array_equal(now.numbers, known_before.numbers)
    assert state.unsuspected is None


def test_what_was_counted_while_a_suspicion_passed_is_kept() -> None:
    stream = [Stretch(3000), Stretch(3, mean=FAR), Stretch(997)]
    state, suspected = DETECTOR.start(), 0
    for one in observations(stream, 20):
        state, verdict = DETECTOR.observe(state, one, True)
        suspected += verdict.level is Level.WARNING
        assert not verdict.burst
        assert (state.unsuspected is None) == (verdict.level is Level.NORMAL)
    assert suspected
    assert state.watch is not None
    tally = state.watch.reference.counts.cell_counts
    # All since the reference began are among them, in each of the divisions.
    assert tally.counts.sum() == 3 * (state.samples - state.watch.frozen_model.taken_at)


def test_what_is_usual_for_its_class_is_typical_however_rare_the_class() -> None:
    x = torch.cat([features([Stretch(4000, shares=(0.9, 0.1))]), torch.ones(4000, 1)], 1)
    x[x[:, 1] == 1, 0] -= 10
    state = DETECTOR.start()
    for rows in x.split(100):
        said = Observation(rows[:, 0], rows, lambda n: frozen_model(2, n, [0, 1], n_features=3))
        state, _ = DETECTOR.observe(state, said, True)
    # Among all the second is one of the lowest in a hundred; in its class one in ten is lower.
    asked = torch.tensor([[0.0, 0, 1], [-11.3, 1, 1], [-14.0, 1, 1], [-11.3, 0, 1]])
    assert DETECTOR.typical(state, asked).tolist() == [True, True, False, False]


@pytest.mark.parametrize("classes", [[0, 0, 1, 1], None], ids=["classes", "components"])
def test_samples_as_likely_as_ever_that_lie_between_what_is_known_are_found(
    classes: list[int] | None,
) -> None:
    stream = [Stretch(4000, margin=60.0), Stretch(1000, margin=2.0)]
    said = verdicts(DETECTOR, cut(features(stream), 100, 4, classes))
    (found,) = of(Level.ALARM, said[:45])
    assert found <= 42
    assert said[found].signal == DOUBT


def test_what_is_sure_of_no_class_is_not_typical_however_likely() -> None:
    x = features([Stretch(4000, margin=60.0)])
    state = DETECTOR.start()
    for rows in x.split(100):
        said = Observation(
            rows[:, 0], rows, lambda n: frozen_model(4, n, [0, 1, 2, 3], n_features=3)
        )
        state, _ = DETECTOR.observe(state, said, True)
    asked = torch.tensor([[0.0, 0, 60], [0.0, 0, 0], [0.0, 3, 30], [-6.0, 3, 60]])
    assert DETECTOR.typical(state, asked).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("below", "lost", "level"),
    [
        (1.0, 1.0, Level.ALARM),
        (1.0, 3.0, Level.WARNING),
        (3.0, 1.0, Level.WARNING),
        (1.0, 8.0, Level.NORMAL),
    ],
)
def test_a_slow_change_that_hangs_just_below_the_threshold_after_its_alarm_lasts(
    below: float, lost: float, level: Level
) -> None:
    threshold = DETECTOR.threshold()
    state = replace(DETECTOR.start(), samples=5000, alarm=Alarm(4000, threshold + 0.1))
    statistics = [*[0.0] * len(BET_TABLE.signals), threshold - below]
    now = Reading(statistics, 0, len(BET_TABLE) - 1, 800, 800, lost)
    assert DETECTOR._judged(state, now, threshold - below, threshold)[1] is level


@pytest.mark.parametrize("signal", BET_TABLE.signals)
def test_every_signal_has_a_cause(signal: str) -> None:
    assert CAUSES[signal] is not Cause.UNKNOWN
