"""Writing to Redis as the one trainer of a model: behind a fence.

All that a trainer writes goes through scripts that first look at the fence, which names the trainer
that began last: one that was paused and replaced can do no harm. They work on a Redis that is full,
because the way out of that is to learn, report and let go. A full Redis refuses only the first
write of a script, if it needs memory; so the first is one that needs none and does nothing (PERSIST
of the fence).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import redis

from core.errors import GMRError
from service.broker.confirmed import confirmed
from service.broker.connection import SyncClient, patiently, unavailable
from service.broker.keys import Keys
from service.broker.lease import Lease

logger = logging.getLogger(__name__)

CONFIRM_MS: Final = 500
"""Longest wait for replicas to have what a trainer has written, or has read."""

Command = tuple[Any, ...]
"""A command of Redis: its name, its key, and the rest."""


class LeaseLost(GMRError):
    """Another trainer has taken over this model while this one was not looking."""


# Any commands, each preceded by its length. Reports made again after a crash have ids
# that the stream knows, which is an error that is no error.
WRITE: Final = """
local fence, token, at = KEYS[1], ARGV[1], 2
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
while at <= #ARGV do
  local length = tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, at + length))
  if type(reply) == 'table' and reply.err
      and not string.find(reply.err, 'equal or smaller', 1, true) then
    return reply
  end
  at = at + length + 1
end
"""


class Fenced:
    """A trainer's connection to the keys of one model.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model.
        lease: Held by this trainer.
        give_up: Asked while Redis is away; True makes calls fail instead of waiting on.
        replicas: That are to have what is written, before it counts as confirmed.
        patience_s: Seconds for which a call is repeated while Redis is away.
    """

    def __init__(
        self,
        client: SyncClient,
        model: str,
        lease: Lease,
        give_up: Callable[[], bool] = lambda: False,
        replicas: int = 0,
        patience_s: float = math.inf,
    ) -> None:
        self.client = client
        self.replicas = replicas
        self.keys = Keys(model)
        self.redis_errors = 0
        self._lease = lease
        self._give_up = give_up
        self._patience_s = patience_s
        self._write = client.register_script(WRITE)

    @property
    def token(self) -> str:
        """Of the lease; scripts compare it with the fence."""
        return self._lease.token

    def get(self, key: str) -> bytes | None:
        """A plain value; None where there is none."""
        value: bytes | None = self.call(lambda: self.client.get(key))
        return value

    def set(self, key: str, value: bytes) -> None:
        """Put a plain value at once, whatever is queued."""
        self.write([("SET", key, value)], confirm=False)

    def write(self, commands: Iterable[Command], *, confirm: bool = True) -> bool:
        """Carry out commands, all at once, if this trainer is still the one.

        Arguments:
            commands: In order.
            confirm: Whether to wait for replicas, where some are to have it.

        Returns:
            Whether as many replicas as are asked for have what was written.
        """
        arguments: list[Any] = [self.token]
        keys = {self.keys.fence: None}
        for command in commands:
            arguments += [len(command), *command]
            keys[str(command[1])] = None
        return bool(self.call(lambda: self._written(list(keys), arguments, confirm)))

    def _written(self, keys: list[str], arguments: list[Any], confirm: bool) -> bool:
        if not (self.replicas and confirm):
            self._write(keys=keys, args=arguments)
            return True
        _, have = confirmed(
            self.client,
            keys[0],
            lambda together: self._write(keys=keys, args=arguments, client=together),
            self.replicas,
            CONFIRM_MS,
            self.keys.replicated,
        )
        return have >= self.replicas

    def call(self, operation: Callable[[], Any]) -> Any:
        """The operation's result, repeating it while Redis is away.

        Raises:
            StreamUnavailable: It is to be given up, or was repeated for long enough.
            LeaseLost: Another trainer has begun.
        """
        deadline = time.monotonic() + self._patience_s
        try:
            return patiently(operation, lambda error: self._failed(error, deadline))
        except redis.ResponseError as error:
            raise lost(error) from error

    def _failed(self, error: Exception, deadline: float) -> None:
        self.redis_errors += 1
        if self._give_up() or time.monotonic() > deadline:
            raise unavailable(error) from error
        logger.warning("Redis is away, trying again: %s", error)


def lost(error: redis.ResponseError) -> Exception:
    """What an answer of a script means, if it means that the lease is lost."""
    if "LEASELOST" not in str(error):
        return error
    return LeaseLost(
        "Another trainer works on this model now; this one was away for too long. "
        "Expected one at a time; it stops, and changes nothing more."
    )
