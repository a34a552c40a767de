"""Six nodes of a Redis Cluster on loopback: three primaries, each with a replica.

A primary hands over to its replica when it is told to, which loses nothing, or is killed and comes
back as it was: the others wait for it far longer than that takes. An election would lose what no
replica has, since no command waits for replicas in a cluster (docs/guarantees.md).
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.test_cluster import SLOTS, free_port
from tests.service.broker.servers import STRONG
from tests.service.conftest import BINARY
from tests.service.running import wait_until

PRIMARIES: Final = 3
NODE_TIMEOUT_MS: Final = 60_000

HANDED_OVER: Final = "hands over to its replica"
RESTARTED: Final = "is killed and comes back"


class Member:
    """One node, with what it keeps."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.port, self._folder = free_port(), folder
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or begin again."""
        command = [str(BINARY.path), "--port", str(self.port), "--bind", "127.0.0.1", *STRONG]
        command += ["--dir", str(self._folder), "--logfile", str(self._folder / "log")]
        command += ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        self._process = subprocess.Popen([*command, "--save", ""])
        wait_until(lambda: self.told("ping") is not None)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def told(self, *command: str | int) -> Any:
        """An answer; None where there is none."""
        with contextlib.suppress(redis.RedisError):
            return self.client.execute_command(*command)
        return None

    @property
    def id(self) -> str:
        """Its name in the cluster."""
        found: bytes = self.client.execute_command("CLUSTER", "MYID")
        return found.decode()

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


class ClusteredSet:
    """The six of them.

    Arguments:
        folder: For what they keep.
        chance: Decides which primary is hit, and how.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._members = [Member(folder / str(number)) for number in range(2 * PRIMARIES)]
        self._chance = chance

    @property
    def url(self) -> str:
        """Where clients find all of them."""
        return f"redis+cluster://127.0.0.1:{self._members[0].port}"

    @property
    def nearby(self) -> str:
        """The same: nothing is in between."""
        return self.url

    @contextlib.contextmanager
    def whole(self) -> Iterator[ClusteredSet]:
        """The cluster, from when it answers."""
        try:
            for number, one in enumerate(self._members):
                one.start()
                if number < PRIMARIES:
                    first, beyond = (SLOTS * at // PRIMARIES for at in (number, number + 1))
                    one.client.execute_command("CLUSTER", "ADDSLOTS", *range(first, beyond))
                one.client.execute_command("CLUSTER", "MEET", "127.0.0.1", self._members[0].port)
            wait_until(lambda: all(len(self._nodes(one)) == 2 * PRIMARIES for one in self._members))
            for number, one in enumerate(self._members[PRIMARIES:]):
                primary = self._members[number].id
                wait_until(
                    lambda one=one, primary=primary: one.told("CLUSTER", "REPLICATE", primary)
                )
            self.wait_until_whole()
            yield self
        finally:
            for one in self._members:
                one.kill()

    def _nodes(self, member: Member) -> list[bytes]:
        found: bytes = member.told("CLUSTER", "NODES") or b""
        return found.splitlines()

    def wait_until_whole(self) -> None:
        """Return when every primary has a replica that follows, and all agree."""

        def whole() -> bool:
            primaries = {one.port for one in self._members if one.is_primary}
            followed = {one.follows for one in self._members} - {None}
            states = [one.told("CLUSTER", "INFO") or b"" for one in self._members]
            agree = all(b"cluster_state:ok" in state for state in states)
            return agree and len(primaries) == PRIMARIES and followed == primaries

        wait_until(whole, 60)

    def hit(self) -> str:
        """Let one primary hand over or die; what happened."""
        primary = self._chance.choice([one for one in self._members if one.is_primary])
        what = self._chance.choice((HANDED_OVER, RESTARTED))
        if what == RESTARTED:
            primary.kill()
            time.sleep(self._chance.uniform(0, 1))
            primary.start()
        else:
            [replica] = [one for one in self._members if one.follows == primary.port]
            while not replica.is_primary:  # it gives up after five seconds
                replica.told("CLUSTER", "FAILOVER")
                with contextlib.suppress(AssertionError):
                    wait_until(lambda: replica.is_primary, 6)
        self.wait_until_whole()
        return what
