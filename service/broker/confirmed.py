"""Commands after which replicas are waited for, all on one connection to the node that has the key.

WAIT asks for what its own connection has written. A repeat may write nothing, so that a value of no
meaning can be written after it, which replicas get after the entry. On a cluster that connection is
one to the primary of the key; a primary that is gone, or has handed over, is an error that passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import redis
import redis.asyncio
from redis.commands.core import AsyncScript
from redis.exceptions import RedisClusterException

from service.broker.clustered import Cluster
from service.broker.connection import AsyncClient, SyncClient, node_of

FAILURES: Final = (redis.RedisError, RedisClusterException)
"""What redis-py raises; the second is no kind of the first."""


def confirmed(
    client: SyncClient,
    key: str,
    put: Callable[[Any], Any],
    replicas: int,
    timeout_ms: int,
    mark: str | None = None,
) -> tuple[Any, int]:
    """The answer to one command, and how many replicas have what it wrote.

    Arguments:
        client: Of the server, or of the cluster.
        key: That the command writes, or one of the same slot.
        put: Puts the command into a pipeline.
        replicas: That are waited for.
        timeout_ms: Longest wait for them.
        mark: Key that is written after it; None for a command that writes whenever it counts.

    Raises:
        RedisError: That of the first command which failed.
    """
    try:
        with _node(client, key).pipeline(transaction=False) as piped:
            together: Any = piped
            put(together)
            if mark is not None:
                together.set(mark, b"")
            together.execute_command("WAIT", replicas, timeout_ms)
            found = _without_errors(together.execute(raise_on_error=False))
    except FAILURES:
        if isinstance(client, Cluster):
            with suppress(*FAILURES):
                client.look_again(key)
        raise
    return found[0], int(found[-1])


async def confirmed_async(
    client: AsyncClient,
    script: AsyncScript,
    keys: Sequence[str],
    arguments: Sequence[Any],
    replicas: int,
    timeout_ms: int,
    mark: str,
) -> tuple[Any, int]:
    """As `confirmed`, for a script and a client of `redis.asyncio`."""
    try:
        found = await _piped(client, script, keys, arguments, replicas, timeout_ms, mark)
    except FAILURES:
        if isinstance(client, redis.asyncio.RedisCluster):
            with suppress(*FAILURES):
                await client.get(mark)
        raise
    return found[0], int(found[-1])


async def _piped(
    client: Any,
    script: AsyncScript,
    keys: Sequence[str],
    arguments: Sequence[Any],
    replicas: int,
    timeout_ms: int,
    mark: str,
) -> list[Any]:
    cluster = isinstance(client, redis.asyncio.RedisCluster)
    named: dict[str, Any] = {}
    if cluster:
        await client.initialize()
        named = {"target_nodes": node_of(client, mark)}
        if named["target_nodes"] is None:
            raise redis.exceptions.ClusterDownError("no node has this key for the moment")
    # As answers are: the pipeline's own error would begin with the command, ids and all.
    plainly: dict[str, Any] = {"raise_on_error": False}
    if cluster:
        plainly["allow_redirections"] = False  # on a connection that WAIT knows nothing of

    async def piped() -> list[Any]:
        async with client.pipeline(transaction=False) as together:
            together.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments, **named)
            together.execute_command("SET", mark, b"", **named)
            together.execute_command("WAIT", replicas, timeout_ms, **named)
            found: list[Any] = await together.execute(**plainly)
            return found

    found = await piped()
    if isinstance(found[0], redis.exceptions.NoScriptError):
        await client.execute_command("SCRIPT LOAD", script.script, **named)
        found = await piped()
    return _without_errors(found)


def _node(client: SyncClient, key: str) -> redis.Redis:
    """The client of the primary that has a key."""
    if not isinstance(client, redis.RedisCluster):
        return client
    node = node_of(client, key)
    if node is None:
        raise redis.exceptions.ClusterDownError("no node has this key for the moment")
    found: redis.Redis = client.get_redis_connection(node)
    return found


def _without_errors(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found
