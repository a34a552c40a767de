"""Clients of a Redis Cluster, as redis-py has them but for a few things.

redis-py needs every primary, or the first of them, for what one alone can do: while that is away,
others would be of no use to a process that begins, or to a script that is new to them.

1. A script is loaded on the node that is to carry it out, not on all.
2. Which commands there are is asked of any primary, not of the first alone, and once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis
import redis.asyncio
from redis._parsers import AsyncCommandsParser
from redis.commands.core import AsyncScript, Script
from redis.exceptions import NoScriptError


class Cluster(redis.RedisCluster):
    """For the trainer."""

    def look_again(self, key: str) -> None:
        """Learn who has a key now, after the node that had it has failed; that is asked last."""
        cluster: Any = self
        node = cluster.get_node_from_key(key)
        cluster.nodes_manager.initialize(last_failed_node_name=node.name)

    def register_script(self, script: Any) -> Script:
        """A script that is loaded where it is needed."""
        return _Script(self, script)

    def command(self, **named: Any) -> Any:
        """The commands of whichever primary answers."""
        cluster: Any = self
        *others, last = cluster.get_primaries()
        for node in others:
            with suppress(redis.ConnectionError, redis.TimeoutError):
                return super().command(target_nodes=node, **named)
        return super().command(target_nodes=last, **named)


class AsyncCluster(redis.asyncio.RedisCluster):
    """For the API."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.commands_parser = _Commands(self)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override]
        """A script that is loaded where it is needed."""
        return _AsyncScript(self, script)

    async def aclose(self) -> None:
        """Close all connections, also while a new layout is to be asked for."""
        await super().aclose()
        for nodes in ("nodes_cache", "startup_nodes"):  # which closes nothing then
            await self.nodes_manager.aclose(nodes)


class _Commands(AsyncCommandsParser):
    def __init__(self, cluster: AsyncCluster) -> None:
        super().__init__()
        self._cluster = cluster

    async def initialize(self, node: Any = None) -> None:
        self.node = node
        if self.commands:
            return  # which are the same on all nodes
        *others, last = dict.fromkeys([node, *self._cluster.get_primaries()])
        for one in others:
            with suppress(redis.ConnectionError, redis.TimeoutError):
                return await super().initialize(one)
        await super().initialize(last)


class _Script(Script):
    def __call__(self, keys: Any = None, args: Any = None, client: Any = None) -> Any:
        if client is not None:  # a pipeline to one node, which loads it there
            return super().__call__(keys, args, client)
        cluster: Any = self.registered_client
        call = (self.sha, len(keys), *keys, *(args or ()))
        try:
            return cluster.evalsha(*call)
        except NoScriptError:
            node = cluster.get_node_from_key(keys[0])
            cluster.execute_command("SCRIPT LOAD", self.script, target_nodes=node)
            return cluster.evalsha(*call)


class _AsyncScript(AsyncScript):
    async def __call__(self, keys: Any = None, args: Any = None, client: Any = None) -> Any:
        if client is not None:
            return await super().__call__(keys, args, client)
        cluster: Any = self.registered_client
        call = (self.sha, len(keys), *keys, *(args or ()))
        try:
            return await cluster.evalsha(*call)
        except NoScriptError:
            node = cluster.get_node_from_key(keys[0])
            await cluster.execute_command("SCRIPT LOAD", self.script, target_nodes=node)
            return await cluster.evalsha(*call)
