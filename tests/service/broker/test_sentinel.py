"""Tests for the service.broker.sentinel module: a primary is found, also after a fail-over."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from benchmarks._ports import free_port
from core.errors import InvalidSettings
from service.broker.address import Address
from service.broker.connection import Identity, connect, connect_async, patiently
from service.broker.durability import Examiner, WeakDurability
from service.broker.stream import Stream
from service.wire import RawBatch
from tests.service.broker.servers import NEEDS_SYSTEM, STRONG, SYSTEM, Server, running
from tests.service.certificates import NEEDS_OPENSSL, authority, signed
from tests.service.conftest import BINARY, MakeSettings
from tests.service.running import send, training, wait_for_backlog, wait_until

pytestmark = pytest.mark.anyio

PRIMARY = "orders"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def password() -> str:
    """Of the Sentinel."""
    return ""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Server]]:
    """A primary and its replica."""
    binary, quick = str(BINARY.path), ("--repl-diskless-sync-delay", "0")
    with ExitStack() as stack:
        found: list[Server] = []
        for name in ("first", "second"):
            of = ("--replicaof", "127.0.0.1", str(found[0].port)) if found else ()
            server = running(binary, tmp_path / name, *STRONG, *quick, *of)
            found.append(stack.enter_context(server))
        wait_until(lambda: found[1].client.info("replication")["master_link_status"] == "up")  # type: ignore[index]
        yield found


@pytest.fixture
def sentinel(tmp_path: Path, nodes: list[Server], password: str) -> Iterator[redis.Redis]:
    """A client of one that knows both of them."""
    folder, port = tmp_path / "sentinel", free_port()
    folder.mkdir()
    rows = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"logfile {folder / 'log'}"]
    rows += [f"sentinel monitor {PRIMARY} 127.0.0.1 {nodes[0].port} 1"]
    rows += [f"sentinel down-after-milliseconds {PRIMARY} 60000"]
    rows += [f"requirepass {password}"] if password else []
    (folder / "conf").write_text("\n".join(rows) + "\n")
    with subprocess.Popen([str(BINARY.path), str(folder / "conf"), "--sentinel"]) as process:
        client = redis.Redis(port=port, password=password or None)

        def knows_both() -> bool:
            with suppress(redis.ConnectionError):
                return len(client.sentinel_slaves(PRIMARY)) == 1  # type: ignore[arg-type]
            return False

        try:
            wait_until(knows_both)
            yield client
        finally:
            client.close()
            process.kill()


def address(sentinel: redis.Redis, password: str = "") -> str:
    # One that nobody listens at comes first, so that the next one is asked.
    port = sentinel.connection_pool.connection_kwargs["port"]
    login = f"?sentinel_password={password}" if password else ""
    return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/{PRIMARY}/0{login}"


def batch(number: int) -> RawBatch:
    features = np.random.default_rng(number).normal(size=(10, 2))
    return RawBatch.of(features.astype("f4"), batch_id=f"batch-{number}")


def take_over(nodes: list[Server], sentinel: redis.Redis) -> None:
    """Kill the primary; return when the replica is one, and the Sentinel says so."""
    nodes[0].process.kill()

    def begun() -> bool:
        with suppress(redis.ResponseError):  # it has not asked the replica yet how that one is
            return bool(sentinel.execute_command("SENTINEL", "FAILOVER", PRIMARY))
        return False

    wait_until(begun)

    def known() -> int:
        found: Any = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY)
        return int(found[1])

    wait_until(lambda: known() == nodes[1].port)


def test_a_service_goes_on_with_the_primary_that_was_elected(
    nodes: list[Server], sentinel: redis.Redis, settings: MakeSettings
) -> None:
    ours = settings(redis_url=address(sentinel))
    with training(ours) as trainer:
        send(ours, *[batch(number) for number in range(5)])
        wait_for_backlog(ours)
        take_over(nodes, sentinel)
        send(ours, *[batch(number) for number in range(4, 8)])
        wait_for_backlog(ours)
        assert trainer.default.now.state.stream.batches == 8


async def test_clients_that_are_open_find_the_primary_that_was_elected(
    nodes: list[Server], sentinel: redis.Redis, settings: MakeSettings
) -> None:
    with connect(address(sentinel)) as trainer:
        async with Stream.open(settings(redis_url=address(sentinel))) as stream:
            trainer.set("x", 1)
            await stream.append(batch(0))
            wait_until(lambda: nodes[1].client.xlen(stream.keys.input))
            take_over(nodes, sentinel)
            assert (await stream.append(batch(0))).duplicate
            assert patiently(lambda: trainer.get("x"), print) == b"1"


@pytest.mark.parametrize("password", ["s3cret"])
async def test_sentinels_may_want_a_password(
    nodes: list[Server], sentinel: redis.Redis, password: str
) -> None:
    with connect(address(sentinel, password)) as client:
        assert client.ping()
        pool: Any = client.connection_pool
        asked = [one.connection_pool for one in pool.sentinel_manager.sentinels]
    assert not any(one._sock for pool in asked for one in pool._available_connections)
    async with connect_async(address(sentinel, password)) as ours:
        assert await ours.ping()
    with connect(address(sentinel)) as client, pytest.raises(InvalidSettings, match="password"):
        patiently(client.ping, lambda error: pytest.fail(f"waits for {error}"))
    async with connect_async(address(sentinel)) as ours:
        with pytest.raises(redis.AuthenticationError):
            await ours.ping()


async def test_a_primary_that_promises_too_little_is_refused(
    nodes: list[Server], sentinel: redis.Redis
) -> None:
    nodes[0].client.config_set("appendfsync", "everysec")
    with (
        connect(address(sentinel), Examiner("m", "trainer")) as client,
        pytest.raises(WeakDurability, match="appendfsync is everysec"),
    ):
        client.ping()
    async with connect_async(address(sentinel), Examiner("m", "api")) as ours:
        with pytest.raises(redis.RedisError, match="appendfsync is everysec"):
            await ours.ping()


@NEEDS_SYSTEM
@NEEDS_OPENSSL
async def test_tls_is_spoken_with_sentinels_and_the_primary(tmp_path: Path) -> None:
    by = authority(tmp_path)
    server, client = signed(tmp_path, "server", by), signed(tmp_path, "client", by)
    files = {"cert": server.certificate, "key": server.key, "ca-cert": by.certificate}
    tls = [
        ("tls-replication", "yes"),
        *((f"tls-{name}-file", path) for name, path in files.items()),
    ]
    ports = {"primary": free_port(), "sentinel": free_port()}
    rows = {
        "primary": [("appendonly", "yes"), ("appendfsync", "always")],
        "sentinel": [("sentinel monitor", f"{PRIMARY} 127.0.0.1 {ports['primary']} 1")],
    }
    with ExitStack() as stack:
        for name, own in rows.items():
            folder = tmp_path / name
            folder.mkdir()
            place = [("port", 0), ("tls-port", ports[name]), ("dir", folder), ("logfile", "log")]
            text = "".join(f"{key} {value}\n" for key, value in (*place, *tls, *own))
            (folder / "conf").write_text(text)
            kind = ["--sentinel"] if name == "sentinel" else []
            process = subprocess.Popen([str(SYSTEM), str(folder / "conf"), *kind])
            stack.callback(process.wait)
            stack.callback(process.kill)
        url = f"rediss+sentinel://localhost:{ports['sentinel']}/{PRIMARY}"
        identity = Identity(by.certificate, client.certificate, client.key)
        with connect(url, identity=identity) as trainer:
            assert wait_until(lambda: reached(trainer))
            async with connect_async(url, identity=identity) as api:
                assert await api.get("x") == b"1"
        with connect(url) as stranger, pytest.raises(redis.ConnectionError):
            stranger.ping()


def reached(client: Any) -> bool:
    with suppress(redis.ConnectionError):
        return bool(client.set("x", 1))
    return False


@pytest.mark.parametrize(
    "text",
    [
        "redis+sentinel://host:26379",
        "redis+sentinel://host:26379/",
        "redis+sentinel:///orders",
        "redis+sentinel://host:x/orders",
        "redis+sentinel://one,,two/orders",
    ],
)
def test_an_address_of_sentinels_names_them_and_the_primary(text: str) -> None:
    with pytest.raises(InvalidSettings, match="Correct GMR_REDIS_URL"):
        Address.of(text)


def test_an_address_of_sentinels_has_all_that_one_of_a_server_has() -> None:
    text = (
        "rediss+sentinel://me:a%2Fb@[::1]:1,two/the%20primary/3?sentinel_username=x&client_name=y"
    )
    found = Address.of(text)
    assert found == Address(
        "sentinel",
        "rediss://me:a%2Fb@/3?client_name=y",
        (("::1", 1), ("two", 26379)),
        "the primary",
        {"username": "x"},
    )
    assert found.is_encrypted
    assert "a%2Fb" not in repr(found)
