"""Who may write: one process per folder, one trainer per model.

Two guards against the same mistake on two scales. `DirectoryLock` keeps a second
process on this machine away from a folder; the system frees it when its holder
ends, however that comes about. `Lease` keeps a second trainer away from a model
of a shared Redis; it runs out unless it is renewed. A holder that was paused for
longer than that may wake up without it and not know. So a trainer that begins puts
its token into a fence, and whatever an earlier one still sends is refused
(`service.broker.fenced`).

The scripts begin with a write that needs no memory, see `service.broker.fenced`.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis

from core.errors import InvalidSettings
from service.broker.keys import Keys

LEASE_S: Final = 15.0
"""Seconds after which a lease that nobody renews runs out."""

LOCK_PATIENCE_S: Final = 10.0
"""Seconds to wait for a lock: a killed supervisor's children take a moment to end."""


class DirectoryLock:
    """An exclusive lock on a folder, held by this process and those that inherit it.

    Arguments:
        directory: Made if missing.
        purpose: Named in the error of the one who comes second.
        patience_s: Seconds to wait for the lock.

    Raises:
        InvalidSettings: Another process holds it.
    """

    def __init__(self, directory: Path, purpose: str, patience_s: float = LOCK_PATIENCE_S) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = (directory / "lock").open("a+", encoding="ascii")
        except OSError as error:
            raise InvalidSettings(
                f"The folder {directory} for {purpose} cannot be used: {error.strerror}. Choose "
                f"one that this user may write to, by --data-dir."
            ) from error
        deadline = time.monotonic() + patience_s
        while not self._try():
            if not _is_gone(self._holder()) or time.monotonic() > deadline:
                holder = self._holder()
                self._file.close()
                raise InvalidSettings(
                    f"The folder {directory} is in use by another {purpose}"
                    f"{f' (process {holder})' if holder else ''}; expected one at a time. Stop it, "
                    f"or choose another folder by --data-dir."
                )
            time.sleep(0.05)
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def fileno(self) -> int:
        """For `pass_fds`: a child that inherits it keeps the lock until it ends, too."""
        return self._file.fileno()

    def release(self) -> None:
        """Give up this process's share of the lock."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> int | None:
        self._file.seek(0)
        text = self._file.read(20)
        return int(text) if text.isdigit() else None


class Lease:
    """The right to change one model, held by one trainer at a time.

    The value in Redis says who holds it: a machine, a process there, and a random
    token. So a trainer that was killed is replaced at once by one on the same
    machine, which can see that it is gone; elsewhere the lease must run out.

    Arguments:
        client: Connection to the model's Redis.
        keys: Of the model.
        seconds: After which it runs out unless it is renewed; None: `LEASE_S`.
    """

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        keys: Keys,
        seconds: float | None = None,
    ) -> None:
        self.held = False
        self.seconds = LEASE_S if seconds is None else seconds
        self._client = client
        self._keys = [keys.lease, keys.fence]
        id = uuid.uuid4().hex
        self.mark = id[:8]  # a short name of the holder
        self.token = json.dumps(
            {
                "machine": machine(),
                "pid": os.getpid(),
                "started": _start_of(os.getpid()),
                "token": id,
            }
        )
        self._acquire = client.register_script(ACQUIRE)
        self._renew = client.register_script(RENEW)
        self._release = client.register_script(RELEASE)

    def acquire(self, patience_s: float = LEASE_S + 1) -> None:
        """Take the lease, waiting for one to run out that its holder does not renew.

        Raises:
            InvalidSettings: Another trainer holds it and is alive.
        """
        deadline = time.monotonic() + patience_s
        lowest = math.inf
        while True:
            holder = self._try()
            if holder is None:
                self.held = True
                return
            left_ms = int(self._client.pttl(self._keys[0]))
            renewed = left_ms > lowest
            lowest = min(lowest, left_ms)
            if renewed or time.monotonic() > deadline:
                raise InvalidSettings(
                    f"Another trainer works on this model: process {holder.get('pid')} on "
                    f"{holder.get('machine')}; expected one at a time. Stop it, or choose another "
                    f"model name by GMR_MODEL."
                )
            time.sleep(0.1)

    def renew(self) -> bool:
        """Keep the lease for another while; False when another trainer has begun."""
        return bool(self._renew(keys=self._keys, args=[self.token, _milliseconds(self.seconds)]))

    def release(self) -> None:
        """Give the lease up, if it is still ours."""
        self.held = False
        self._release(keys=self._keys, args=[self.token])

    def _try(self) -> dict[str, object] | None:
        """None when the lease is ours now, else who holds it."""
        milliseconds = _milliseconds(self.seconds)
        # It may be ours, if the answer to an earlier try was lost.
        taken_by = self._acquire(keys=self._keys, args=[self.token, milliseconds, self.token])
        if taken_by is None:
            return None
        holder: dict[str, object] = json.loads(taken_by)
        gone = holder.get("machine") == machine() and holder.get("started") != _start_of(
            int(str(holder.get("pid", 0)))
        )
        if not gone:
            return holder
        taken_by = self._acquire(keys=self._keys, args=[self.token, milliseconds, taken_by])
        return None if taken_by is None else holder


# Takes a lease that is free, or that one holder has: oneself, or one known to be gone. Gives any
# other holder.
ACQUIRE: Final = """
local lease, fence = KEYS[1], KEYS[2]
local token, milliseconds, from = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', lease)
if holder and holder ~= from then return holder end
redis.call('PERSIST', fence)
redis.call('SET', lease, token, 'PX', milliseconds)
return false
"""

# A lease that ran out while Redis was away is ours still if nobody has begun since.
RENEW: Final = """
local lease, fence = KEYS[1], KEYS[2]
local token, milliseconds = ARGV[1], ARGV[2]
local holder = redis.call('GET', lease) or redis.call('GET', fence)
if holder ~= token then return 0 end
redis.call('PERSIST', fence)
redis.call('SET', lease, token, 'PX', milliseconds)
return 1
"""

RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def machine() -> str:
    """A name for where process numbers mean the same: host, and container within it."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no such thing on this system
        return socket.gethostname()


def _start_of(pid: int) -> str | None:
    """When a process began, None when it is gone: numbers are used again, moments are not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None if Path("/proc/self").exists() else "unknown"
    # The second field is the program's name, which may hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _is_gone(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _start_of(pid) is None
