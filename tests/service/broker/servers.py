"""Servers for tests of what another Redis may do: with any options, on a port of loopback."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks._ports import free_port
from tests.service.conftest import BINARY

SYSTEM = shutil.which("redis-server") or shutil.which("valkey-server")
NEEDS_SYSTEM = pytest.mark.skipif(
    SYSTEM is None, reason="no redis-server on the PATH (make system installs one)"
)
BINARIES = [
    pytest.param(str(BINARY.path), id=BINARY.path.name + "-" + ".".join(map(str, BINARY.version))),
    pytest.param(SYSTEM, id="system", marks=NEEDS_SYSTEM),
]
STRONG = ("--appendonly", "yes", "--appendfsync", "always")
WEAK = ("--appendonly", "no")


class Server:
    """A server that runs, and a client of it."""

    def __init__(self, port: int, client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
        self.port, self.client, self.process = port, client, process

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def refused(self, *command: str) -> str:
        """What an error says."""
        with pytest.raises(redis.RedisError) as caught:
            self.client.execute_command(*command)
        return str(caught.value)


@contextlib.contextmanager
def running(
    binary: str, directory: Path, *options: str, port: int | None = None, **client: object
) -> Iterator[Server]:
    """A server, from when it answers (if only that it may not) to the end of the block."""
    port = free_port() if port is None else port
    directory.mkdir(parents=True, exist_ok=True)
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    command += ["--save", "", "--logfile", str(directory / "log"), *options]
    process = subprocess.Popen(command)
    asking = redis.Redis(port=port, retry=Retry(NoBackoff(), 0), **client)  # type: ignore[arg-type]
    try:
        deadline = time.monotonic() + 15
        while True:
            try:
                asking.ping()
                break
            except (redis.AuthenticationError, redis.BusyLoadingError, redis.ResponseError):
                break
            except redis.ConnectionError:
                assert time.monotonic() < deadline, (directory / "log").read_text()
                assert process.poll() is None, (directory / "log").read_text()
                time.sleep(0.01)
        yield Server(port, asking, process)
    finally:
        asking.close()
        process.kill()
        process.wait()
