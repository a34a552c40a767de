"""Tests for core.drift.sequential.evidence: the fast recursion is the plain one, and it is fair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable, CellBet, RankBet
from core.drift.sequential.evidence import ALIKE, CHANCE, LARGE, SLACK, Evidence, Reading
from tests.core.evidence_path import added, book_of, steps

SAMPLES = 12

gains = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([-LARGE, -40.0, -1e-12, 0.0, 1e-12, 40.0, LARGE - 1]),
)
lives = st.integers(1, 3).flatmap(
    lambda n_bets: st.lists(
        st.lists(gains, min_size=n_bets, max_size=n_bets), min_size=1, max_size=SAMPLES
    )
)


def table(life: list[list[float]]) -> Array:
    """Gains with shape (J, N)."""
    return np.array(life, dtype=np.float64).T


def even(n_bets: int) -> Array:
    return np.full(n_bets, 1 / n_bets)


def log_plus_one(log_r: float) -> float:
    return max(log_r, 0.0) + math.log1p(math.exp(-abs(log_r)))


def naive(life: list[float]) -> tuple[float, float, int, float]:
    """Of one bet, sample by sample: log R, cusum, run_length and top."""
    total, path = -math.inf, [0.0]
    for gain in life:
        total = log_plus_one(total) + gain
        path.append(path[-1] + gain)
    lowest = path.index(min(path))
    since = path[lowest:]
    # Before that point cusums count from lowest points of their own.
    low = [n for n, value in enumerate(path) if value - min(path[: n + 1]) < SLACK]
    return total, path[-1] - path[lowest], len(path) - 1 - low[-1], max(since) - path[lowest]


def cusum_maxima(life: list[float]) -> list[float]:
    """Of one bet, from each of its lowest points that lie closer than rounding can tell."""
    path = [math.fsum(life[:n]) for n in range(len(life) + 1)]
    lowest = min(path)
    return [max(path[n:]) - value for n, value in enumerate(path) if value - lowest < 1e-9]


def played(life: Array, sizes: list[int]) -> tuple[Evidence, Array]:
    """The evidence after a life that comes in pieces, and the largest log(1 + R) within each."""
    evidence, highest = Evidence.none(len(life)), []
    for piece in np.split(life, np.cumsum(sizes)[:-1], 1):
        evidence, most, *_ = added(evidence, np.exp(piece), book_of(len(life)), even(len(life)))
        highest.append(most)
    return evidence, np.array(highest)


def close(values: Array) -> object:
    return pytest.approx(values, abs=1e-6, rel=1e-9)


@settings(deadline=None)
@given(life=lives)
def test_it_is_the_plain_recursion_whatever_the_gains(life: list[list[float]]) -> None:
    evidence, sums = played(table(life), [1] * len(life))
    for bet, own in enumerate(table(life).tolist()):
        total, cusum, _, _ = naive(own)
        assert float(evidence.totals[bet]) == pytest.approx(total, abs=1e-6)
        assert float(evidence.cusums[bet]) == pytest.approx(cusum, abs=1e-6)
        # Where a path comes back to its lowest point, rounding decides which of the two it is.
        assert any(
            float(evidence.cusum_maxima[bet]) == pytest.approx(one, abs=1e-6)
            for one in cusum_maxima(own)
        )
    assert np.isfinite(sums).all()
    ends = np.logaddexp.reduce(evidence.totals + np.log(even(len(evidence.totals))))
    assert float(sums[-1]) == pytest.approx(log_plus_one(float(ends)), abs=1e-9)


@settings(deadline=None)
@given(steps=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_spans_heights_and_tops_are_counted_from_the_lowest_point(steps: list[int]) -> None:
    """In powers of two, where no rounding can move a lowest point."""
    gains = [step * math.log(2) for step in steps]
    evidence = added(Evidence.none(1), np.exp2([steps]), book_of(1), even(1)).evidence
    _, cusum, run_length, _ = naive(gains)
    assert float(evidence.run_lengths[0]) == run_length
    assert float(evidence.cusums[0]) == pytest.approx(cusum)
    assert any(float(evidence.cusum_maxima[0]) == pytest.approx(one) for one in cusum_maxima(gains))


@settings(deadline=None)
@given(life=lives, data=st.data())
def test_it_does_not_matter_how_a_stream_is_cut(
    life: list[list[float]], data: st.DataObject
) -> None:
    left, sizes = len(life), []
    while left:
        sizes.append(data.draw(st.integers(1, left)))
        left -= sizes[-1]
    evidence, sums = played(table(life), sizes)
    whole, highest = played(table(life), [len(life)])
    assert evidence.totals == close(whole.totals)
    assert evidence.cusums == close(whole.cusums)
    # At the lowest point itself there is no maximum; where a path comes back to it, rounding, which
    # goes by how the stream is cut, decides from which of the two the maximum counts.
    for bet in np.flatnonzero(whole.cusums > 1e-6):
        expected = cusum_maxima(table(life)[bet].tolist())
        for got in (evidence, whole):
            assert any(got.cusum_maxima[bet] == close(np.array(one)) for one in expected)
    assert sums.max() == close(highest[0])


def test_spans_do_not_depend_on_the_cut_where_the_lowest_point_is_clear() -> None:
    life = np.random.default_rng(0).normal(size=(4, 300))
    whole, _ = played(life, [300])
    assert played(life, [1] * 300)[0].levels == close(whole.levels)
    assert played(life, [7] * 42 + [6])[0].levels == close(whole.levels)
    assert whole.run_lengths.tolist() == [naive(own)[2] for own in life.tolist()]


def test_it_starts_with_nothing() -> None:
    none = Evidence.none(3)
    assert none.totals.tolist() == [-math.inf] * 3
    assert (
        none.cusums.tolist() == none.run_lengths.tolist() == none.cusum_maxima.tolist() == [0.0] * 3
    )
    evidence, highest, *_ = added(none, np.ones((3, 1)), book_of(3), even(3))
    # R = (1 + 0) e, and e is one.
    assert evidence.totals.tolist() == pytest.approx([0] * 3)
    assert highest == pytest.approx(math.log(2))


def test_bets_that_neither_gain_nor_lose_count_samples() -> None:
    _, sums = played(np.zeros((2, 1000)), [1] * 300 + [700])
    assert np.expm1(sums) == pytest.approx([*range(1, 301), 1000])


def test_a_long_loss_is_forgotten_and_a_long_gain_never_overflows() -> None:
    worse, better = np.full((1, 5000), math.exp(-3)), np.full((1, 5000), math.exp(3))
    evidence = added(Evidence.none(1), worse, book_of(1), even(1)).evidence
    assert evidence.run_lengths == evidence.cusums == 0
    evidence, highest, *_ = added(evidence, better, book_of(1), even(1))
    assert evidence.run_lengths == 5000
    assert highest == pytest.approx(15_000, abs=1)
    evidence = added(evidence, worse[:, :4000], book_of(1), even(1)).evidence
    assert evidence.cusum_maxima == pytest.approx(15_000)
    assert evidence.cusums == pytest.approx(3000)


def test_it_grows_by_one_a_sample_on_average_as_long_as_nothing_changes() -> None:
    """R - n is a martingale: 20,000 streams of 25 samples."""
    e_values = 0.5 + np.random.default_rng(1).random((20_000, 25))
    evidence = added(Evidence.none(20_000), e_values, book_of(20_000), even(20_000)).evidence
    final = np.exp(evidence.totals)
    error = float(final.std()) / 20_000**0.5
    assert float(final.mean()) == pytest.approx(25, abs=4 * error)
    assert error < 0.3


def test_the_threshold_in_samples_is_passed_after_as_many_or_more() -> None:
    random = np.random.default_rng(2)
    run_times = []
    for _ in range(300):
        sums = steps(0.5 + random.random((1, 3000)), even(1))
        run_times.append(next(n for n, sum_ in enumerate(sums, 1) if sum_ >= math.log1p(100)))
    mean = sum(run_times) / len(run_times)
    assert 95 < mean < 150


def test_e_values_of_zero_leave_no_evidence() -> None:
    """A closed bet pays next to nothing, which a float may hold as zero."""
    evidence = added(
        Evidence.none(2), np.array([[2.0, 0, 0], [1, 2, 2]]), book_of(2), even(2)
    ).evidence
    assert evidence.levels[:, 0].tolist() == [-math.inf, 0, 0, 0, 0]
    assert evidence.cusums[1] == pytest.approx(math.log(4))


BETS = BetTable(
    tuple(RankBet(signal, 0, False, 0.5, 0.5, 1.0) for signal in ("a", "b", "a")),
    (CellBet("c", 0, 0, 0.5, 1.0),),
)


def read(*levels: list[float]) -> Reading:
    """Of totals, cusums, cusum_maxima, run_lengths and ages."""
    return Evidence(np.array(levels)).read(BETS, BETS.weights)


def test_a_reading_fuses_all_bets_and_those_of_each_signal() -> None:
    got = read([3, 1, -math.inf, 2], *[[0.0] * 4] * 4)
    parts = [math.exp(3) / 4, math.e / 4, math.exp(2) / 4]
    assert got.statistic == pytest.approx(math.log1p(sum(parts)))
    assert got.statistics == pytest.approx([math.log1p(part) for part in (*parts, sum(parts))])
    assert (got.loudest, got.leader) == (0, 0)
    assert Evidence.none(4).read(BETS, BETS.weights) == Reading([0] * 4, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("loudest", [0, 1, 2])
def test_the_loudest_signal_is_the_one_whose_bets_have_gained_most_together(loudest: int) -> None:
    """Not the one of the bet that leads, and never what all signals are together."""
    totals = np.array([2.0, 2.5, 2.0, 2.5])
    totals[np.array([0, 1, 0, 2]) == loudest] += 0.2
    got = read(totals.tolist(), *[[0.0] * 4] * 4)
    assert got.statistics[loudest] == max(got.statistics[:-1]) < got.statistic
    assert got.loudest == loudest


def test_the_loudest_signal_is_told_where_no_other_bet_has_a_weight() -> None:
    levels = np.array([[3.0, 1, 2, 2], *[[0.0] * 4] * 4])
    for only, signal in enumerate((0, 1, 0, 2)):
        weights = (np.arange(4) == only).astype(np.float64)
        assert Evidence(levels).read(BETS, weights).loudest == signal


def test_a_reading_is_of_the_weights_that_are_asked_about() -> None:
    """One answer is kept, and must not be given to another question."""
    levels = np.array([[3.0, 1, 2, 2], *[[0.0] * 4] * 4])
    evidence = Evidence(levels)
    for weights in (even(4), np.array([0, 0, 0.5, 0.5]), even(4)):
        fresh = Evidence(levels).read(BETS, weights)
        assert evidence.read(BETS, weights) == evidence.read(BETS, weights) == fresh
    assert evidence.read(BETS, even(4)).statistic > math.log1p(math.exp(2))


def test_a_bet_without_a_weight_does_not_count() -> None:
    levels = np.array([[-math.inf, 1, 2, 3], *[[0.0] * 4] * 4])
    got = Evidence(levels).read(BETS, np.array([0, 0, 0.5, 0.5]))
    assert got.statistic == pytest.approx(math.log1p((math.exp(2) + math.exp(3)) / 2))
    assert got.statistics[1] == 0


def test_of_bets_about_as_loud_the_latest_start_counts() -> None:
    run_lengths, ages, high = [90.0, 20, 40, 5], [80.0, 12, 30, 4], [1e9] * 4
    got = read([9, 9 - ALIKE + 0.01, 8, 0], high, high, run_lengths, ages)
    assert (got.run_length, got.age) == (20, 12)
    got = read([9, 9 - ALIKE - 0.01, 8, 0], high, high, run_lengths, ages)
    assert (got.run_length, got.age) == (40, 30)


def test_a_change_began_before_it_had_gained_more_than_chance_may() -> None:
    """At 0.1 nats a sample, after a long stretch at half of that, which is no change."""
    gains = np.array([[CHANCE / 2] + [0.0] * 300 + [0.1] * 200] * 4)
    evidence = added(Evidence.none(4), np.exp(gains), book_of(4), even(4)).evidence
    assert evidence.read(BETS, BETS.weights).age == pytest.approx(200, abs=0.6 * CHANCE / 0.1)
    steep = np.array([[CHANCE / 2] + [0.0] * 300 + [2.0] * 20] * 4)
    evidence = added(Evidence.none(4), np.exp(steep), book_of(4), even(4)).evidence
    assert evidence.read(BETS, BETS.weights).age == pytest.approx(20, abs=2)


def test_a_probe_adds_up_by_itself_beside_the_evidence() -> None:
    """It begins at another moment; whether numbers are small or large does not matter."""
    rng = np.random.default_rng(3)
    for step in (0.5, 5.0, 150.0):
        e_values = np.exp(rng.normal(step, 1, (3, 40)))
        before = added(Evidence.none(3), e_values[:, :10], book_of(3), even(3)).evidence
        got = added(before, e_values[:, 10:], book_of(3), even(3), Evidence.none(3).totals)
        alone = added(Evidence.none(3), e_values[:, 10:], book_of(3), even(3))
        assert got.probe == close(alone.evidence.totals)
        assert got.probe_highest == close(alone.highest)
        whole = added(Evidence.none(3), e_values, book_of(3), even(3))
        assert got.evidence.levels == close(whole.evidence.levels)
        assert got.highest == close(whole.highest)


@pytest.mark.parametrize("step", [0.0, 5.0, 150.0])  # the last two by logarithms, too
def test_columns_of_ones_beside_the_bets_say_nothing(step: float) -> None:
    e_values = np.exp(np.random.default_rng(5).normal(step, 1, (3, 200)))
    alone = added(Evidence.none(3), e_values, book_of(3), even(3))
    padded = added(Evidence.none(3), e_values, book_of(3), even(3), further=5)
    assert padded.evidence.levels == close(alone.evidence.levels)
    assert padded.probe == close(alone.probe)
    assert (padded.highest, padded.probe_highest) == close((alone.highest, alone.probe_highest))


def test_numbers_that_become_too_large_within_a_batch_are_added_up_by_logarithms() -> None:
    rng = np.random.default_rng(4)
    gains = rng.normal(2.0, 1.0, (3, 500))
    whole = added(Evidence.none(3), np.exp(gains), book_of(3), even(3))
    assert whole.highest > 709
    assert np.isfinite(whole.evidence.levels).all()
    evidence, highest = Evidence.none(3), 0.0
    for column in np.split(np.exp(gains), 500, 1):
        evidence, highest, *_ = added(evidence, column, book_of(3), even(3))
    assert evidence.levels == close(whole.evidence.levels)
    assert highest == close(whole.highest)


def test_what_it_was_given_is_not_changed() -> None:
    evidence = added(Evidence.none(2), np.full((2, 9), 1.5), book_of(2), even(2)).evidence
    probe, levels = np.zeros(2), evidence.levels.copy()
    for step in (1.5, math.exp(150)):
        added(evidence, np.full((2, 9), step), book_of(2), even(2), probe)
        assert np.array_equal(evidence.levels, levels)
        assert not probe.any()


def test_what_the_highest_bet_has_lost_again_is_told() -> None:
    assert read([0] * 4, [1, 2, 3, 4], [5, 8, 7, 4], [0] * 4, [0] * 4).lost == 6
