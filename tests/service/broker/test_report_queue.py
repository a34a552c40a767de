"""Tests for the service.broker.report_queue module, on a real Redis."""

from __future__ import annotations

from service.broker.entries import Position
from service.broker.feed import Feed
from tests.service.broker.feeding import events


def test_reports_made_again_after_a_crash_appear_once(feed: Feed) -> None:
    feed.open(Position())
    for _ in range(2):
        for index in range(3):
            feed.reports.add(feed.keys.events, "5-1", index, b"%d" % index)
        feed.reports.flush()
    assert events(feed) == [b"0", b"1", b"2"]


def test_old_reports_make_room(feed: Feed) -> None:
    feed.open(Position())
    for i in range(1, 500):
        feed.reports.add(feed.keys.events, f"{i}-0", 0, b"x" * 500)
    feed.reports.flush()
    assert 100 <= feed.client.xlen(feed.keys.events) < 300
