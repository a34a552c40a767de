"""Tests for clients.evaluation.too_short: sub-tasks that are too short for the detector."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from clients.evaluation.too_short import TooShort, expected, seen
from clients.http.answers import DriftState, HistoryPoint

STATE = DriftState(
    sub_task=0,
    boundaries=0,
    armed=False,
    detector="sequential",
    inlier_rate=None,
    inlier_rate_mean=None,
    statistic=None,
    threshold=None,
    samples_since_boundary=0,
    batches_since_boundary=0,
    armed_in=200,
    raw={"armed_in": 200},
)


def test_what_is_shorter_than_the_need_is_told_before_anything_is_sent() -> None:
    assert expected(STATE, [120, 200, 30, 10]) == (TooShort(0, 120, 80), TooShort(2, 30, 170))
    assert expected(replace(STATE, detector="none", armed_in=None), [1, 1]) == ()
    assert expected(replace(STATE, raw={}), [1, 1]) == ()  # a service of an earlier release
    assert expected(STATE, [1]) == ()


def test_a_need_that_cannot_be_known_is_no_number() -> None:
    found = expected(replace(STATE, armed_in=None), [600, 500, 90])
    assert found == (TooShort(1, 500, None),)
    assert "depends on the data" in found[0].told(1)


@pytest.mark.parametrize(("epochs", "wanted"), [(1, 2), (2, 3)])
def test_it_says_how_many_epochs_would_do(epochs: int, wanted: int) -> None:
    text = TooShort(3, 150, 50).told(epochs)
    assert "Sub-task 3 has 150 samples, 50 fewer" in text
    assert f"--epochs {wanted} " in text
    assert "GMR_WARM_UP" in text
    assert wanted == math.ceil(epochs * 200 / 150)


def point(armed: bool, armed_in: int | None) -> HistoryPoint:
    return HistoryPoint(
        *("1-0", "1-0", 0.0, 0, 0, 100, 0, None, None, None), armed=armed, armed_in=armed_in
    )


def test_afterwards_it_is_whether_the_detector_was_armed_when_the_next_began() -> None:
    sub_task, samples = [0, 0, 1, 2, 2, 3], [100, 50, 100, 100, 100, 100]
    points = [
        *(point(False, 100), point(False, 0)),
        point(True, 100),
        *(point(False, 60), point(False, None)),
        point(False, None),
    ]
    assert seen(sub_task, samples, points) == (TooShort(1, 100, 100), TooShort(2, 200, None))
    assert seen(sub_task, samples, [None] * 6) == ()
