"""Which ids of batches are remembered, oldest first, and how much of Redis that takes.

A note on a batch id (`service.broker.append`) goes by itself after `GMR_DEDUPE_TTL_S`. A fast
sender would fill Redis long before. So the notes of senders' ids have a budget: each append adds
its id to a stream, beside what all of them took by then, and the oldest are forgotten early where
that is too much. Ids that the service made are not among them: they are remembered for minutes.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from service.broker.caller import Caller

logger = logging.getLogger(__name__)

NOTE_BYTES: Final = 230
"""Of Redis, for one id: its note, when that expires, and its place in the stream (measured with 6.2
and 7.0), beside twice the id itself."""

AT_A_TIME: Final = 256
ROOM: Final = 0.99
"""Share of the budget down to which ids are forgotten, so that it is not done for each append."""

REMEMBER: Final = f"""
local function remember(ids, batch_id, entry_id, ttl, budget)
  local last = redis.call('XREVRANGE', ids, '+', '-', 'COUNT', 1)[1]
  local total = (last and tonumber(last[2][4]) or 0) + {NOTE_BYTES} + 2 * #batch_id
  local oldest = string.format('%.0f', math.max(0, parts(entry_id) - 1000 * ttl))
  redis.call('XADD', ids, 'MINID', '=', oldest, '*', 'id', batch_id, 'total', total)
  local first = redis.call('XRANGE', ids, '-', '+', 'COUNT', 1)[1]
  return total - tonumber(first[2][4]) > budget
end
"""
"""Whether they take too much. Of the oldest id its own bytes are left out."""

FORGET: Final = """
local ids = KEYS[1]
for place, row in ipairs(ARGV) do
  local noted = KEYS[place + 1]
  local note = redis.call('GET', noted)
  local newest = note and string.match(note, '(%d+)-%d+ [^\\n]*$')
  if newest and tonumber(newest) <= tonumber(string.match(row, '^%d+')) then
    redis.call('UNLINK', noted)
  end
  redis.call('XDEL', ids, row)
end
"""
"""Forgets ids by their places in the stream. The note of one that was accepted anew since, because
a rollback had dropped it, stays: it has a later place, too."""


class RememberedIds:
    """Those of one model.

    Arguments:
        caller: Of Redis.
        budget: Bytes that they may take.
    """

    def __init__(self, caller: Caller, budget: int) -> None:
        self._caller, self.budget = caller, budget
        self._forget = caller.client.register_script(FORGET)

    async def forget_oldest(self) -> None:
        """Forget ids until the others take no more than the budget; any process may."""
        try:
            while await self._caller.once(self._forget_some):
                pass
        except Exception as error:
            # What was to be appended is. The next append looks again.
            logger.warning("the oldest batch ids are not forgotten: %s", error)

    async def _forget_some(self) -> bool:
        """Whether there are still too many."""
        keys, client = self._caller.keys, self._caller.client
        last: Any = await client.xrevrange(keys.ids, count=1)
        rows: Any = await client.xrange(keys.ids, count=AT_A_TIME + 1)
        if len(rows) < 2:
            return False
        least = _total(last[0]) - ROOM * self.budget
        gone = [row for row in rows[:-1] if _total(row) < least]
        if not gone:
            return False
        notes = [keys.batch(fields[b"id"].decode("utf-8", "replace")) for _, fields in gone]
        await self._forget(keys=[keys.ids, *notes], args=[id for id, _ in gone])
        return len(gone) == AT_A_TIME

    async def seconds(self) -> float | None:
        """How long ago the oldest of them was given; None where there is none.

        Raises:
            StreamUnavailable: Redis is away.
        """
        keys, client = self._caller.keys, self._caller.client
        rows = await self._caller.read(lambda: client.xrange(keys.ids, count=1))
        if not rows:
            return None
        return max(0.0, time.time() - int(rows[0][0].partition(b"-")[0]) / 1000)


def _total(row: Any) -> int:
    """Bytes that all ids up to this one have taken."""
    return int(row[1][b"total"])
