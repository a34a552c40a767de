"""Tests for the service.broker.away and clustered modules, on a cluster of two real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from benchmarks._redis_cluster import Member, RedisCluster
from service.broker.away import AwayNodes
from service.broker.connection import TRANSIENT, connect, connect_async
from service.supervisor.embedded import EmbeddedRedis
from tests.service.running import wait_until

SCRIPT = "return redis.call('INCR', KEYS[1]) + ARGV[1]"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Two primaries without replicas."""
    folder = tmp_path_factory.mktemp("redis")
    with RedisCluster(folder, 2, n_replicas=0, node_timeout_ms=60_000) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: RedisCluster) -> Iterator[redis.RedisCluster]:
    with connect(cluster.url) as client:
        assert isinstance(client, redis.RedisCluster)
        yield client


@pytest.fixture
def dying(cluster: RedisCluster) -> Iterator[Member]:
    """The first node, which is there again afterwards."""
    [one, _] = cluster.members
    yield one
    one.kill()
    one.start()
    cluster.wait_until_whole()


def keys_of(client: Any, cluster: RedisCluster) -> list[str]:
    """A key of each node, in their order."""
    found: dict[str, str] = {}
    for number in range(1000):
        found.setdefault(client.get_node_from_key(f"k{number}").name, f"k{number}")
    return [found[one.name] for one in cluster.members]


def test_a_node_is_away_from_a_miss_until_it_answers(
    client: redis.RedisCluster, cluster: RedisCluster, dying: Member
) -> None:
    lost, there = keys_of(client, cluster)
    away = AwayNodes(client)
    try:
        assert not away.has(lost)
        dying.kill()
        assert not away.has(lost)  # nobody has asked
        away.missed(lost)
        assert (away.has(lost), away.has(there)) == (True, False)
        client.set(there, "x")  # a stranger to what is asked for, as a stream is
        dying.start()
        wait_until(lambda: not away.has(lost))
        away.missed(there)  # by mistake
        wait_until(lambda: not away.has(there))
    finally:
        away.close()


def test_whoever_ends_waits_for_no_node(
    client: redis.RedisCluster, cluster: RedisCluster, dying: Member
) -> None:
    lost, _ = keys_of(client, cluster)
    away = AwayNodes(client)
    dying.kill()
    away.missed(lost)
    away.close()
    assert away.has(lost)
    away.missed(lost)  # begins nothing
    away.close()


def test_a_single_server_is_waited_for(redis_server: EmbeddedRedis) -> None:
    with connect(redis_server.url) as client:
        away = AwayNodes(client)
        away.missed("key")
        assert not away.has("key")
        away.close()


def test_a_script_that_is_new_to_a_node_is_carried_out_while_another_is_away(
    client: redis.RedisCluster, cluster: RedisCluster, dying: Member
) -> None:
    lost, there = keys_of(client, cluster)
    client.delete(there)
    script = client.register_script(SCRIPT + " -- of the trainer")
    dying.kill()
    assert [script(keys=[there], args=[10]) for _ in range(2)] == [11, 12]
    with pytest.raises(TRANSIENT):
        script(keys=[lost], args=[10])
    dying.start()
    cluster.wait_until_whole()
    assert script(keys=[lost], args=[10]) == 11


@pytest.mark.anyio
async def test_and_so_is_one_of_the_api(
    client: redis.RedisCluster, cluster: RedisCluster, dying: Member
) -> None:
    _, there = keys_of(client, cluster)
    client.delete(there)
    async with connect_async(cluster.url) as api:
        script = api.register_script(SCRIPT + " -- of the API")
        await api.get(there)
        dying.kill()
        assert [await script(keys=[there], args=[10]) for _ in range(2)] == [11, 12]


@pytest.mark.anyio
async def test_a_process_begins_while_the_first_node_is_away(
    client: redis.RedisCluster, cluster: RedisCluster, dying: Member
) -> None:
    lost, there = keys_of(client, cluster)
    client.set(there, "x")
    dying.kill()
    with connect(cluster.url) as new:
        for _ in range(3):
            with pytest.raises(TRANSIENT):
                new.get(lost)
            assert new.get(there) == b"x"
    async with connect_async(cluster.url) as api:
        for _ in range(3):
            assert await api.get(there) == b"x"
            with pytest.raises(TRANSIENT):
                await api.get(lost)
