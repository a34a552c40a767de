"""Tests for the service.broker.burial module, on a real Redis."""

from __future__ import annotations

import uuid

from hypothesis import HealthCheck, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from service.broker.burial import Burial
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from tests.service.broker.feeding import held, letters


def test_a_rejected_entry_is_kept_whole_with_the_reason(feed: Feed) -> None:
    feed.open(Position())
    fields = {b"kind": b"batch", b"x": b"1" * 2_000_000}
    entry = Entry("7-0", fields)
    for _ in range(2):  # the second time after a crash
        assert feed.dead_letters.bury(entry, "invalid_batch", {"reason": "invalid_batch"}) == (0, 0)
    assert letters(feed) == [{"reason": "invalid_batch", "size": 2_000_005, "whole": True}]
    assert feed.client.hgetall(feed.keys.dead_letter("7-0")) == fields
    assert feed.client.get(feed.keys.dead_letters_bytes) == b"2000005"


def test_a_letter_that_was_dropped_does_not_come_back_after_a_crash(feed: Feed) -> None:
    feed.open(Position())
    entry = Entry("7-0", {b"kind": b"batch"})
    feed.dead_letters.bury(entry, "x", {})
    feed.client.xdel(feed.keys.dead_letters, "7-0")
    feed.dead_letters.bury(entry, "x", {})
    assert letters(feed) == []


def test_checkpoints_and_what_is_larger_than_the_store_are_kept_as_records(feed: Feed) -> None:
    feed.open(Position())
    feed.dead_letters = Burial(feed, 1000, 100)
    feed.dead_letters.bury(Entry("1-0", {b"kind": b"batch", b"x": b"1" * 80}), "x", {})
    feed.dead_letters.bury(Entry("2-0", {b"kind": b"batch", b"x": b"1" * 101}), "x", {})
    feed.dead_letters.bury(Entry("3-0", {b"kind": b"restore", b"x": b"1"}), "x", {})
    assert [one["whole"] for one in letters(feed)] == [True, False, False]
    assert held(feed) == 85


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    most=st.integers(1, 5),
    most_bytes=st.integers(1, 100),
)
@of_hypothesis(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
def test_the_oldest_letters_make_room_and_are_counted(
    feed: Feed, sizes: list[int], most: int, most_bytes: int
) -> None:
    feed.keys = Keys(uuid.uuid4().hex)
    feed.client.set(feed.keys.fence, feed.token)
    letters_kept = Burial(feed, most, most_bytes)
    kept: list[tuple[int, int]] = []
    for i, size in enumerate(sizes, 1):
        entry = Entry(f"{i}-0", {b"x": b"1" * size} if size else {})
        kept_size = entry.nbytes if 0 < entry.nbytes <= most_bytes else 0
        out: list[tuple[int, int]] = []
        while kept and (len(kept) >= most or sum(n for _, n in kept) + kept_size > most_bytes):
            out.append(kept.pop(0))
        kept.append((i, kept_size))
        expected = (len(out), sum(n for _, n in out))
        assert letters_kept.bury(entry, "x", {"i": i}) == expected
        assert letters_kept.bury(entry, "x", {"i": i}) == expected  # as after a crash
        assert [one["i"] for one in letters(feed)] == [i for i, _ in kept]
        total = sum(n for _, n in kept)
        assert held(feed) == int(feed.client.get(feed.keys.dead_letters_bytes) or 0) == total
