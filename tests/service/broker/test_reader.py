"""Tests for the service.broker.reader module, on a real Redis."""

from __future__ import annotations

import pytest

from service.broker.connection import connect
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.reader import Reader, read_next
from service.supervisor.embedded import EmbeddedRedis
from tests.service.broker.feeding import add, opened, read


def test_reading_ahead_loses_nothing_when_it_stops(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 200, size=100_000)
    reader = Reader(feed.client)
    reader.ask([feed], block_ms=20)
    seen = [entry.id for _, entries in reader.next(5.0) or [] for entry in entries]
    reader.ask([feed], block_ms=20)
    reader.close()
    feed.go_back(Position(seen[-1], len(seen)))
    assert seen + read(feed) == ids


def test_several_streams_are_read_in_one_command(redis_server: EmbeddedRedis) -> None:
    with connect(redis_server.url) as client:
        feeds = [opened(client) for _ in range(3)]
        ids = [add(feeds[0], 2), [], add(feeds[2], 1)]
        found = dict(read_next(client, feeds, block_ms=0))
        assert [[entry.id for entry in found.get(feed, [])] for feed in feeds] == ids
        assert read_next(client, feeds, block_ms=1) == []
        feeds[1].go_back(Position())
        late = add(feeds[1], 1)
        [(feed, [entry])] = read_next(client, feeds, block_ms=0)
        assert (feed, [entry.id]) == (feeds[1], late)


def test_a_stream_that_another_trainer_has_taken_over_keeps_no_other_from_being_read(
    redis_server: EmbeddedRedis,
) -> None:
    with connect(redis_server.url) as client:
        mine, lost = opened(client), opened(client)
        client.set(lost.keys.fence, "someone else")
        lost.go_back(Position())
        ids = add(mine, 2)
        [(feed, entries)] = read_next(client, [lost, mine], block_ms=0)
        assert (feed, [entry.id for entry in entries]) == (mine, ids)
        with pytest.raises(LeaseLost):
            lost.read(block_ms=0)
