"""Whether a part works, not only whether its process is there.

A trainer says in its status how long it has not gone on (`service.trainer.activity`), and is silent
when all of it is stopped; an API process answers, or does not. While Redis does not answer nobody
can tell, and nobody is to blame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import orjson
import redis
from redis.exceptions import RedisClusterException

from service.broker.connection import NO_IDENTITY, Identity, SyncClient, connect
from service.broker.keys import Keys
from service.trainer.activity import stall_of

LOOK_S: Final = 2.0
TIMEOUT_S: Final = 1.0

START_S: Final = 600.0
"""Seconds for a process to load what it must before it first reports, or answers."""


class TrainerWatch:
    """Looks at the status of a trainer.

    Arguments:
        address: Of Redis.
        model: Whose trainer it is.
        limit_s: Seconds without progress, or without a word.
        identity: Files by which both sides of rediss:// know each other.
        stands_by: Whether it may wait for another trainer to end, and says nothing meanwhile.
    """

    def __init__(
        self,
        address: str,
        model: str,
        limit_s: float,
        identity: Identity = NO_IDENTITY,
        *,
        stands_by: bool = False,
    ) -> None:
        self._address, self._identity, self._stands_by = address, identity, stands_by
        self._client: SyncClient | None = None
        self._key = Keys(model).status
        self._limit_s = limit_s
        self._pid: int | None = None
        self._since = time.monotonic()
        self._told: object = None  # when it reported, by its own clock

    def fault(self, pid: int) -> str | None:
        """What is wrong with the trainer of this number; None where nothing is, or nobody knows."""
        now = time.monotonic()
        if pid != self._pid:
            self._pid, self._since = pid, now
        try:
            if self._client is None:
                # Not before: a cluster is asked for its layout at once.
                self._client = connect(self._address, identity=self._identity, timeout_s=TIMEOUT_S)
            text = self._client.get(self._key)
        except (redis.RedisError, RedisClusterException, OSError):
            self._since = now  # it may have had no word because of that
            return None
        status = orjson.loads(text) if isinstance(text, bytes) else {}
        if status.get("pid") != pid:
            if self._stands_by:
                return None  # another one works
            waited = now - self._since
            return None if waited < START_S else f"It has not reported for {waited:.0f} seconds."
        # Not by the clock on the wall, which may be set while the trainer works.
        if status["time"] != self._told:
            self._told, self._since = status["time"], now
        if now - self._since > self._limit_s:
            return f"It has not reported for {now - self._since:.0f} seconds."
        return stall_of(status, self._limit_s)


class ApiWatch:
    """Asks an API process whether it lives.

    Arguments:
        answers: Whether it does, within about a second.
        limit_s: Seconds without an answer.
    """

    def __init__(self, answers: Callable[[], bool], limit_s: float) -> None:
        self._answers = answers
        self._limit_s = limit_s
        self._pid: int | None = None
        self._since = time.monotonic()
        self._started = False

    def fault(self, pid: int) -> str | None:
        """What is wrong with the process of this number; None where nothing is."""
        now = time.monotonic()
        if pid != self._pid:
            self._pid, self._since, self._started = pid, now, False
        if self._answers():
            self._since, self._started = now, True
            return None
        silent = now - self._since
        limit_s = self._limit_s if self._started else START_S
        return None if silent < limit_s else f"It has not answered for {silent:.0f} seconds."
