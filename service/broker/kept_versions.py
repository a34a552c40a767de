"""The versions of one model that a rollback may name, and those that an accepted one does name.

What the trainer lets go of and what the API accepts meet in one hash, which two scripts change: a
version is let go of, or a rollback to it is accepted, and never both. So a rollback that is
accepted finds its version however long the backlog before it is.

The hash goes from each version to the newest accepted rollback that names it, its entry; to
nothing where none does. There is none before a trainer of this release has begun.

An API process of an earlier release pins nothing. Of the rollbacks that such ones have accepted,
the newest, which every release notes, is pinned here before anything is let go of.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import redis

from service.broker.append import BEFORE
from service.broker.connection import patiently, unavailable
from service.broker.fenced import Fenced, lost

# The branch says up to which entry the result of rollbacks is known.
LET_GO: Final = (
    BEFORE
    + """
local fence, kept, branch_key, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local restoring, entries = KEYS[4], KEYS[5]
local n_staying = tonumber(ARGV[2])
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
local text = redis.call('GET', branch_key)
local decided = text and cjson.decode(text).decided or '0-0'
local newest, version_of_newest = redis.call('GET', restoring), nil
if newest and before(decided, newest) then
  local row = redis.call('XRANGE', entries, newest, newest)[1]
  for i = 1, row and #row[2] or 0, 2 do
    if row[2][i] == 'version' then version_of_newest = row[2][i + 1] end
  end
end
local function named_by(version)
  if version == version_of_newest then return newest end
  local entry = redis.call('HGET', kept, version)
  return entry and before(decided, entry) and entry or ''
end
local rows, pinned = {}, {}
for i = 3, #ARGV do
  local entry = named_by(ARGV[i])
  if i - 2 <= n_staying or entry ~= '' then
    rows[#rows + 1] = {ARGV[i], entry}
    if i - 2 > n_staying then pinned[#pinned + 1] = ARGV[i] end
  end
end
redis.call('DEL', kept)
for _, row in ipairs(rows) do redis.call('HSET', kept, row[1], row[2]) end
return pinned
"""
)


class KeptVersions:
    """The trainer's end of that hash.

    Arguments:
        redis: To change it by.
    """

    def __init__(self, redis: Fenced) -> None:
        self._redis = redis
        self._let_go = redis.client.register_script(LET_GO)

    def tell(self, kept: Collection[int]) -> None:
        """Say which versions there are, before any is let go of.

        Raises:
            StreamUnavailable: Redis is away, and is not waited for any longer.
            LeaseLost: Another trainer has begun.
        """
        self._redis.call(lambda: self._asked(kept, ()))

    def let_go(self, staying: Collection[int], spare: Collection[int]) -> set[int]:
        """Let versions go, but for the pinned: those of accepted rollbacks that are not decided.

        Any thread may ask. It does not wait for a Redis that is away.

        Arguments:
            staying: Versions that are kept in any case.
            spare: Versions that are kept so far, and need not be.

        Returns:
            The spare versions that are pinned. A rollback to any other of them is refused from now
            on.

        Raises:
            StreamUnavailable: Redis is away.
            LeaseLost: Another trainer has begun.
        """

        def give_up(error: Exception) -> None:
            raise unavailable(error) from error

        try:
            pinned: list[bytes] = patiently(lambda: self._asked(staying, spare), give_up)
        except redis.ResponseError as error:
            raise lost(error) from error
        return set(map(int, pinned))

    def _asked(self, staying: Collection[int], spare: Collection[int]) -> Any:
        keys = self._redis.keys
        names = [keys.fence, keys.kept_versions, keys.branch, keys.restoring, keys.input]
        arguments: list[Any] = [self._redis.token, len(staying), *staying, *spare]
        return self._let_go(keys=names, args=arguments)
