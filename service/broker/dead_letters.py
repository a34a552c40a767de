"""Dead letters: entries that were accepted and could not be used, kept to be looked at.

Each has a record (why, when, which batch) and a payload, which is the entry whole. The store
is bounded by a number of letters and by the bytes of their payloads: the oldest go first, and
the event `dead_letters_dropped` tells. A letter can be sent again once, which puts the same
entry into the stream under a new id; its payload goes then, its record stays.

Rules of this module:

1. A letter's id is made from its entry's, as those of reports are, so that a letter that is
   written again after a crash is refused.
2. Every change is one script, so that the count of bytes is that of the payloads.
3. What a letter holds was written by strangers: it is read like any entry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from service.broker.caller import READ_S, ROWS_PER_S
from service.broker.connection import SOCKET_TIMEOUT_S, perhaps_done
from service.broker.entries import report_id
from service.broker.stream import Stream
from service.broker.stream_errors import UnknownLetter

PAGE: Final = 1000
"""Letters that one call of Redis reads or drops, at most."""

# Removes letters of a range of ids, the oldest first.
DROP: Final = """
local letters, requeued, letter_bytes = KEYS[1], KEYS[2], KEYS[3]
local prefix, from, to, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local rows = redis.call('XRANGE', letters, from, to, 'COUNT', count)
for _, row in ipairs(rows) do
  local size = 0
  for i = 1, #row[2], 2 do
    if row[2][i] == 'size' then size = tonumber(row[2][i + 1]) end
  end
  redis.call('XDEL', letters, row[1])
  if redis.call('DEL', prefix .. row[1]) == 1 then
    redis.call('DECRBY', letter_bytes, size)
  end
  redis.call('HDEL', requeued, row[1])
end
return #rows
"""


@dataclass(frozen=True)
class DeadLetter:
    """What is told of one entry that could not be used.

    Arguments:
        id: Of the letter.
        requeued_as: The entry that it was sent again as; None where it was not.
        facts: What the trainer wrote down: `entry_id`, `time`, `reason`, `detail`, `kind`,
            `batch_id`, `samples`, `size`, `whole`, `requeued_from`.
    """

    id: str
    requeued_as: str | None
    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"id": self.id, **self.facts, "requeued_as": self.requeued_as}


class DeadLetters:
    """The API's end of one model's dead letters.

    Arguments:
        stream: Whose entries they were.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._keys = stream.keys
        self._drop = stream.client.register_script(DROP)

    async def page(
        self, since: str = "-", count: int = PAGE, batch_id: str | None = None
    ) -> list[DeadLetter]:
        """Letters in the order of their entries.

        Arguments:
            since: Where to begin, as XRANGE takes it.
            count: At most so many.
            batch_id: Only those of this batch.
        """
        found: list[DeadLetter] = []
        async for letter in self._all(since, count if batch_id is None else PAGE):
            if batch_id is None or letter.facts.get("batch_id") == batch_id:
                found.append(letter)
            if len(found) == count:
                break
        return found

    async def find(self, id: str) -> DeadLetter:
        """One letter.

        Raises:
            UnknownLetter: There is none with this id.
        """
        if rows := await self._rows(id, id, 1):
            return rows[0]
        raise UnknownLetter.of(id)

    async def of_entry(self, entry_id: str) -> DeadLetter | None:
        """The letter of an entry; None where it did not end here, or its letter is gone."""
        id = report_id(entry_id, 0)
        rows = await self._rows(id, id, 1)
        return rows[0] if rows else None

    async def payload(self, id: str) -> dict[bytes, bytes] | None:
        """The entry whole; None where it is not kept (any more)."""
        key = self._keys.dead_letter(id)
        fields: dict[bytes, bytes] = await self._stream.read(
            lambda: self._stream.client.hgetall(key), SOCKET_TIMEOUT_S
        )
        return fields or None

    async def size(self) -> tuple[int, int]:
        """How many letters were not sent again, and the bytes of their payloads."""
        client, keys = self._stream.client, self._keys
        total = int(await self._stream.read(lambda: client.xlen(keys.dead_letters)))
        again = int(await self._stream.read(lambda: client.hlen(keys.dead_letters_requeued)))
        nbytes = await self._stream.read(lambda: client.get(keys.dead_letters_bytes))
        return max(0, total - again), int(nbytes or 0)

    async def drop(self, id: str) -> None:
        """Forget one letter.

        Raises:
            UnknownLetter: There is none with this id.
        """
        if not await self._dropped(id, id):
            raise UnknownLetter.of(id)

    async def drop_all(self) -> int:
        """Forget all letters that there are now; how many these were."""
        newest = await self._stream.read(
            lambda: self._stream.client.xrevrange(self._keys.dead_letters, count=1)
        )
        n = 0
        while newest and (dropped := await self._dropped("-", newest[0][0].decode())):
            n += dropped
        return n

    async def _all(self, since: str, count: int) -> AsyncIterator[DeadLetter]:
        while rows := await self._rows(since, "+", min(PAGE, count)):
            for row in rows:
                yield row
            since = f"({rows[-1].id}"

    async def _rows(self, first: str, last: str, count: int) -> list[DeadLetter]:
        client, keys = self._stream.client, self._keys
        rows = await self._stream.read(
            lambda: client.xrange(keys.dead_letters, first, last, count=count),
            READ_S + count / ROWS_PER_S,
        )
        if not rows:
            return []
        ids = [id for id, _ in rows]
        again = await self._stream.read(lambda: client.hmget(keys.dead_letters_requeued, ids))
        return [
            DeadLetter(
                id.decode(),
                None if entry_id is None else entry_id.decode(),
                orjson.loads(fields[b"data"]),
            )
            for (id, fields), entry_id in zip(rows, again, strict=True)
        ]

    async def _dropped(self, first: str, last: str) -> int:
        keys = self._keys
        names = [keys.dead_letters, keys.dead_letters_requeued, keys.dead_letters_bytes]
        arguments: list[str | int] = [keys.dead_letter(""), first, last, PAGE]
        reply = await self._stream.call(
            lambda: self._drop(keys=names, args=arguments),
            lambda error: perhaps_done(
                error,
                "the dead letters were dropped",
                "Look at GET /deadletters in a moment, and drop what is still there.",
            ),
        )
        return int(reply)
