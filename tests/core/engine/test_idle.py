"""Tests for the core.learners.per_class.flush module: who is fitted when the stream is quiet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.learners.per_class.flush import LARGEST_SHARE, due_when_quiet

OWNERS = st.lists(
    st.integers(0, 5000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))
)


def test_nobody_is_due_where_there_is_nobody() -> None:
    assert due_when_quiet([], []) == []


@given(OWNERS)
def test_nobody_is_left_with_more_than_the_largest_share(owners: list[tuple[int, int]]) -> None:
    waiting, samples = [one for one, _ in owners], [total for _, total in owners]
    due = due_when_quiet(waiting, samples)
    assert due == sorted(set(due))
    for index, (count, total) in enumerate(owners):
        if index in due:
            assert count > 0
        else:
            assert count < LARGEST_SHARE * max(1, total)


def test_a_stream_that_pauses_after_every_sample_has_few_fits() -> None:
    fitted, fits = [0, 0], 0
    for n in range(1, 10_001):
        samples = [n, 2 * n]
        due = due_when_quiet([n - fitted[0], 2 * n - fitted[1]], samples)
        fits += bool(due)
        for index in due:
            fitted[index] = samples[index]
    assert fits < 250
