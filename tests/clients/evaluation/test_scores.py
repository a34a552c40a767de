"""Tests for the clients.evaluation.scores module."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clients.evaluation import scores
from clients.evaluation.scores import Latency, Position, Spread

# Three sub-tasks, computed by hand below.
MATRIX = [
    [0.99, 0.00, 0.00],
    [0.95, 0.98, 0.00],
    [0.90, 0.99, 0.97],
]

matrices = st.integers(1, 6).flatmap(
    lambda n: hnp.arrays(np.float64, (n, n), elements=st.floats(0, 1))
)


# Accuracy


def test_accuracy_is_the_share_of_equal_labels():
    assert scores.accuracy(np.array(["a", "b", "b"]), np.array(["a", "b", "a"])) == 2 / 3


def test_accuracy_of_no_samples_is_not_a_number():
    assert math.isnan(scores.accuracy(np.array([]), np.array([])))


def test_arrays_of_different_lengths_are_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        scores.accuracy(np.zeros(2), np.zeros(3))


def test_a_row_of_the_matrix_looks_at_the_true_classes_of_each_sub_task():
    true = np.array([0, 0, 1, 1, 2, 3])
    predicted = np.array([0, 2, 1, 1, 2, 2])
    row = scores.accuracy_per_sub_task(true, predicted, [(0, 1), (2, 3)])
    assert row.tolist() == [0.75, 0.5]


def test_a_sub_task_without_test_samples_is_not_a_number():
    row = scores.accuracy_per_sub_task(np.array([0]), np.array([0]), [(0,), (7,)])
    assert row[0] == 1
    assert math.isnan(row[1])


def test_long_names_of_classes_are_not_cut_to_the_length_of_the_labels():
    true = np.array(["cat", "dog"])
    row = scores.accuracy_per_sub_task(true, true, [("cat",), ("dogfish",)])
    assert row[0] == 1
    assert math.isnan(row[1])


def test_the_confusion_matrix_has_a_row_per_true_class():
    true, predicted = np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1])
    assert scores.confusion_matrix(true, predicted, [0, 1]).tolist() == [[1, 2], [0, 1]]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_the_diagonal_of_the_confusion_matrix_holds_the_right_answers(pairs):
    true, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    counts = scores.confusion_matrix(true, predicted, range(5))
    assert counts.sum() == len(pairs)
    assert counts.trace() / len(pairs) == pytest.approx(scores.accuracy(true, predicted))


# Scores of the accuracy matrix, by hand


def test_average_accuracy_is_the_mean_of_the_last_row():
    assert scores.average_accuracy(MATRIX) == pytest.approx((0.90 + 0.99 + 0.97) / 3)


def test_backward_transfer_compares_the_end_with_the_diagonal():
    assert scores.backward_transfer(MATRIX) == pytest.approx(((0.90 - 0.99) + (0.99 - 0.98)) / 2)


def test_forgetting_compares_the_best_earlier_accuracy_with_the_end():
    assert scores.forgetting_per_sub_task(MATRIX) == pytest.approx([0.09, -0.01])
    assert scores.forgetting(MATRIX) == pytest.approx(0.04)


def test_forgetting_looks_at_the_best_time_not_at_the_first():
    rising_then_falling = [[0.5, 0, 0], [0.9, 0.8, 0], [0.6, 0.8, 0.7]]
    assert scores.forgetting_per_sub_task(rising_then_falling)[0] == pytest.approx(0.3)
    assert scores.backward_transfer(rising_then_falling) == pytest.approx(0.05)


def test_average_anytime_accuracy_leaves_out_what_was_still_to_come():
    by_hand = (0.99 + (0.95 + 0.98) / 2 + (0.90 + 0.99 + 0.97) / 3) / 3
    assert scores.average_anytime_accuracy(MATRIX) == pytest.approx(by_hand)


def test_a_single_sub_task_forgets_nothing_and_transfers_nothing():
    assert math.isnan(scores.backward_transfer([[0.9]]))
    assert math.isnan(scores.forgetting([[0.9]]))
    assert scores.average_accuracy([[0.9]]) == scores.average_anytime_accuracy([[0.9]]) == 0.9


@pytest.mark.parametrize("shape", [(0, 0), (2, 3), (4,)])
def test_a_matrix_that_is_not_square_is_refused(shape):
    with pytest.raises(ValueError, match="accuracy matrix has shape"):
        scores.average_accuracy(np.zeros(shape))


@given(matrices)
def test_forgetting_is_at_least_the_loss_since_the_diagonal(matrix):
    if len(matrix) > 1:
        assert scores.forgetting(matrix) >= -scores.backward_transfer(matrix) - 1e-12


@given(matrices)
def test_scores_stay_within_their_ranges(matrix):
    assert 0 <= scores.average_accuracy(matrix) <= 1
    assert 0 <= scores.average_anytime_accuracy(matrix) <= 1
    assert np.all(np.abs(scores.forgetting_per_sub_task(matrix)) <= 1)


@given(st.integers(2, 6), st.floats(0, 1))
def test_a_model_that_never_changes_forgets_nothing(n, value):
    matrix = np.full((n, n), value)
    assert scores.forgetting(matrix) == pytest.approx(0)
    assert scores.backward_transfer(matrix) == pytest.approx(0)


# Prequential accuracy


def test_prequential_accuracy_weighs_batches_by_their_labelled_samples():
    assert scores.prequential_accuracy([1.0, 0.0], [30, 10]) == 0.75


def test_batches_without_labels_do_not_count():
    assert scores.prequential_accuracy([math.nan, 0.5], [0, 10]) == 0.5
    assert math.isnan(scores.prequential_accuracy([math.nan], [0]))


def test_the_running_value_forgets_what_left_the_window():
    running = scores.running_prequential_accuracy([0, 0, 1, 1], [5, 5, 5, 5], window=2)
    assert running.tolist() == [0, 0, 0.5, 1]


def test_a_window_without_labels_has_no_value():
    running = scores.running_prequential_accuracy([1, math.nan, math.nan], [5, 0, 0], window=2)
    assert running[1] == 1
    assert math.isnan(running[2])


def test_a_window_of_no_batches_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        scores.running_prequential_accuracy([1.0], [1], window=0)


batches = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=1, max_size=40)


@given(batches, st.integers(1, 50))
def test_the_running_value_is_the_overall_one_of_its_window(rows, window):
    accuracies, labelled = (np.array(column) for column in zip(*rows, strict=True))
    running = scores.running_prequential_accuracy(accuracies, labelled, window)
    for i in range(len(rows)):
        chosen = slice(max(0, i + 1 - window), i + 1)
        expected = scores.prequential_accuracy(accuracies[chosen], labelled[chosen])
        assert running[i] == pytest.approx(expected, abs=1e-9)


# Boundaries


def at(batch: int, batch_size: int = 100) -> Position:
    return Position(batch, batch * batch_size)


def test_a_change_found_with_the_first_batch_has_a_delay_of_one_batch():
    score = scores.match_boundaries([at(31)], [at(30)], tolerance=1000)
    assert score.delays_batches == (1,)
    assert score.delays_samples == (100,)
    assert (score.changes, score.missed, score.false) == (1, (), ())


def test_a_report_before_any_change_is_false():
    score = scores.match_boundaries([at(10)], [at(30)], tolerance=1000)
    assert (score.matches, score.missed, score.false) == ((), (at(30),), (at(10),))


def test_a_report_at_the_last_batch_before_the_change_is_false():
    """It was made from samples of the old sub-task only."""
    score = scores.match_boundaries([at(30)], [at(30)], tolerance=1000)
    assert score.false == (at(30),)


def test_a_second_report_of_the_same_change_is_false():
    score = scores.match_boundaries([at(31), at(33)], [at(30)], tolerance=1000)
    assert [match.found for match in score.matches] == [at(31)]
    assert score.false == (at(33),)


def test_a_report_later_than_the_tolerance_is_false_and_the_change_missed():
    true = [at(30)]
    assert scores.match_boundaries([at(40)], true, tolerance=1000).delays_batches == (10,)
    late = scores.match_boundaries([at(41)], true, tolerance=1000)
    assert (late.missed, late.false) == ((at(30),), (at(41),))


def test_a_report_is_never_credited_to_a_change_before_the_latest():
    score = scores.match_boundaries([at(21), at(22)], [at(10), at(20)], tolerance=10_000)
    assert [match.change for match in score.matches] == [2]
    assert (score.missed, score.false) == ((at(10),), (at(22),))


def test_a_tolerance_of_nothing_is_refused():
    with pytest.raises(ValueError, match="tolerance is 0"):
        scores.match_boundaries([], [], tolerance=0)


positions = st.lists(st.integers(0, 60).map(at), max_size=8)


@given(positions, st.lists(st.integers(0, 60).map(at), max_size=8, unique=True), st.integers(1, 9))
def test_every_change_and_every_report_is_accounted_for_once(found, true, tolerance):
    score = scores.match_boundaries(found, true, tolerance=tolerance * 100)
    assert sorted([match.found for match in score.matches] + [*score.false]) == sorted(found)
    assert sorted([match.true for match in score.matches] + [*score.missed]) == sorted(true)
    assert all(0 < delay <= tolerance * 100 for delay in score.delays_samples)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True).map(sorted))
def test_reports_one_batch_after_every_change_find_all_of_them(starts):
    score = scores.match_boundaries([at(b + 1) for b in starts], [at(b) for b in starts], 100)
    assert score.delays_batches == (1,) * len(starts)


# Outliers


def test_auroc_of_separated_scores_is_one_and_of_equal_ones_a_half():
    assert scores.auroc([5, 6], [1, 2]) == 1
    assert scores.auroc([1, 2], [5, 6]) == 0
    assert scores.auroc([3, 3], [3]) == 0.5
    assert math.isnan(scores.auroc([], [1]))


small = st.lists(st.integers(-5, 5), min_size=1, max_size=15)


@given(small, small)
def test_auroc_is_the_share_of_pairs_in_the_right_order(typical, strange):
    pairs = [(t > s) + 0.5 * (t == s) for t in typical for s in strange]
    assert scores.auroc(typical, strange) == pytest.approx(sum(pairs) / len(pairs))


# Time and seeds


def test_latency_of_a_known_set():
    latency = Latency.of(np.arange(1, 102) / 1000)
    assert (latency.requests, latency.p50, latency.max) == (101, 0.051, 0.101)
    assert latency.p90 == pytest.approx(0.091)
    assert latency.p99 == pytest.approx(0.1)


def test_no_requests_have_no_latency():
    latency = Latency.of([])
    assert latency.requests == 0
    assert math.isnan(latency.p99)


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=50))
def test_latency_quantiles_are_ordered(seconds):
    latency = Latency.of(seconds)
    assert latency.p50 <= latency.p90 <= latency.p99 <= latency.max


def test_spread_over_seeds_leaves_out_what_does_not_apply():
    spread = Spread.of([0.9, 0.92, math.nan])
    assert spread.n == 2
    assert spread.mean == pytest.approx(0.91)
    assert spread.std == pytest.approx(0.0141421, rel=1e-4)
    assert (spread.min, spread.max) == (0.9, 0.92)


def test_a_single_seed_has_no_standard_deviation():
    assert math.isnan(Spread.of([0.9]).std)
    assert Spread.of([math.nan]).n == 0
