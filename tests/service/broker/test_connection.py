"""Tests for the service.broker.connection module: which addresses work, a cluster included."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
import redis
import uvloop

from benchmarks._redis_cluster import RedisCluster
from core.errors import InvalidSettings
from service.broker.connection import (
    StreamUnavailable,
    connect,
    connect_async,
    is_transient,
    patiently,
    read_stream,
)
from service.broker.durability import Examiner
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.lease import Lease
from service.broker.stream import Stream
from service.wire import RawBatch, read_entry
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def cluster_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A cluster of one node that owns every slot, and writes nothing to disk."""
    weak = ("--appendonly", "no")
    with RedisCluster(tmp_path_factory.mktemp("redis"), 1, n_replicas=0, options=weak) as cluster:
        yield cluster.members[0].port


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_of_several_nodes_one_may_be_gone(cluster_port: int, settings: MakeSettings) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster_port}"
    accepted = settings(redis_url=url, accept_weak_durability=True)
    async with Stream.open(accepted) as stream:
        appended = await stream.append(RawBatch.of(np.ones((2, 3), "f4")))
        with connect(url) as client:
            [(entry_id, _)] = client.xrange(stream.keys.input)  # type: ignore[misc]
        assert entry_id.decode() == appended.entry_id


@pytest.mark.parametrize("form", ["redis://127.0.0.1:{}", "redis+cluster://127.0.0.1:{}"])
async def test_no_connection_reads_the_version_of_the_library_from_its_files(
    cluster_port: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    monkeypatch.setattr("redis.utils.get_lib_version", lambda: read.append("once more") or "0")
    url = form.format(cluster_port)
    with connect(url) as client:
        assert client.ping()
    async with connect_async(url) as later:
        assert await later.ping()
    assert not read


@pytest.mark.parametrize(
    "form", ["redis+cluster://127.0.0.1:{}", "redis://127.0.0.1:{}?cluster=true"]
)
async def test_everything_works_on_a_cluster(
    cluster_port: int, settings: MakeSettings, form: str
) -> None:
    url, model = form.format(cluster_port), str(len(form))
    batch = RawBatch.of(np.ones((2, 3), "f4"), ["a", "b"], "one")
    async with Stream.open(settings(redis_url=url)) as stream:
        with pytest.raises(StreamUnavailable, match="appendonly is no"):
            await stream.append(batch)
    with pytest.raises(InvalidSettings, match="appendonly is no"):
        patiently(
            lambda: connect(url, Examiner(model, "trainer")), lambda error: pytest.fail(str(error))
        )
    accepted = settings(redis_url=url, model=model, accept_weak_durability=True)
    async with Stream.open(accepted) as stream:
        appended = await stream.append(batch)
        assert (await stream.append(batch)).duplicate

        with connect(url) as client:
            lease = Lease(client, stream.keys)
            lease.acquire()
            feed = Feed(client, model, lease, events_length=10, history_length=10)
            feed.open(Position())
            [entry] = feed.read(block_ms=1)
            assert isinstance(read_entry(entry.fields), RawBatch)
            feed.reports.add(feed.keys.events, entry.id, 0, b'{"kind": "x"}')
            feed.reports.add(feed.keys.events, entry.id, 0, b'{"kind": "again"}')
            feed.reports.flush()
            position = Position(entry.id, 1)
            feed.publish(position, 3, "redis", b"bytes")
            feed.release(position, [entry.id])
            assert feed.requests.new() == []
            assert lease.renew()
            lease.release()

        assert [record.data for record in await stream.reports.events("0", block_ms=1)] == [
            {"kind": "x"}
        ]
        assert await stream.reports.snapshot() == b"bytes"
        notice = await stream.reports.next_notice("0-0", block_ms=1)
        assert notice is not None
        assert (notice.version, notice.last_entry_id) == (3, appended.entry_id)
        assert await stream.accepted() == 1
        assert await stream.client.xlen(stream.keys.input) == 0


@pytest.mark.parametrize("form", ["redis://127.0.0.1:{}", "redis+cluster://127.0.0.1:{}"])
async def test_however_many_wait_others_are_answered(cluster_port: int, form: str) -> None:
    async with connect_async(form.format(cluster_port)) as client:
        waiting = [
            asyncio.create_task(read_stream(client, "{away}:nothing", "0-0", 30_000))
            for _ in range(130)
        ]
        with connect(f"redis://127.0.0.1:{cluster_port}") as other:
            while other.info("clients")["blocked_clients"] < len(waiting):
                assert not any(task.done() for task in waiting), "one was refused"
                await asyncio.sleep(0.05)
        assert await client.get("{away}:nothing") is None
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("url", ["redis://host:port/0", "redis+cluster://h:x"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    url = url.replace("://", "://u:s3cret@")
    for make in (connect, connect_async):
        with pytest.raises(InvalidSettings, match="cannot be used") as caught:
            make(url)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (redis.ConnectionError(), True),
        (redis.BusyLoadingError(), True),
        (redis.TimeoutError(), True),
        (redis.ReadOnlyError(), True),
        (ConnectionResetError(), True),
        (redis.AuthenticationError(), False),
        (redis.ResponseError("WRONGTYPE"), False),
        (ValueError(), False),
    ],
)
def test_only_failures_that_pass_are_waited_for(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_connection_that_is_reset_while_it_begins_may_come_back() -> None:
    """For which uvloop, the API's loop, has an error that is none of a connection."""

    async def reset() -> BaseException:
        server = await asyncio.start_server(lambda _, other: other.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.abort()
        for _ in range(10):
            await asyncio.sleep(0)
        try:
            writer.writelines([b"x"])
        except RuntimeError as error:
            return error
        finally:
            server.close()
        raise AssertionError("it was written to")

    assert is_transient(uvloop.run(reset()))
    assert not is_transient(RuntimeError("another"))
