"""A Redis Cluster on loopback: primaries with replicas, which can be killed and frozen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks._ports import free_port
from benchmarks._service import until
from service.supervisor.embedded import find_binary

SLOTS: Final = 16384
BUS: Final = 10_000
"""A node's port for other nodes is so much beyond its own."""

NODE_TIMEOUT_MS: Final = 2000
ACQUAINTANCE_S: Final = 0.2
"""In which nodes that were introduced know each other, mostly."""

NO_LOGIN: Final[Mapping[str, Any]] = {}

OPTIONS: Final = (
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("save", ""),
    ("repl-diskless-sync-delay", "0"),
    ("cluster-enabled", "yes"),
    ("cluster-require-full-coverage", "no"),  # or all refuse while one has no primary
)


class Member:
    """One node, with what it keeps.

    Arguments:
        folder: For that; made here.
        node_timeout_ms: After which others take it for dead.
        options: Of the server, beyond those of all.
        login: Of whoever may do everything; by default nobody is asked for one.
    """

    def __init__(
        self,
        folder: Path,
        node_timeout_ms: int,
        options: Sequence[str] = (),
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        folder.mkdir(parents=True)
        self.port, self._folder = free_port(companion=BUS), folder
        self.client: Any = redis.Redis(
            port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=5, **login
        )
        self._options = options
        self._node_timeout_ms = node_timeout_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """As clients call it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin, or begin again; return when it answers.

        Raises:
            ChildProcessError: It ended instead.
        """
        command = [str(find_binary(None).path), "--port", str(self.port)]
        command += ["--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--logfile", str(self._folder / "log")]
        command += ["--cluster-node-timeout", str(self._node_timeout_ms)]
        command += [part for name, value in OPTIONS for part in (f"--{name}", value)]
        command += self._options
        self._process = process = subprocess.Popen(command)

        def answers() -> bool:
            if (status := process.poll()) is not None:
                last = (self._folder / "log").read_text().strip().rpartition("\n")[2]
                raise ChildProcessError(f"Node {self.name} ended with status {status}: {last}")
            return self.told("PING") is not None

        until(answers)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """It does nothing from now on, and nobody is told."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def told(self, *command: str | int) -> Any:
        """An answer; None where there is none."""
        with contextlib.suppress(redis.RedisError):
            return self.client.execute_command(*command)
        return None

    @property
    def is_primary(self) -> bool:
        """Whether it takes writes."""
        role = self.told("ROLE")
        return bool(role and role[0] == b"master")

    @property
    def follows(self) -> int | None:
        """The port of the primary whose replica it is, while it has all that this one has."""
        role = self.told("ROLE")
        return int(role[2]) if role and role[0] == b"slave" and role[3] == b"connected" else None


class RedisCluster:
    """All of its nodes.

    Arguments:
        folder: For what they keep.
        n_primaries: How many share the slots.
        n_replicas: Of each of them.
        node_timeout_ms: After which a replica takes over.
        **how: As `Member` takes it.

    Example:
        with RedisCluster(folder) as cluster:
            client = connect(cluster.url)
    """

    def __init__(
        self,
        folder: Path,
        n_primaries: int = 3,
        n_replicas: int = 1,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        **how: Any,
    ) -> None:
        self._n_primaries, self._n_replicas = n_primaries, n_replicas
        self.members = [
            Member(folder / str(number), node_timeout_ms, **how)
            for number in range(n_primaries * (1 + n_replicas))
        ]

    @property
    def url(self) -> str:
        """Where clients find all of them."""
        return f"redis+cluster://{','.join(one.name for one in self.members)}"

    @property
    def primaries(self) -> list[Member]:
        """Those that take writes."""
        return [one for one in self.members if one.is_primary]

    def replicas_of(self, primary: Member) -> list[Member]:
        """Those that follow it."""
        return [one for one in self.members if one.follows == primary.port]

    def wait_until_whole(self) -> None:
        """Return when every primary has its replicas, and all agree."""

        def whole() -> bool:
            primaries = {one.port for one in self.primaries}
            followed = Counter(one.follows for one in self.members)
            del followed[None]
            states = [one.told("CLUSTER", "INFO") or b"" for one in self.members]
            agree = all(b"cluster_state:ok" in state for state in states)
            whole = followed == Counter(dict.fromkeys(primaries, self._n_replicas))
            return agree and len(primaries) == self._n_primaries and whole

        until(whole)

    def __enter__(self) -> Self:
        try:
            self._join()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _join(self) -> None:
        n = self._n_primaries
        for number, one in enumerate(self.members):
            one.start()
            if number < n:
                first, beyond = (SLOTS * at // n for at in (number, number + 1))
                one.client.execute_command("CLUSTER", "ADDSLOTS", *range(first, beyond))
        until(self._meet)
        for number, one in enumerate(self.members[n:]):
            primary = self.members[number % n].client.execute_command("CLUSTER", "MYID").decode()
            until(partial(one.told, "CLUSTER", "REPLICATE", primary))
        self.wait_until_whole()

    def _meet(self) -> bool:
        """Introduce those who do not know all; a node forgets one that answered too late."""
        strangers = [one for one in self.members if len(_known(one)) < len(self.members)]
        for one in strangers:
            one.client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.members[0].port)
        if strangers:
            time.sleep(ACQUAINTANCE_S)
        return not strangers

    def _end(self) -> None:
        for one in self.members:
            one.kill()
            one.client.close()


def _known(member: Member) -> list[bytes]:
    found: bytes = member.told("CLUSTER", "NODES") or b""
    return found.splitlines()
