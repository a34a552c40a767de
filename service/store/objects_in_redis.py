"""Objects of one model in Redis: put if absent, read, listed, deleted. For small models only.

Then the stream, what is pointed to and the checkpoints are in one place, and one replica has all.

The scripts begin with a write that needs no memory, see `service.broker.fenced`: a full Redis is
left by learning, and what was learned must be kept before entries can be let go.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import redis
from redis.exceptions import RedisClusterException

from service.broker.connection import Identity, SyncClient, connect
from service.broker.keys import Keys
from service.store.kept import StoreUnavailable
from service.store.objects import ObjectExists, Stored, gone, of_another_size

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of an object. Every checkpoint passes through Redis' append-only file."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""What the checkpoints of a model may come to, whatever they may elsewhere."""

FAILURES: Final = (redis.RedisError, RedisClusterException, OSError)

PUT: Final = """
local index, object, name, data, stored = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
redis.call('PERSIST', index)
if redis.call('EXISTS', object) == 1 then return 0 end
redis.call('SET', object, data)
redis.call('HSET', index, name, stored)
return 1
"""

DELETE: Final = """
redis.call('UNLINK', KEYS[2])
redis.call('HDEL', KEYS[1], ARGV[1])
"""


class ObjectsInRedis:
    """The objects of one model, as `service.store.objects.Objects` has them.

    Arguments:
        client: Connection to Redis that threads may share.
        model: Name of the model; of a named one SERVICE/NAME.
    """

    def __init__(self, client: SyncClient, model: str) -> None:
        self.place = f"redis, model {model}"
        self._client = client
        self._keys = Keys(model)
        self._put = client.register_script(PUT)
        self._delete = client.register_script(DELETE)

    def put_new(self, name: str, data: bytes) -> None:
        """Put an object, unless the name is taken.

        Raises:
            ObjectExists: It is, or an earlier attempt arrived whose answer was lost.
            StoreUnavailable: It is too large; or it may be there, or not.
        """
        if len(data) > LARGEST:
            raise StoreUnavailable(
                f"{name} has {len(data):,} bytes, and Redis takes checkpoints of at most "
                f"{LARGEST:,}. Set GMR_CHECKPOINTS to an object store or to dir, and start again"
            )
        keys = [self._keys.objects, self._keys.object(name)]
        try:
            done = self._put(keys=keys, args=[name, data, f"{len(data)} {time.time():.6f}"])
        except FAILURES as error:
            raise self._failed("put", name, error) from error
        if not done:
            raise ObjectExists(name)

    def get(self, name: str, nbytes: int | None = None) -> bytes:
        """The bytes of an object.

        Arguments:
            name: Of the object.
            nbytes: How many it must have; None: any number.

        Raises:
            InvalidCheckpoint: It is not there, or has another size.
            StoreUnavailable: It cannot be read for the moment.
        """
        try:
            data: Any = self._client.get(self._keys.object(name))
        except FAILURES as error:
            raise self._failed("get", name, error) from error
        if data is None:
            raise gone(f"{self.place}/{name}")
        if nbytes is not None and len(data) != nbytes:
            raise of_another_size(f"{self.place}/{name}", len(data), nbytes)
        return bytes(data)

    def names(self) -> dict[str, Stored]:
        """What is there, by name.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        try:
            found: Any = self._client.hgetall(self._keys.objects)
        except FAILURES as error:
            raise self._failed("list", "", error) from error
        listed = {}
        for name, text in found.items():
            nbytes, put_at = text.split()
            listed[name.decode()] = Stored(int(nbytes), float(put_at))
        return listed

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error.

        Raises:
            StoreUnavailable: Some may be left.
        """
        for name in names:
            try:
                self._delete(keys=[self._keys.objects, self._keys.object(name)], args=[name])
            except FAILURES as error:
                raise self._failed("delete", name, error) from error

    def clear(self) -> int:
        """Delete all of them; how many there were.

        Raises:
            StoreUnavailable: Some may be left.
        """
        names = self.names()
        self.delete(names)
        return len(names)

    def _failed(self, what: str, name: str, error: Exception) -> StoreUnavailable:
        where = f"{self.place}/{name}".rstrip("/")
        return StoreUnavailable(f"{what} {where}: {type(error).__name__}: {error}")


@lru_cache(maxsize=8)
def client_of(address: str, identity: Identity) -> SyncClient:
    """A connection for objects; models share it."""
    return connect(address, identity=identity)
