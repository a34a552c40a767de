"""A primary with two replicas, by the system's redis-server, which fails over when it is told to.

Clients speak to one address, as with a service of Kubernetes or a proxy in front of Sentinel.
Replicas get what the primary writes a little later, as over a net.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks._ports import free_port
from tests.chaos.proxy import Proxy
from tests.service.broker.servers import STRONG, SYSTEM
from tests.service.running import wait_until

NODES: Final = 3
LAG_S: Final = 0.03


class Node:
    """One server, with what it keeps and the address at which replicas find it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self.folder = folder
        self.link = Proxy(self.port, LAG_S)
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, primary: Node | None) -> None:
        """Begin, as a replica of another or alone."""
        assert SYSTEM is not None
        command = [SYSTEM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *STRONG]
        command += ["--dir", str(self.folder), "--logfile", str(self.folder / "log")]
        command += ["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"]
        if primary is not None:
            command += ["--replicaof", "127.0.0.1", str(primary.link.port)]
        self._process = subprocess.Popen(command)
        wait_until(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False

    def kill(self) -> None:
        """End it as a power failure would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.link.cut()

    def facts(self) -> dict[str, Any]:
        """What it says of replication."""
        found: Any = self.client.info("replication")
        return found


class ReplicatedSet:
    """Three nodes and the address of the primary."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node(folder / str(number)) for number in range(NODES)]
        self.primary = self.nodes[0]
        self.front = Proxy(self.primary.port)

    @property
    def url(self) -> str:
        """Where clients find the primary."""
        return f"redis://127.0.0.1:{self.front.port}"

    def __enter__(self) -> Self:
        self.primary.start(None)
        for node in self.nodes[1:]:
            node.start(self.primary)
        self.wait_until_whole()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            with contextlib.suppress(OSError):
                node.kill()

    def wait_until_whole(self, timeout_s: float = 60.0) -> None:
        """Return when both replicas follow."""

        def whole() -> bool:
            with contextlib.suppress(redis.RedisError):
                others = [node for node in self.nodes if node is not self.primary]
                return all(node.facts().get("master_link_status") == "up" for node in others)
            return False

        wait_until(whole, timeout_s)

    def fail_over(self) -> None:
        """Kill the primary; the replica that has most takes over, and the dead one follows it."""
        dead = self.primary
        dead.kill()
        time.sleep(2 * LAG_S)  # what was under way has arrived, or never will
        others = [node for node in self.nodes if node is not dead]
        self.primary = max(others, key=lambda node: int(node.facts()["slave_repl_offset"]))
        self.primary.client.replicaof("NO", "ONE")
        for node in others:
            if node is not self.primary:
                node.client.replicaof("127.0.0.1", str(self.primary.link.port))
        self.front.target = self.primary.port
        self.front.cut()
        dead.start(self.primary)
        self.wait_until_whole()
