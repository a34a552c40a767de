"""The fence as a counter, and the pointer to what a model's checkpoints in a store are.

An *epoch* is how often the fence of a model has been taken: each trainer that begins has one that
is higher than those before it. The pointer says which objects of a store are this model's
checkpoints. It can be set by the trainer alone that took the fence last, so that whatever an
earlier one still puts into the store is an object that nothing points to.

The scripts begin with a write that needs no memory, see `service.broker.fenced`.
"""

from __future__ import annotations

from typing import Any, Final

import redis

from service.broker.connection import SyncClient
from service.broker.fenced import lost
from service.broker.keys import Keys
from service.broker.lease import Lease

# The same trainer may ask again: its epoch stays. A Redis that has lost its data must not give
# out an epoch that names objects already: the caller says which is free.
TAKE: Final = """
local fence, lease, epochs = KEYS[1], KEYS[2], KEYS[3]
local token, least = ARGV[1], tonumber(ARGV[2])
if redis.call('GET', lease) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
local epoch = tonumber(redis.call('GET', epochs) or '0')
if redis.call('GET', fence) ~= token or epoch < least then
  epoch = math.max(epoch + 1, least)
  redis.call('SET', epochs, string.format('%d', epoch))
  redis.call('SET', fence, token)
end
return epoch
"""

POINT: Final = """
local fence, pointer, token, to = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
redis.call('SET', pointer, to)
"""


class Pointer:
    """The fence of one model, and what it guards: which checkpoints are the model's.

    May be used by several threads.

    Arguments:
        client: Connection to Redis that threads may share.
        keys: Of the model.
        lease: Held by this trainer.
    """

    def __init__(self, client: SyncClient, keys: Keys, lease: Lease) -> None:
        self._client = client
        self._keys = keys
        self._lease = lease
        self._take = client.register_script(TAKE)
        self._point = client.register_script(POINT)

    @property
    def writer(self) -> str:
        """A short name of this trainer that no other has."""
        return self._lease.mark

    def take(self, least: int = 0) -> int:
        """Shut out every trainer that began before; the epoch.

        Arguments:
            least: An epoch that nobody has had, as far as is known.

        Raises:
            LeaseLost: Another trainer has the lease.
        """
        keys = [self._keys.fence, self._keys.lease, self._keys.epoch]
        try:
            epoch: Any = self._take(keys=keys, args=[self._lease.token, least])
        except redis.ResponseError as error:
            raise lost(error) from error
        return int(epoch)

    def read(self) -> bytes | None:
        """What is pointed to; None where nothing ever was."""
        found: Any = self._client.get(self._keys.checkpoints)
        return None if found is None else bytes(found)

    def set(self, to: bytes) -> None:
        """Point to something else.

        Raises:
            LeaseLost: Another trainer has begun; nothing was changed.
        """
        keys = [self._keys.fence, self._keys.checkpoints]
        try:
            self._point(keys=keys, args=[self._lease.token, to])
        except redis.ResponseError as error:
            raise lost(error) from error
