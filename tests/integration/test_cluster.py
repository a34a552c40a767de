"""Named models on a Redis Cluster: three real nodes, which share the models."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from benchmarks._redis_cluster import RedisCluster
from service.broker.caller import Caller
from service.broker.connection import connect, connect_async
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.reader import read_next
from service.broker.reports import Reports
from service.settings import Settings
from tests.service.api.stack import labels, learned, of_model, samples, serving, teach, training
from tests.service.broker.feeding import add, opened

NODES = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of three nodes without replicas."""
    with RedisCluster(tmp_path / "redis", NODES, n_replicas=0) as made:
        yield f"redis+cluster://{made.members[0].name}"


def test_models_on_several_nodes_learn_and_answer(cluster: str, tmp_path: Path) -> None:
    settings = Settings(
        redis_url=SecretStr(cluster),
        data_dir=tmp_path / "data",
        model=f"on-cluster-{uuid.uuid4().hex[:8]}",
        device="cpu",
        port=0,
        n_components=4,
        warm_up=100,
        publish_interval_s=0.05,
        settle_after_s=0.2,
    )
    names = [f"m{i}" for i in range(6)]
    keys = Keys(settings.model)
    with redis.RedisCluster.from_url(cluster.replace("+cluster", "")) as client:
        nodes = {client.get_node_from_key(keys.named(name).input).name for name in names}
    assert len(nodes) > 1  # or the test would show nothing
    with training(settings), serving(settings) as service:
        teach(service, batches=2)
        for name in names:
            service.put(f"/models/{name}").raise_for_status()
        for name in names:
            with of_model(service, name) as own:
                teach(own, batches=2)
                answer = own.post("/classify", json={"features": samples(6).tolist()})
                assert answer.json()["labels"] == labels(6)
                assert learned(own)["samples_seen"] == 200
        listed = service.get("/models", params={"detail": "true"}).json()["models"]
        assert {one["name"]: one["detail"]["samples_seen"] for one in listed} == dict.fromkeys(
            names, 200
        )
        gone = service.delete(f"/models/{names[0]}")
        assert gone.status_code == 202
        deadline = time.monotonic() + 20
        while names[0] in service.get("/models").text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with redis.RedisCluster.from_url(cluster.replace("+cluster", "")) as client:
        assert not list(client.scan_iter(match=keys.named(names[0]).prefix + "*"))


@pytest.fixture
def client(cluster: str) -> Iterator[redis.RedisCluster]:
    with connect(cluster) as client:
        assert isinstance(client, redis.RedisCluster)
        yield client


def feeds_of(client: redis.RedisCluster, n: int) -> dict[str, list[Feed]]:
    """n feeds on each node, by its name."""
    found: dict[str, list[Feed]] = {one.name: [] for one in client.get_primaries()}
    while min(map(len, found.values())) < n:
        feed = opened(client)
        found[client.get_node_from_key(feed.stream).name].append(feed)
    return {name: feeds[:n] for name, feeds in found.items()}


def test_nodes_are_asked_at_the_same_time(
    client: redis.RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_node = feeds_of(client, 2)
    together = threading.Barrier(NODES)
    for first, _ in by_node.values():
        monkeypatch.setattr(first, "prepare", lambda: together.wait(10))
    feeds = [feed for feeds in by_node.values() for feed in feeds]
    ids = [add(feed, 2) for feed in feeds]
    found = dict(read_next(client, feeds, block_ms=0))
    assert [[entry.id for entry in found[feed]] for feed in feeds] == ids


def test_a_node_that_is_away_costs_one_attempt_and_no_other_node_its_entries(
    client: redis.RedisCluster,
) -> None:
    by_node = feeds_of(client, 3)
    feeds = [feed for feeds in by_node.values() for feed in feeds]
    ids = [add(feed, 1) for feed in feeds]
    # The node that redis-py asks what it does not know by itself.
    gone = client.get_default_node().name
    lost = by_node[gone]
    about: dict[str, int] = client.info("server", target_nodes=client.get_default_node())
    os.kill(about["process_id"], signal.SIGKILL)
    found = dict(read_next(client, feeds, block_ms=0))
    there = {feed: [entry.id for entry in entries] for feed, entries in found.items()}
    assert there == {feed: own for feed, own in zip(feeds, ids, strict=True) if feed not in lost}
    assert sum(feed.redis_errors for feed in lost) == 1


def test_a_stream_on_a_cluster_that_another_trainer_has_taken_over_keeps_no_other_from_being_read(
    client: redis.RedisCluster,
) -> None:
    lost, mine = next(iter(feeds_of(client, 2).values()))
    client.set(lost.keys.fence, "someone else")
    lost.go_back(Position())
    ids = add(mine, 2)
    [(feed, entries)] = read_next(client, [lost, mine], block_ms=0)
    assert (feed, [entry.id for entry in entries]) == (mine, ids)


@pytest.mark.anyio
async def test_an_api_follows_models_of_other_nodes_when_one_is_away(
    client: redis.RedisCluster, cluster: str
) -> None:
    by_node = feeds_of(client, 1)
    feeds = {name: feed for name, [feed] in by_node.items()}
    for feed in feeds.values():
        feed.client.xadd(feed.keys.events, {"data": b"{}"})
    async with connect_async(cluster) as api:
        callers = {name: Caller(api, feed.keys.model) for name, feed in feeds.items()}
        for caller in callers.values():
            assert len(await Reports(caller).events("0-0", block_ms=10)) == 1
        # The node that redis-py asks what it does not know by itself.
        gone: Any = api.get_default_node()  # type: ignore[union-attr]
        there: Any = client.get_node(node_name=gone.name)
        about: dict[str, int] = client.info("server", target_nodes=there)
        os.kill(about["process_id"], signal.SIGKILL)
        for name, caller in callers.items():
            if name != gone.name:
                assert len(await Reports(caller).events("0-0", block_ms=10)) == 1
                assert await Reports(caller).next_notice("0-0", block_ms=10) is None
