"""Notes on boundaries: what people say about them. Redis holds them, beside the boundaries.

A note changes no model, so that it is no entry of the stream: it is there at once, also while no
trainer works. Notes are bounded in length and for each boundary, and only the newest boundaries
that have any keep them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import orjson

from core.errors import InvalidRequest
from service.broker.connection import perhaps_done
from service.broker.records import Record
from service.broker.stream import Stream

MOST_NOTES: Final = 50
"""Notes on one boundary."""

MOST_NOTED: Final = 1000
"""Boundaries that have notes; beyond, those of the oldest go."""

ADD: Final = """
local key, id, note = KEYS[1], ARGV[1], ARGV[2]
local before = redis.call('HGET', key, id)
-- The answer to an earlier try was lost. No two notes are the same: each has its time.
if before and ('\\n' .. before):sub(-#note - 1) == '\\n' .. note then return 1 end
if before then
  local _, lines = string.gsub(before, '\\n', '')
  if lines + 1 >= tonumber(ARGV[3]) then return 0 end
  note = before .. '\\n' .. note
elseif redis.call('HLEN', key) >= tonumber(ARGV[4]) then
  local oldest, first, last
  local all = redis.call('HGETALL', key)
  for place = 1, #all, 2 do
    local ms, seq = string.match(all[place], '^(%d+)-(%d+)$')
    ms, seq = tonumber(ms), tonumber(seq)
    if not oldest or ms < first or (ms == first and seq < last) then
      oldest, first, last = all[place], ms, seq
    end
  end
  redis.call('HDEL', key, oldest)
end
redis.call('HSET', key, id, note)
return 1
"""


class TooManyNotes(InvalidRequest):
    """A boundary has as many notes as it may have."""

    @classmethod
    def beyond(cls, id: str) -> TooManyNotes:
        """The error for one note more."""
        return cls(
            f"Boundary {id} has {MOST_NOTES} notes, which is the most. Write down elsewhere what "
            f"has no room here.",
            limit=MOST_NOTES,
        )


@dataclass(frozen=True)
class Note:
    """What somebody says about a boundary.

    Arguments:
        text: In words.
        by: Who says it, as far as that is known.
        time: When, Unix seconds.
    """

    text: str
    by: str | None
    time: float


class Notes:
    """The notes of one model.

    Arguments:
        stream: Whose boundaries they are on.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._add = stream.client.register_script(ADD)

    async def add(self, id: str, text: str, by: str | None) -> Note:
        """Add a note to the boundary with this id, which there must be.

        Raises:
            TooManyNotes: It has as many as it may have.
            StreamUnavailable: Redis is away; the note may be there or not.
        """
        note = Note(text, by, time.time())
        arguments: list[str | bytes | int] = [
            id,
            orjson.dumps(asdict(note)),
            MOST_NOTES,
            MOST_NOTED,
        ]
        added = await self._stream.call(
            lambda: self._add(keys=[self._stream.keys.notes], args=arguments),
            away=lambda error: perhaps_done(
                error, "the note was added", "Look at the boundary before you add it again."
            ),
        )
        if not added:
            raise TooManyNotes.beyond(id)
        return note

    async def of(self, id: str) -> list[Note]:
        """Notes on one boundary, oldest first."""
        text = await self._stream.read(
            lambda: self._stream.client.hget(self._stream.keys.notes, id)
        )
        return _read(text)

    async def all(self) -> dict[str, list[Note]]:
        """Notes on all boundaries, by id."""
        found = await self._stream.read(
            lambda: self._stream.client.hgetall(self._stream.keys.notes)
        )
        return {id.decode(): _read(text) for id, text in found.items()}


def told(record: Record, notes: Iterable[Note]) -> list[Mapping[str, Any]]:
    """The notes on a boundary, JSON-ready: what was said when it was declared comes first."""
    first = []
    if record.data.get("note"):
        first = [Note(record.data["note"], record.data.get("by"), record.data["time"])]
    return [asdict(note) for note in (*first, *notes)]


def _read(text: bytes | None) -> list[Note]:
    """Notes as Redis has them. What a later release says beside their fields is left out."""
    known = [one.name for one in fields(Note)]
    lines = map(orjson.loads, (text or b"").splitlines())
    return [Note(**{name: line[name] for name in known}) for line in lines]
