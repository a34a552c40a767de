"""Tests for core.memory.creeping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.memory.creeping import LOOK_EVERY, Creeping


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
