"""The Redis of a service, to be read: one's own, a running embedded one, or a copy of its files.

An embedded Redis that is stopped has only files. To ask them, a server is started on a copy of
them: so nothing of the service's is written to, and files that a server cannot read are found.
"""

from __future__ import annotations

import fcntl
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import InvalidSettings
from service.broker.connection import SyncClient, connect, identity_of
from service.broker.lease import DirectoryLock
from service.settings import MIB, Settings
from service.supervisor.embedded import EmbeddedRedis, address_of, find_binary

Whose = Literal["own", "running", "copy"]

TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Reach:
    """A way to a service's Redis.

    Arguments:
        client: To ask it by.
        whose: `own`: of an address that was given; `running`: the embedded one; `copy`: a server on
            a copy of the files of an embedded one that is stopped.
        short: Whether the files of a copy ended in the middle of a command.
    """

    client: SyncClient
    whose: Whose
    short: bool = False


def is_running(data_dir: Path) -> bool:
    """Whether a service, or its embedded Redis, holds a data dir."""
    try:
        with (data_dir / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def reach(settings: Settings, *, held: bool = False) -> Iterator[Reach | None]:
    """A way to the Redis of a service; None where it has none: an address that was not given.

    Arguments:
        settings: Of the service.
        held: Whether the caller holds the data dir's lock, so that no service runs there.

    Raises:
        InvalidSettings: There is no room for a copy, or no server can read its files.
    """
    address = settings.redis_address()
    if address is not None or (not held and is_running(settings.data_dir)):
        whose: Whose = "own" if address is not None else "running"
        client = connect(
            address or address_of(settings.data_dir),
            identity=identity_of(settings),
            timeout_s=TIMEOUT_S,
        )
        with client:
            yield Reach(client, whose)
        return
    files = list(redis_files(settings.data_dir))
    if not files:
        yield None
        return
    with _copied(settings, files) as found:
        yield found


def redis_files(data_dir: Path) -> Iterator[Path]:
    """The files in which the embedded Redis of a data dir keeps its data."""
    directory = data_dir / "redis"
    for folder in (directory, directory / "appendonlydir"):
        for path in sorted(folder.glob("*")):
            passing = path.name.startswith(("temp-", "redis.log"))
            if stat.S_ISREG(path.lstat().st_mode) and path.name != "lock" and not passing:
                yield path


@contextmanager
def _copied(settings: Settings, files: list[Path]) -> Iterator[Reach]:
    needed = sum(path.stat().st_size for path in files)
    with tempfile.TemporaryDirectory(prefix="gmr-") as name:
        copy = Path(name)
        free = shutil.disk_usage(copy).free
        if needed + settings.disk_reserve_mib * MIB > free:
            raise InvalidSettings(
                f"The files of the embedded Redis have {needed // MIB} MiB, and {copy.parent} has "
                f"{free // MIB} MiB left; expected room for a copy, which is what is read. Make "
                f"room there, or name another folder by TMPDIR."
            )
        for path in files:
            to = copy / path.relative_to(settings.data_dir)
            to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(path, to)
        binary = find_binary(settings.redis_binary)
        with DirectoryLock(copy, "copy") as lock:
            server = EmbeddedRedis(copy, binary, settings.redis_maxmemory_mib, lock)
            server.start()
            try:
                log = (copy / "redis" / "redis.log").read_text("utf-8", "replace")
                with connect(server.url, timeout_s=TIMEOUT_S) as client:
                    yield Reach(client, "copy", "short read while loading" in log.lower())
            finally:
                server.stop()
