"""Nodes of a cluster that do not answer, so that nobody waits for the same one twice.

Whoever leads many models waits for none of those whose node is away while others can be led. A
thread asks such nodes until they answer, or until another has taken over what they had.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import redis

from service.broker.connection import SyncClient, is_transient, node_of

logger = logging.getLogger(__name__)

PAUSE_S: Final = 0.1
"""Between two rounds of asking."""

NOBODY: Final = ""
"""In place of a node's name, where no node has a key for the moment."""


class AwayNodes:
    """Which nodes are away. On a single server none ever is: then there is nothing but to wait.

    Threads may share it.

    Arguments:
        client: Connection to Redis that threads may share.
    """

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._keys: dict[str, str] = {}  # of each node, one; replaced whole, as threads look at it
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def has(self, key: str) -> bool:
        """Whether the node is away that has a key."""
        return bool(self._keys) and self._name(key) in self._keys

    def missed(self, key: str) -> None:
        """The node that has a key did not answer."""
        if not isinstance(self._client, redis.RedisCluster):
            return
        name = self._name(key)
        with self._lock:
            if self._end.is_set() or name in self._keys:
                return
            self._keys = {**self._keys, name: key}
            logger.warning("node %s of Redis is away: its models wait, others go on", name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._ask, name="gmr-away", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        with self._lock:
            self._end.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _name(self, key: str) -> str:
        node = node_of(self._client, key)
        return NOBODY if node is None else node.name

    def _ask(self) -> None:
        while not self._end.wait(PAUSE_S):
            for name, key in self._keys.items():
                try:
                    self._client.pttl(key)  # which learns of a new layout, too
                except Exception as error:
                    if is_transient(error):
                        continue
                    logger.warning("node %s of Redis answers by an error: %s", name, error)
                self._back(name)
            with self._lock:
                if not self._keys:
                    self._thread = None
                    return

    def _back(self, name: str) -> None:
        with self._lock:
            self._keys = {at: key for at, key in self._keys.items() if at != name}
        logger.info("what node %s of Redis had is answered for again", name)
