"""Tests for what the trainer does where replicas are to have what it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.broker.connection import connect
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.wire import Control
from tests.service.broker.servers import STRONG, Server, running
from tests.service.conftest import BINARY
from tests.service.running import wait_until


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Server]:
    with running(str(BINARY.path), tmp_path / "primary", *STRONG) as server:
        yield server


@pytest.fixture
def feed(primary: Server) -> Iterator[Feed]:
    """Of a trainer that waits for one replica."""
    with connect(primary.url) as client:
        lease = Lease(client, Keys("m"))
        lease.acquire()
        feed = Feed(client, "m", lease, events_length=100, history_length=100, replicas=1)
        feed.open(Position())
        yield feed


def test_an_entry_is_read_once_a_replica_has_it(
    primary: Server, feed: Feed, tmp_path: Path
) -> None:
    """What the primary alone has may be lost with it, and its sender then sends it again."""
    primary.client.xadd(feed.keys.input, Control("settle").to_entry())  # type: ignore[arg-type]
    assert feed.read(0) == []
    following = ("--replicaof", "127.0.0.1", str(primary.port), *STRONG)
    with running(str(BINARY.path), tmp_path / "replica", *following) as replica:
        [entry] = wait_until(lambda: feed.read(0))
        assert replica.client.xlen(feed.keys.input) == 1
        assert entry.text("kind") == "settle"
    assert feed.read(0) == []


def test_reports_that_no_replica_had_are_sent_again_to_the_one_that_took_over(
    primary: Server, feed: Feed, tmp_path: Path
) -> None:
    def told() -> list[bytes]:
        rows = primary.client.xrange(feed.keys.events)
        return [fields[b"data"] for _, fields in rows]  # type: ignore[union-attr]

    for i in range(1, 4):
        feed.reports.add(feed.keys.events, f"{i}-0", 0, b"%d" % i)
        feed.reports.flush()
    assert told() == [b"1", b"2", b"3"]
    # A replica takes over that has got the first one only.
    [_, *others] = primary.client.xrange(feed.keys.events)  # type: ignore[misc]
    primary.client.delete(feed.keys.events)
    primary.client.xadd(feed.keys.events, {"data": "1"}, id="1-0")
    assert len(others) == 2
    feed.reports.add(feed.keys.events, "4-0", 0, b"4")
    following = ("--replicaof", "127.0.0.1", str(primary.port), *STRONG)
    with running(str(BINARY.path), tmp_path / "replica", *following) as replica:
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up")  # type: ignore[index]
        feed.reports.flush()
        assert told() == [b"1", b"2", b"3", b"4"]
        assert replica.client.xlen(feed.keys.events) == 4
        # Which the replica has now, so that nothing of it is sent any more.
        primary.client.delete(feed.keys.events)
        feed.reports.put(feed.keys.status, b"{}")
        feed.reports.flush()
        assert told() == []
