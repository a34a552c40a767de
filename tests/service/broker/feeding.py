"""Feeds of models that nobody else uses, entries in them, and what is there to read."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from service.broker.connection import SyncClient
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import Lease


def add(feed: Feed, n: int, size: int = 10) -> list[str]:
    """Append n entries; their ids."""
    fields = {"x": b"x" * size}
    return [feed.client.xadd(feed.keys.input, fields).decode() for _ in range(n)]


def opened(client: SyncClient) -> Feed:
    """The feed of a model that nobody else uses."""
    model = uuid.uuid4().hex
    lease = Lease(client, Keys(model))
    lease.acquire()
    feed = Feed(client, model, lease, events_length=10, history_length=10)
    feed.open(Position())
    return feed


def read(feed: Feed) -> list[str]:
    """Ids of all that is there to read."""
    found: list[str] = []
    while entries := feed.read(block_ms=0):
        found += [entry.id for entry in entries]
    return found


def events(feed: Feed) -> list[bytes]:
    return [fields[b"data"] for _, fields in feed.client.xrange(feed.keys.events)]


def letters(feed: Feed) -> list[dict[str, Any]]:
    rows: Any = feed.client.xrange(feed.keys.dead_letters)
    return [orjson.loads(fields[b"data"]) for _, fields in rows]


def held(feed: Feed) -> int:
    """Bytes of all payloads that are there."""
    return sum(
        len(value)
        for key in feed.client.scan_iter(f"{feed.keys.dead_letter('')}*")
        for value in feed.client.hvals(key)
    )
