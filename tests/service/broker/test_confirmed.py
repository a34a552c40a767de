"""Tests for the service.broker.confirmed module, on a cluster: what replicas have, counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis

from benchmarks._redis_cluster import Member, RedisCluster
from service.api.feed import WAIT_MS as EVENTS_MS
from service.broker.appender import REPLICATION_MS
from service.broker.away import AwayNodes
from service.broker.connection import (
    SHORT_TIMEOUT_S,
    StreamUnavailable,
    connect,
    connect_async,
    patiently,
)
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.reader import read_next
from service.broker.snapshots import WAIT_MS as NOTICES_MS
from service.broker.stream import Stream
from service.wire import Control, RawBatch
from tests.service.conftest import MakeSettings
from tests.service.running import wait_until

pytestmark = pytest.mark.anyio

MODELS = ("one", "two")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A primary and its replica."""
    with RedisCluster(tmp_path_factory.mktemp("cluster"), 1, node_timeout_ms=60_000) as cluster:
        yield cluster


@pytest.fixture
def primary(cluster: RedisCluster) -> Member:
    [found] = cluster.primaries
    found.client.flushall()
    return found


@pytest.fixture
def feeds(cluster: RedisCluster, primary: Member) -> Iterator[list[Feed]]:
    """Of a trainer of two models, which waits for one replica."""
    with connect(cluster.url) as client:
        feeds = []
        for model in MODELS:
            lease = Lease(client, Keys(model))
            lease.acquire()
            feed = Feed(client, model, lease, events_length=100, history_length=100, replicas=1)
            feed.open(Position())
            feeds.append(feed)
        yield feeds


def batch(name: str) -> RawBatch:
    return RawBatch.of(np.ones((1, 2), "f4"), batch_id=name)


def hand_over(cluster: RedisCluster) -> None:
    """Let the replica be the primary, and the primary its replica."""
    [before] = cluster.primaries
    [after] = cluster.replicas_of(before)
    while not after.is_primary:
        after.told("CLUSTER", "FAILOVER")
    cluster.wait_until_whole()


async def test_a_batch_is_not_acknowledged_before_the_replica_of_its_primary_has_it(
    cluster: RedisCluster,
    primary: Member,
    settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.broker.appender.REPLICATION_MS", 300)
    [replica] = cluster.replicas_of(primary)
    async with Stream.open(settings(redis_url=cluster.url, redis_replicas=1)) as stream:
        await stream.append(batch("before"))
        replica.freeze()
        try:
            for _ in range(2):  # a repeat is no more acknowledged than the first
                with pytest.raises(StreamUnavailable, match="0 of 1 replicas") as told:
                    await stream.append(batch("one"))
                assert told.value.context["batch_id"] == "one"
            # On a connection of its own, where a repeat is all that was ever written.
            async with Stream.open(settings(redis_url=cluster.url, redis_replicas=1)) as other:
                with pytest.raises(StreamUnavailable, match="0 of 1 replicas"):
                    await other.append(batch("one"))
        finally:
            replica.thaw()
        monkeypatch.setattr("service.broker.appender.REPLICATION_MS", 2900)
        assert (await stream.append(batch("one"))).duplicate
        assert stream.durability is not None
        assert stream.durability.promise == "replicas"
        assert primary.client.xlen(stream.keys.input) == 2


async def test_an_append_goes_to_the_node_that_has_taken_over(
    cluster: RedisCluster, primary: Member, settings: MakeSettings
) -> None:
    async with Stream.open(settings(redis_url=cluster.url, redis_replicas=1)) as stream:
        await stream.append(batch("before"))
        hand_over(cluster)
        appended = await stream.append(batch("after"))
        assert not appended.duplicate
        assert stream.redis_errors
        [now] = cluster.primaries
        assert now is not primary
        assert now.client.xlen(stream.keys.input) == 2
        now.client.script_flush()
        assert not (await stream.append(batch("without the script"))).duplicate


def test_an_entry_is_read_once_the_replica_of_its_primary_has_it(
    cluster: RedisCluster, primary: Member, feeds: list[Feed]
) -> None:
    for feed in feeds:
        feed.client.xadd(feed.keys.input, Control("settle").to_entry())  # type: ignore[arg-type]
    [replica] = cluster.replicas_of(primary)
    replica.freeze()
    try:
        primary.client.set("{gmr:one}:more", "so that the replica is behind")
        away = AwayNodes(feeds[0].client)
        assert read_next(feeds[0].client, feeds, 0, replicas=1, away=away) == []
        # The node answers; its replica does not.
        assert not away.has(feeds[0].stream)
        away.close()
    finally:
        replica.thaw()
    found: dict[str, list[str]] = {}

    def both() -> bool:
        for feed, entries in read_next(feeds[0].client, feeds, 0, replicas=1):
            found[feed.keys.model] = [entry.text("kind") for entry in entries]
        return len(found) == len(feeds)

    wait_until(both)
    assert found == {model: ["settle"] for model in MODELS}


def test_a_trainer_writes_to_the_node_that_has_taken_over(
    cluster: RedisCluster, primary: Member, feeds: list[Feed]
) -> None:
    [feed, _] = feeds
    hand_over(cluster)
    assert feed.write([("SET", feed.keys.status, b"{}")])
    assert feed.redis_errors
    [now] = cluster.primaries
    assert now is not primary
    assert now.client.get(feed.keys.status) == b"{}"


def test_a_repeated_report_counts_once_a_replica_has_it(
    cluster: RedisCluster, primary: Member, feeds: list[Feed]
) -> None:
    """It writes nothing, and nothing else was ever written on its connection."""
    [feed, _] = feeds
    report = ("XADD", feed.keys.events, "1-0", "data", b"{}")
    assert feed.write([report])
    [replica] = cluster.replicas_of(primary)
    replica.freeze()
    try:
        primary.client.set("{gmr:one}:more", "so that the replica is behind")
        with connect(cluster.url) as client:
            other = Feed(client, "one", feed._lease, events_length=9, history_length=9, replicas=1)
            assert not other.write([report])
    finally:
        replica.thaw()
    wait_until(lambda: feed.write([report]))


def test_a_process_may_begin_while_a_primary_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.connection.LAYOUT_S", 30.0)
    with RedisCluster(tmp_path, 1, node_timeout_ms=60_000) as cluster:
        [primary] = cluster.primaries
        [replica] = cluster.replicas_of(primary)
        primary.kill()
        begun = threading.Timer(1.0, replica.told, ("CLUSTER", "FAILOVER", "TAKEOVER"))
        begun.start()
        with connect(cluster.url) as client:
            wait_until(lambda: replica.is_primary)
            assert patiently(lambda: client.set("x", 1), print)
        begun.join()


async def test_a_client_that_is_to_ask_for_a_new_layout_leaves_no_connection_open(
    cluster: RedisCluster,
) -> None:
    client = connect_async(cluster.url)
    assert isinstance(client, redis.asyncio.RedisCluster)
    await client.get("x")
    client._initialize = True  # as a failure leaves it
    await client.aclose()
    nodes = client.nodes_manager.nodes_cache.values()
    assert not any(one.is_connected for node in nodes for one in node._connections)


def test_a_node_that_hangs_is_waited_for_a_short_time_and_longer_than_a_read(
    cluster: RedisCluster,
) -> None:
    for url in (cluster.url, "redis+sentinel://127.0.0.1:1/orders"):
        with connect(url) as client:
            assert client.get_connection_kwargs()["socket_timeout"] == SHORT_TIMEOUT_S
    assert max(EVENTS_MS, NOTICES_MS, REPLICATION_MS) < 1000 * SHORT_TIMEOUT_S


def test_a_slot_without_a_node_is_waited_for(
    cluster: RedisCluster, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    [feed, _] = feeds
    waits: list[Exception] = []

    def once(client: object, key: str) -> None:
        monkeypatch.undo()
        waits.append(redis.exceptions.ClusterDownError("none"))

    monkeypatch.setattr("service.broker.confirmed.node_of", once)
    assert feed.write([("SET", feed.keys.status, b"{}")])
    assert len(waits) == feed.redis_errors == 1
