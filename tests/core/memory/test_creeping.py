"""Tests for core.memory.creeping."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from core.memory.course import Course
from core.memory.creeping import LOOK_EVERY, Creeping
from core.memory.feature_drift import MOST_FEATURES, compared


def test_of_very_wide_samples_nothing_is_compared() -> None:
    for d, known in ((MOST_FEATURES, True), (MOST_FEATURES + 1, False)):
        course = Course()
        for part in range(8):
            course = course.observed(torch.ones(200, d), 200 * part + 200)
        assert (compared(course) is not None) is known


@given(st.lists(st.sets(st.integers(0, 5)), max_size=12))
def test_a_feature_is_told_once_and_when_it_drifts_twice_in_a_row(looks: list[set[int]]) -> None:
    creeping, told = Creeping(), list[int]()
    for number, drifting in enumerate(looks):
        samples = (number + 1) * LOOK_EVERY
        assert creeping.is_due(samples)
        assert not creeping.is_due(samples - 1)
        creeping, news = creeping.looked(samples, sorted(drifting))
        before = looks[number - 1] if number else set()
        assert set(news) == (drifting & before) - set(told)
        told += news
    assert creeping.told == tuple(told)
    assert len(set(told)) == len(told)
