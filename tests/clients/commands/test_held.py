"""Tests for the clients.evaluation.retention module: what is still held, beside test data."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from clients.data.tasks import SLT
from clients.evaluation.results import Certainty, Milestone
from clients.evaluation.retention import still_held
from clients.http.answers import ClassHeld, SubTaskHeld


def milestone(sub_task: int, *per_class: tuple[float, float, float]) -> Milestone:
    values = tuple(Certainty(*numbers) for numbers in per_class)
    return Milestone(sub_task, (), 0, 0, 0.0, 0.0, (), values)


def held_row(sub_task: int, *labels: int | str) -> SubTaskHeld:
    numbers = (1.0, 0.75, 1.0, 0.5, -1.0, -4.0)
    classes = tuple(ClassHeld(label, 10, *numbers) for label in labels)
    known = numbers if labels else (None, None, None, None, -1.0, -4.0)
    return SubTaskHeld(sub_task, 10 * len(labels), classes, *known, 9)


def test_what_is_still_held_stands_beside_the_test_data_of_the_same_classes():
    slt = SLT.parse("0,1/2/3")
    points = [
        milestone(0, (1.0, 0.9, -1.0), (0.8, 0.7, -3.0), (0.0, 0.0, -9.0), (0.0, 0.0, -9.0)),
        milestone(1, (0.9, 0.8, -2.0), (0.7, 0.6, -4.0), (1.0, 1.0, -5.0), (0.0, 0.0, -9.0)),
        milestone(2, (0.5, 0.4, -3.0), (0.7, 0.6, -5.0), (0.9, 0.8, -6.0), (1.0, 1.0, -1.0)),
    ]
    # The second boundary was missed: the service took 2 and 3 for one sub-task.
    rows = still_held([held_row(0, 1, 0), held_row(1, 2, 3)], points, slt)
    assert [row.classes for row in rows] == [(1, 0), (2, 3)]
    first, second = rows
    assert first.own_then == Certainty(1.0, 1.0, -1.0)
    assert first.own_now == Certainty(0.75, 0.5, -4.0)
    assert astuple(first.test_then) == pytest.approx((0.9, 0.8, -2.0))
    assert astuple(first.test_now) == pytest.approx((0.6, 0.5, -4.0))
    # Of 2 and 3 both had been streamed when the third sub-task was over, not before.
    assert astuple(second.test_then) == astuple(second.test_now)
    assert astuple(second.test_now) == pytest.approx((0.95, 0.9, -3.5))


def test_without_labels_or_test_data_there_is_nothing_to_compare():
    slt = SLT.parse("0/1")
    points = [
        milestone(0, (1.0, 1.0, -1.0), (0.0, 0.0, -9.0)),
        milestone(1, *[(1.0, 1.0, -1.0)] * 2),
    ]
    unlabelled, elsewhere = still_held([held_row(0), held_row(1, 0, "of before")], points, slt)
    assert np.isnan([unlabelled.own_now.accuracy, unlabelled.own_now.probability]).all()
    assert unlabelled.own_now.log_likelihood == -4.0
    assert np.isnan(astuple(unlabelled.test_now)).all()
    assert elsewhere.own_now.accuracy == 0.75
    assert np.isnan([*astuple(elsewhere.test_then), *astuple(elsewhere.test_now)]).all()
