"""Entries that cannot be used become dead letters: the trainer's end of `dead_letters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from service.broker.append import BEFORE
from service.broker.entries import Entry, report_id
from service.broker.fenced import Fenced

# A letter that is there, or was there and is gone, is not written again. Room is made before,
# so that the record can say how much of the store it has cost; and memory is freed first.
BURY: Final = (
    BEFORE
    + """
local fence, letters, requeued, letter_bytes, payload = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local noted = KEYS[6]
local token, id, data, prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local size, most, most_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local entry_id, why = ARGV[8], ARGV[9]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)

local function number(row, name)
  for i = 1, #row[2], 2 do
    if row[2][i] == name then return tonumber(row[2][i + 1]) end
  end
  return 0
end
local there = redis.call('XRANGE', letters, id, id)[1]
if there then return {number(there, 'letters'), number(there, 'bytes')} end
if redis.call('EXISTS', letters) == 1 then
  local info = redis.call('XINFO', 'STREAM', letters)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' and not before(info[i + 1], id) then return {0, 0} end
  end
end

local gone, gone_bytes = 0, 0
while true do
  local held = tonumber(redis.call('GET', letter_bytes) or '0')
  if redis.call('XLEN', letters) < most and held + size <= most_bytes then break end
  local oldest = redis.call('XRANGE', letters, '-', '+', 'COUNT', 1)[1]
  if not oldest then break end
  redis.call('XDEL', letters, oldest[1])
  gone = gone + 1
  if redis.call('DEL', prefix .. oldest[1]) == 1 then
    local freed = number(oldest, 'size')
    gone_bytes = gone_bytes + freed
    redis.call('DECRBY', letter_bytes, freed)
  end
  redis.call('HDEL', requeued, oldest[1])
end
redis.call('XADD', letters, id, 'data', data, 'size', size, 'letters', gone, 'bytes', gone_bytes)
if #ARGV > 9 then
  for i = 10, #ARGV, 2 do redis.call('HSET', payload, ARGV[i], ARGV[i + 1]) end
  redis.call('INCRBY', letter_bytes, size)
end

local note = redis.call('GET', noted)
if note then
  local lines = {}
  for line in string.gmatch(note, '[^\\n]+') do
    if string.match(line, '^(%S+)') == entry_id and not string.find(line, '@', 1, true) then
      line = line .. ' ' .. why .. '@' .. id
    end
    lines[#lines + 1] = line
  end
  redis.call('SET', noted, table.concat(lines, '\\n'), 'KEEPTTL')
end
return {gone, gone_bytes}
"""
)


class Burial:
    """Keeps the entries of one model that cannot be used.

    Arguments:
        redis: To keep them by.
        most: Letters kept.
        most_bytes: Of the entries among them, in all.
    """

    def __init__(self, redis: Fenced, most: int, most_bytes: int) -> None:
        self._redis = redis
        self._most = most
        self._most_bytes = most_bytes
        self._bury = redis.client.register_script(BURY)

    def bury(self, entry: Entry, reason: str, facts: Mapping[str, Any]) -> tuple[int, int]:
        """Keep a rejected entry among the dead letters.

        Arguments:
            entry: Kept whole, unless it alone is more than all letters may hold, or a checkpoint,
                which whoever sent it has as a file.
            reason: Why, in a word.
            facts: Its record, JSON-ready; `size` and `whole` are added.

        Returns:
            How many older letters had to make room, and the bytes of their entries.
        """
        keys, letter_id = self._redis.keys, report_id(entry.id, 0)
        whole = entry.fields.get(b"kind") != b"restore" and (0 < entry.nbytes <= self._most_bytes)
        record = {**facts, "size": entry.nbytes, "whole": whole}
        names = [
            keys.fence,
            keys.dead_letters,
            keys.dead_letters_requeued,
            keys.dead_letters_bytes,
            keys.dead_letter(letter_id),
            keys.batch(entry.fields.get(b"id", b"").decode("utf-8", "replace")),
        ]
        arguments: list[Any] = [
            self._redis.token,
            letter_id,
            orjson.dumps(record),
            keys.dead_letter(""),
            entry.nbytes if whole else 0,
            self._most,
            self._most_bytes,
            entry.id,
            reason,
        ]
        if whole:
            arguments += [part for field in entry.fields.items() for part in field]
        letters, nbytes = self._redis.call(lambda: self._bury(keys=names, args=arguments))
        return int(letters), int(nbytes)
