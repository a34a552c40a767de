"""Tests for service.broker.durability: what a real Redis promises, by real servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from core.errors import InvalidSettings
from service.broker.connection import StreamUnavailable, connect, is_transient, patiently
from service.broker.durability import Durability, Examiner, WeakDurability, rights, shortfalls
from service.broker.stream import Stream
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from service.wire import RawBatch
from tests.service.broker.servers import BINARIES, STRONG, WEAK, Server, running
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio

FACTS = {"redis_version": "7.0.15", "aof_enabled": "1", "maxmemory_policy": "noeviction"}


@pytest.fixture(params=BINARIES)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Set to promise everything, on each kind of server that there is."""
    with running(request.param, tmp_path / "redis", *STRONG) as one:
        yield one


def batch(id: str) -> RawBatch:
    return RawBatch.of(np.ones((2, 3), "f4"), batch_id=id)


@pytest.mark.parametrize(
    ("changed", "fsync", "lacks"),
    [
        ({}, "always", None),
        ({"redis_version": "6.2.0"}, "always", None),
        ({"redis_version": "10.1"}, "always", None),
        ({"redis_version": "6.0.20"}, "always", "version is 6.0.20"),
        ({"redis_version": ""}, "always", "version is unknown"),
        ({"aof_enabled": "0"}, "always", "appendonly is no"),
        ({}, "everysec", "appendfsync is everysec"),
        ({}, None, "appendfsync is not told"),
        ({"maxmemory_policy": "allkeys-lru"}, "always", "maxmemory-policy is allkeys-lru"),
    ],
)
def test_what_a_redis_lacks_is_named(
    changed: dict[str, str], fsync: str | None, lacks: str | None
) -> None:
    found = list(shortfalls(FACTS | changed, fsync))
    assert len(found) == (lacks is not None)
    assert lacks is None or lacks in found[0]
    durability = Durability(tuple(found))
    assert durability.promise == ("disk" if lacks is None else "weak")


def test_the_embedded_redis_promises_everything(redis_server: EmbeddedRedis) -> None:
    examiner = Examiner("m", "trainer")
    with connect(redis_server.url, examiner) as client:
        client.ping()
    assert examiner.found == Durability()
    assert Durability(replicas=2).promise == "replicas"


async def test_both_ends_refuse_a_redis_that_promises_less_with_each_new_connection(
    server: Server, settings: MakeSettings
) -> None:
    values: dict[str, Any] = {"redis_url": server.url}
    async with Stream.open(settings(**values)) as stream:
        await stream.append(batch("one"))
        assert stream.durability == Durability()
        server.client.config_set("appendfsync", "everysec")
        await stream.client.connection_pool.disconnect()  # type: ignore[union-attr]
        with pytest.raises(StreamUnavailable, match="appendfsync is everysec") as told:
            await stream.append(batch("two"))
        assert "nothing was accepted" in str(told.value)
        assert "127.0.0.1" not in str(told.value)
        assert await server_length(server, stream) == 1
        server.client.config_set("appendfsync", "always")
        await stream.append(batch("two"))

    server.client.config_set("appendonly", "no")
    with (
        connect(server.url, Examiner("m", "trainer")) as client,
        pytest.raises(InvalidSettings, match=r"appendonly is no.*GMR_ACCEPT_WEAK_DURABILITY"),
    ):
        patiently(client.ping, lambda error: pytest.fail(f"waits for {error}"))
    async with Stream.open(settings(accept_weak_durability=True, **values)) as stream:
        await stream.append(batch("three"))
        assert stream.durability is not None
        assert stream.durability.promise == "weak"
        assert stream.durability.lacks == ("appendonly is no, expected yes",)


class Loading:
    """A connection of redis-py to a server that reads its file: what 6.2 and 7.0 answer then."""

    INFO = b"redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"

    def __init__(self, loading: bool) -> None:
        self.loading = loading
        self.asked: list[str] = []

    def pack_commands(self, commands: Sequence[tuple[str, ...]]) -> list[str]:
        return [name for name, *_ in commands]

    def send_packed_command(self, names: list[str]) -> None:
        assert not self.asked, "it was asked more than once"
        self.asked += names

    def read_response(self) -> Any:
        match self.asked.pop(0):
            case "INFO":
                more = b"loading:1\r\naof_enabled:0\r\n" if self.loading else b"aof_enabled:1\r\n"
                return self.INFO + more
            case "CONFIG":
                return [b"appendfsync", b"always"]
        if self.loading:
            raise redis.BusyLoadingError("Redis is loading the dataset in memory")
        return b""


class LoadingLater(Loading):
    """The same, of `redis.asyncio`."""

    async def send_packed_command(self, names: list[str]) -> None:  # type: ignore[override]
        Loading.send_packed_command(self, names)

    async def read_response(self) -> Any:
        return Loading.read_response(self)


async def test_a_redis_that_still_reads_its_file_is_waited_for() -> None:
    """It says of itself meanwhile that its append-only file is off, which is no lack."""
    examiner = Examiner("m", "trainer")
    for _ in ("at first", "when it comes back"):
        with pytest.raises(redis.BusyLoadingError):
            examiner.examine(Loading(True))
        with pytest.raises(redis.BusyLoadingError):
            await examiner.examine_async(LoadingLater(True))
        examiner.examine(Loading(False))
    assert is_transient(redis.BusyLoadingError())
    assert examiner.found == Durability()


async def server_length(server: Server, stream: Stream) -> int:
    length = server.client.xlen(stream.keys.input)
    assert isinstance(length, int)
    return length


def test_the_trials_of_rights_change_nothing(server: Server) -> None:
    for end in ("api", "trainer"):
        for command in rights("m", end):  # type: ignore[arg-type]
            # Known and whole, so that the server got as far as to the user's rights.
            assert "unknown" not in answer(server, *command), command
            assert "wrong number" not in answer(server, *command) or command[0] == "HSET", command
    assert server.client.dbsize() == 0
    assert server.client.info("persistence")["aof_current_size"] <= 300  # type: ignore[index]


def answer(server: Server, *command: Any) -> str:
    try:
        return str(server.client.execute_command(*command))
    except redis.ResponseError as error:
        return str(error).lower()


@pytest.mark.parametrize("end", ["api", "trainer"])
def test_a_missing_right_is_told_before_anything_is_tried(server: Server, end: Any) -> None:
    common = ("user", "~{gmr:m}:*", "+@all", "on", ">secret")
    url = f"redis://user:secret@127.0.0.1:{server.port}"
    needed = {command[0] for command in rights("m", end)}
    for missing in sorted({"XADD", "EVALSHA", "HSET", "XRANGE", "PERSIST"} & needed):
        server.client.execute_command("ACL", "SETUSER", *common, f"-{missing}")
        with (
            connect(url, Examiner("m", end)) as client,
            pytest.raises(InvalidSettings, match=r"NOPERM.*users\.acl"),
        ):
            patiently(client.ping, lambda error: pytest.fail(f"waits for {error}"))
    server.client.execute_command("ACL", "SETUSER", *common)
    with connect(url, Examiner("m", end)) as client:
        assert client.ping()
    with connect(url, Examiner("other", end)) as client, pytest.raises(InvalidSettings):
        patiently(client.ping, lambda error: pytest.fail(f"waits for {error}"))


@pytest.mark.parametrize("replicas", [0, 1])
def test_the_right_to_wait_is_needed_where_replicas_are(server: Server, replicas: int) -> None:
    server.client.execute_command(
        "ACL", "SETUSER", "user", "~{gmr:m}:*", "+@all", "-wait", "on", ">secret"
    )
    url = f"redis://user:secret@127.0.0.1:{server.port}"
    with connect(url, Examiner("m", "trainer", replicas=replicas)) as client:
        if not replicas:
            assert client.ping()
        else:
            with pytest.raises(InvalidSettings, match=r"NOPERM.*wait"):
                patiently(client.ping, lambda error: pytest.fail(f"waits for {error}"))


async def test_a_batch_is_not_acknowledged_before_replicas_have_it(
    server: Server, tmp_path: Path, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.appender.REPLICATION_MS", 300)
    binary = server.process.args[0]  # type: ignore[index]
    server.client.config_set("repl-diskless-sync-delay", 0)
    ours = settings(redis_url=server.url, redis_replicas=1)
    async with Stream.open(ours) as stream:
        for _ in range(2):  # a repeat is no more acknowledged than the first
            with pytest.raises(StreamUnavailable, match="0 of 1 replicas") as told:
                await stream.append(batch("one"))
            assert told.value.context["batch_id"] == "one"
        following = ("--replicaof", "127.0.0.1", str(server.port), *STRONG)
        with running(str(binary), tmp_path / "replica", *following) as replica:
            while server.client.info("replication")["connected_slaves"] != 1:  # type: ignore[index]
                pass
            monkeypatch.setattr("service.broker.appender.REPLICATION_MS", 5000)
            appended = await stream.append(batch("one"))
            assert appended.duplicate
            await stream.append(batch("two"))
            assert replica.client.xlen(stream.keys.input) == 2
            assert stream.durability is not None
            assert stream.durability.promise == "replicas"


def test_the_embedded_redis_has_no_replicas_to_wait_for() -> None:
    with pytest.raises(InvalidSettings, match="the embedded one, which has none"):
        Settings.load({"redis_replicas": 1})


def test_weakness_is_no_failure_that_passes() -> None:
    from service.broker.connection import is_refusal, is_transient

    assert is_refusal(WeakDurability("x"))
    assert not is_transient(WeakDurability("x"))


async def test_a_weak_redis_is_refused_from_the_start(
    tmp_path: Path, settings: MakeSettings
) -> None:
    with running(str(BINARIES[0].values[0]), tmp_path / "weak", *WEAK) as weak:
        async with Stream.open(settings(redis_url=weak.url)) as stream:
            with pytest.raises(StreamUnavailable, match="promises less") as told:
                await stream.append(batch("one"))
            assert "appendonly is no" in str(told.value.context["reason"])
        assert weak.client.dbsize() == 0
