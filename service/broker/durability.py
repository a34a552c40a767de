"""What a Redis promises of what it has acknowledged, looked at whenever a connection is made.

A 202 promises no more than its Redis does. So each new connection asks for the version, the role
and how writes reach the disk, before any other command. A Redis that promises less is refused,
unless that was accepted by name (`GMR_ACCEPT_WEAK_DURABILITY`). The rights of the user are tried
once for each process, by commands that change nothing, and again after a command was not permitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import redis

OLDEST: Final = (6, 2)

Promise = Literal["disk", "replicas", "weak"]
End = Literal["api", "trainer"]

Command = tuple[str | int, ...]


class WeakDurability(redis.RedisError):
    """A Redis that promises less than it has to."""


@dataclass(frozen=True)
class Durability:
    """What is promised.

    Arguments:
        lacks: What the Redis does not do, in words; nothing where it does everything.
        replicas: That have an entry, too, before it is acknowledged.
    """

    lacks: tuple[str, ...] = ()
    replicas: int = 0

    @property
    def promise(self) -> Promise:
        """`disk`: what is acknowledged is on disk; `replicas`: there, too; `weak`: less."""
        if self.lacks:
            return "weak"
        return "replicas" if self.replicas else "disk"


class Examiner:
    """Looks at each new connection of one process.

    Arguments:
        model: Whose keys the user must be allowed to use.
        end: Which end of the stream this is; they need different rights.
        accept_weak: Whether a Redis that promises less is taken all the same.
        replicas: That must have an entry before it is acknowledged.
    """

    def __init__(
        self, model: str, end: End, *, accept_weak: bool = False, replicas: int = 0
    ) -> None:
        self.found: Durability | None = None
        self._model = model
        self._end = end
        self._accept_weak = accept_weak
        self._replicas = replicas
        self._rights_known = False

    def doubt_rights(self) -> None:
        """Try the rights again with the next connection: something was not permitted."""
        self._rights_known = False

    def examine(self, connection: Any, *, cluster: bool = False) -> None:
        """Look at what a connection leads to.

        Arguments:
            connection: Of redis-py, ready for commands.
            cluster: Whether it is one of a cluster's nodes, which may be a replica.

        Raises:
            WeakDurability: The Redis promises less than it has to.
            BusyLoadingError: It has yet to read its data.
            ReadOnlyError: It is a replica.
            NoPermissionError: The user lacks rights.
        """
        # All at once, not one after the other: they cost one way to the server and back.
        questions = [*self._questions()]
        connection.send_packed_command(connection.pack_commands(questions))
        replies = []
        for _ in questions:
            try:
                replies.append(connection.read_response())
            except redis.ResponseError as error:
                replies.append(error)
        self._judge(replies, cluster)

    async def examine_async(self, connection: Any, *, cluster: bool = False) -> None:
        """As `examine`, for a connection of `redis.asyncio`."""
        questions = [*self._questions()]
        await connection.send_packed_command(connection.pack_commands(questions))
        replies = []
        for _ in questions:
            try:
                replies.append(await connection.read_response())
            except redis.ResponseError as error:
                replies.append(error)
        self._judge(replies, cluster)

    def _questions(self) -> Iterator[Command]:
        yield ("INFO",)
        yield ("CONFIG", "GET", "appendfsync")
        if not self._rights_known:
            yield from rights(self._model, self._end)
            if self._replicas:
                yield ("WAIT", 0, 1)

    def _judge(self, replies: list[Any], cluster: bool) -> None:
        info, fsync, *tried = replies
        for reply in (info, *tried):
            if isinstance(reply, redis.exceptions.NoPermissionError):
                raise reply
        if isinstance(info, Exception):
            raise info
        facts = _facts(info)
        if facts.get("loading") == "1":
            # Meanwhile it takes its append-only file for switched off, and tries no rights.
            raise redis.BusyLoadingError("Redis is loading the dataset in memory")
        if not cluster and facts.get("role", "master") != "master":
            raise redis.ReadOnlyError(
                "You can't write against a read only replica.", status_code="READONLY"
            )
        self._rights_known = self._rights_known or bool(tried)
        known = None if isinstance(fsync, Exception) or len(fsync) < 2 else _text(fsync[1])
        lacks = tuple(shortfalls(facts, known))
        self.found = Durability(lacks, self._replicas)
        if lacks and not self._accept_weak:
            raise WeakDurability("; ".join(lacks))


def shortfalls(facts: Mapping[str, str], appendfsync: str | None) -> Iterator[str]:
    """What a Redis does not do that a 202 promises.

    Arguments:
        facts: Of INFO.
        appendfsync: As it is set; None where the server does not tell.

    Example:
        >>> facts = {"redis_version": "7.0.15", "aof_enabled": "0"}
        >>> list(shortfalls(facts | {"maxmemory_policy": "noeviction"}, "always"))
        ['appendonly is no, expected yes']
    """
    version = facts.get("redis_version", "")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST:
        yield f"its version is {version or 'unknown'}, expected 6.2 or newer"
    if facts.get("aof_enabled") != "1":
        yield "appendonly is no, expected yes"
    elif appendfsync != "always":
        yield f"appendfsync is {appendfsync or 'not told (CONFIG GET)'}, expected always"
    policy = facts.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        yield f"maxmemory-policy is {policy}, expected noeviction"


def rights(model: str, end: End) -> Iterator[Command]:
    """Commands that need what an end of the stream needs, and change nothing.

    They name a key of the model that does not exist, or end in a value that is none, so that a
    server looks at the rights of the user, and then finds nothing to do.
    """
    key = f"{{gmr:{model}}}:rights"
    yield ("EVALSHA", "0" * 40, 1, key)
    yield ("SCRIPT", "LOAD", "return 0")
    yield ("EXISTS", key)
    yield ("GET", key)
    yield ("SET", key, "", "XX")
    yield ("DEL", key)
    yield ("UNLINK", key)
    yield ("PERSIST", key)
    yield ("EXPIRE", key, "x")
    yield ("XLEN", key)
    yield ("XADD", key, "NOMKSTREAM", "*", "x", "")
    yield ("XRANGE", key, "-", "+", "COUNT", 1)
    yield ("XREVRANGE", key, "+", "-", "COUNT", 1)
    yield ("XDEL", key, "0-1")
    yield ("HSET", key, "x", "", "odd")
    yield ("HGET", key, "x")
    yield ("HDEL", key, "x")
    yield ("HLEN", key)
    yield ("HGETALL", key)
    yield ("HINCRBY", key, "x", "x")
    yield ("DECRBY", key, "x")
    yield ("XREAD", "COUNT", 1, "STREAMS", key, "$")
    if end == "api":
        yield ("PING",)
        yield ("HMGET", key, "x")
        yield ("HVALS", key)
        yield ("LREM", key, 0, "")
    else:
        yield ("INCRBY", key, "x")
        yield ("PTTL", key)
        yield ("LPOP", key)
        yield ("LLEN", key)
        yield ("SCAN", 0, "MATCH", key, "COUNT", 1)
        yield ("XACK", key, "x", "0-1")
        yield ("XTRIM", key, "MINID", "0-1")
        yield ("XSETID", key, "0-1")
        yield ("XINFO", "STREAM", key)
        yield ("XGROUP", "DESTROY", key, "x")
        yield ("XGROUP", "SETID", key, "x", "0-1")
        yield ("XREADGROUP", "GROUP", "x", "x", "COUNT", 1, "STREAMS", key, ">")


def _facts(info: Any) -> dict[str, str]:
    """INFO as fields."""
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    lines = [line.partition(":") for line in _text(info).splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in lines}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
