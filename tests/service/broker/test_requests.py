"""Tests for the service.broker.requests module, on a real Redis."""

from __future__ import annotations

from service.broker.branch import Branch
from service.broker.feed import Feed
from service.wire import Control


def test_requests_are_handed_out_once(feed: Feed) -> None:
    feed.client.rpush(feed.keys.requests, "checkpoint a", "checkpoint b")
    assert feed.requests.new() == ["checkpoint a", "checkpoint b"]
    assert feed.requests.new() == []


def test_a_rollback_that_is_accepted_and_not_done_names_its_version(feed: Feed) -> None:
    assert feed.requests.going_back_to() is None
    asked = feed.client.xadd(feed.keys.input, dict(Control("rollback", version=7).to_entry()))
    feed.client.set(feed.keys.restoring, asked)
    assert feed.requests.going_back_to() == 7
    # The trainer has decided about an earlier one, and then about this one.
    for decided, expected in (("1-0", 7), (asked.decode(), None)):
        feed.client.set(feed.keys.branch, Branch().to_json(decided=decided))
        assert feed.requests.going_back_to() == expected
    feed.client.delete(feed.keys.branch)
    for fields in (Control("restore", checkpoint=b"...").to_entry(), {"kind": "damaged"}):
        feed.client.set(feed.keys.restoring, feed.client.xadd(feed.keys.input, dict(fields)))
        assert feed.requests.going_back_to() is None
    feed.client.delete(feed.keys.input)
    assert feed.requests.going_back_to() is None
