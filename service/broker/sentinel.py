"""Clients of a primary whose address Sentinels know: they are asked with every new connection."""

from __future__ import annotations

from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.sentinel import MasterNotFoundError as AsyncNotFoundError
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from service.broker.address import Address

TIMEOUT_S: Final = 1.0
"""Longest wait for one Sentinel, before the next is asked."""

REFUSED: Final = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
"""What a Sentinel answers to the wrong login, and redis-py takes for silence."""


class _Sentinels(Sentinel):
    def discover_master(self, service_name: str) -> tuple[str, int]:
        try:
            found: tuple[str, int] = super().discover_master(service_name)  # type: ignore[no-untyped-call]
        except MasterNotFoundError:
            for one in self.sentinels:
                try:
                    one.ping()
                except redis.RedisError as error:
                    if isinstance(error, REFUSED):
                        raise
            raise _unknown(service_name) from None
        return found


class _AsyncSentinels(AsyncSentinel):
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        try:
            found: tuple[str, int] = await super().discover_master(service_name)
        except AsyncNotFoundError:
            for one in self.sentinels:
                try:
                    await one.ping()
                except redis.RedisError as error:
                    if isinstance(error, REFUSED):
                        raise
            raise _unknown(service_name) from None
        return found


class _Primary(redis.Redis):
    def close(self) -> None:
        super().close()
        pool = self.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        pool.sentinel_manager.close()


class _AsyncPrimary(redis.asyncio.Redis):
    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool = self.connection_pool
        assert isinstance(pool, AsyncPool)
        await pool.sentinel_manager.aclose()


def primary_of(address: Address, options: dict[str, Any]) -> redis.Redis:
    """A client of the primary.

    Arguments:
        address: Of kind `sentinel`.
        options: Of its connections.

    Raises:
        ValueError: Its query cannot be read.
    """
    sentinels, own = _asked(address, options)
    untyped: Any = _Sentinels
    made: redis.Redis = untyped(address.places, sentinel_kwargs=sentinels).master_for(
        address.primary, _Primary, **own
    )
    return made


def primary_of_async(address: Address, options: dict[str, Any]) -> redis.asyncio.Redis:
    """As `primary_of`, for `redis.asyncio`."""
    sentinels, own = _asked(address, options)
    untyped: Any = _AsyncSentinels
    made: redis.asyncio.Redis = untyped(address.places, sentinel_kwargs=sentinels).master_for(
        address.primary, _AsyncPrimary, **own
    )
    return made


def _unknown(primary: str) -> redis.ConnectionError:
    # In place of redis-py's, which shows every option of every connection.
    return MasterNotFoundError(f"no Sentinel that answers knows a primary {primary!r} that is up")


def _asked(address: Address, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of connections to Sentinels, and to the primary."""
    tls = {"ssl": True} if address.is_encrypted else {}
    files = {name: value for name, value in options.items() if name.startswith("ssl_")}
    times = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    plain = {"retry": options["retry"], "protocol": 2}
    sentinels = {**plain, **times, **address.login, **files, **tls}
    return sentinels, {**address.options(), **options, **tls}
