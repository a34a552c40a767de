"""Tests for the service.broker.travelling_names module, on a real Redis."""

from __future__ import annotations

import orjson

from service.broker.entries import Position
from service.broker.feed import Feed


def kept(feed: Feed) -> list[str]:
    names: list[str] = orjson.loads(feed.client.get(feed.keys.feature_names) or b"[]")
    return names


def test_names_of_an_upload_are_taken_once_however_often_its_entry_is_read(feed: Feed) -> None:
    feed.open(Position())
    names = feed.feature_names
    assert names.kept(2) is None
    names.take(["a", "b"], "5-9")
    assert names.kept(2) == ("a", "b")
    assert names.kept(3) is names.kept(None) is None
    feed.client.set(feed.keys.feature_names, b'["load", "speed"]')  # somebody names them
    names.take(["x", "y"], "5-2")
    names.take(["a", "b"], "5-9")
    assert kept(feed) == ["load", "speed"]
    names.take(["x", "y"], "5-10")
    assert kept(feed) == ["x", "y"]
