"""Tests for the service.broker.requests module, on a real Redis."""

from __future__ import annotations

from service.broker.feed import Feed


def test_requests_are_handed_out_once(feed: Feed) -> None:
    feed.client.rpush(feed.keys.requests, "checkpoint a", "checkpoint b")
    assert feed.requests.new() == ["checkpoint a", "checkpoint b"]
    assert feed.requests.new() == []
