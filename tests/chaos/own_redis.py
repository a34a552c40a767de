"""An embedded Redis of a script's own, beside a folder for what the script makes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from service.broker.lease import DirectoryLock
from service.supervisor.embedded import EmbeddedRedis
from tests.service.conftest import BINARY


@contextlib.contextmanager
def own_redis() -> Iterator[tuple[str, Path]]:
    """Its address, and the folder; both are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="gmr-chaos-") as name:
        folder = Path(name)
        with DirectoryLock(folder / "redis", "test") as lock:
            server = EmbeddedRedis(folder / "redis", BINARY, 256, lock)
            server.start()
            try:
                yield server.url, folder
            finally:
                server.stop()
