"""Six nodes of a Redis Cluster on loopback, of which one primary after another is hit.

A primary hands over to its replica when it is told to, or is killed and comes back as it was, or
is killed and finds that its replica was elected meanwhile. The last one loses what no replica has,
so that it is only done where commands wait for replicas.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks._redis_cluster import RedisCluster
from tests.service.running import wait_until

PATIENT_MS: Final = 60_000
"""Far longer than a killed primary stays away where nobody is to be elected."""

HANDED_OVER: Final = "hands over to its replica"
RESTARTED: Final = "is killed and comes back"
DEPOSED: Final = "is killed and its replica elected"


class ClusteredSet:
    """The six of them.

    Arguments:
        folder: For what they keep.
        chance: Decides which primary is hit, and how.
        elects: Whether replicas of a killed primary are elected.
    """

    def __init__(self, folder: Path, chance: random.Random, *, elects: bool = False) -> None:
        timeout = {} if elects else {"node_timeout_ms": PATIENT_MS}
        self._redis = RedisCluster(folder, **timeout)
        self._kinds = (HANDED_OVER, DEPOSED) if elects else (HANDED_OVER, RESTARTED)
        self._chance = chance

    @property
    def url(self) -> str:
        """Where clients find all of them."""
        return self._redis.url

    @property
    def nearby(self) -> str:
        """The same: nothing is in between."""
        return self.url

    @contextlib.contextmanager
    def whole(self) -> Iterator[ClusteredSet]:
        """The cluster, from when it answers."""
        with self._redis:
            yield self

    def hit(self) -> str:
        """Let one primary hand over or die; what happened."""
        primary = self._chance.choice(self._redis.primaries)
        [replica] = self._redis.replicas_of(primary)
        what = self._chance.choice(self._kinds)
        if what == HANDED_OVER:
            while not replica.is_primary:  # it gives up after five seconds
                replica.told("CLUSTER", "FAILOVER")
                with contextlib.suppress(AssertionError):
                    wait_until(lambda: replica.is_primary, 6)
        else:
            primary.kill()
            if what == DEPOSED:
                wait_until(lambda: replica.is_primary, 60)
            else:
                time.sleep(self._chance.uniform(0, 1))
            primary.start()
        self._redis.wait_until_whole()
        return what
