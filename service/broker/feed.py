"""The trainer's end of Redis: read entries in order, report, and let go of what is safe.

Rules of this module:

1. The checkpoint is the truth about what was learned; the consumer group only shows
   it. So the group is made anew from the checkpoint at every start.
2. After a failed read the group goes back to the last entry that arrived here: its
   own position moves when Redis sends, not when we receive.
3. Reports carry ids made from the id of the entry that caused them. Reports made
   again after a crash are refused by Redis as old, and so appear exactly once.
4. All that this end writes goes through scripts that first look at the fence, which
   names the trainer that began last: one that was paused and replaced can do no harm.
5. They work on a Redis that is full, because the way out of that is to learn, report
   and let go. A full Redis refuses only the first write of a script, if it needs
   memory; so the first is one that needs none and does nothing (PERSIST of the fence).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import orjson
import redis

from core.errors import GMRError, InvalidCheckpoint
from service.broker.append import BEFORE
from service.broker.connection import (
    SyncClient,
    is_refusal,
    is_transient,
    patiently,
    refused,
    unavailable,
)
from service.broker.keys import GROUP, QUARANTINE_LENGTH, Keys
from service.broker.lease import Lease
from service.broker.pieces import ANSWER_S, pieces
from service.settings import MIB, Settings
from service.wire import Control, Upload

logger = logging.getLogger(__name__)

READ_PAUSE_S: Final = 0.25

LEAST_COUNT: Final = 1
MOST_COUNT: Final = 64
MOST_OF_MANY: Final = 256
"""Entries of one read of several streams, in all."""

READ_BYTES: Final = 8 * 1024 * 1024
"""About how much one read asks for: enough to hide the round trip, little to hold."""

FLUSH_COMMANDS: Final = 1000
REPORTS_PER_ENTRY: Final = 10_000
LAST_REPORT: Final = REPORTS_PER_ENTRY - 1
BOUNDARIES_LENGTH: Final = 100_000
EXPLANATIONS_LENGTH: Final = 256
"""At 784 features 25 kB each; at 4,096, the most that are explained in full, 150 kB."""

OUTBOX_LENGTH: Final = 10_000
QUARANTINE_BYTES: Final = 16 * 1024 * 1024

PUBLISHED_LENGTH: Final = 16


Command = tuple[Any, ...]
"""A command of Redis: its name, its key, and the rest."""


class LeaseLost(GMRError):
    """Another trainer has taken over this model while this one was not looking."""


@dataclass(frozen=True)
class Position:
    """How far into the input stream something reaches.

    Arguments:
        last_entry_id: The last entry it contains; `0-0` for none.
        entries_applied: How many entries that makes, ever.
    """

    last_entry_id: str = "0-0"
    entries_applied: int = 0


@dataclass(frozen=True)
class Entry:
    """One entry of the input stream, as it came."""

    id: str
    fields: dict[bytes, bytes]

    @property
    def nbytes(self) -> int:
        """Bytes of its fields."""
        return sum(map(len, self.fields.values()))

    def text(self, name: str) -> str | None:
        """A field as text, whatever its bytes are; None where there is no such field."""
        value = self.fields.get(name.encode())
        return None if value is None else value.decode("utf-8", "replace")


# Pieces of an uploaded checkpoint live as long as the entry that names them.
DROP_UPLOADS: Final = """
local function drop_uploads(uploads, entries)
  local known = redis.call('HGETALL', uploads)
  for i = 1, #known, 2 do
    if #redis.call('XRANGE', entries, known[i], known[i]) == 0 then
      redis.call('UNLINK', known[i + 1])
      redis.call('HDEL', uploads, known[i])
    end
  end
end
"""

# Ids up to one that was read must not be given out again.
RAISE_TOP: Final = """
local function raise_top(entries, last)
  local info, top = redis.call('XINFO', 'STREAM', entries), '0-0'
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then top = info[i + 1] end
  end
  local function parts(id)
    local ms, seq = string.match(id, '^(%d+)-(%d+)$')
    return tonumber(ms), tonumber(seq)
  end
  local top_ms, top_seq = parts(top)
  local last_ms, last_seq = parts(last)
  if top_ms < last_ms or (top_ms == last_ms and top_seq < last_seq) then
    redis.call('XSETID', entries, last)
  end
end
"""

# A start trims nothing: what lies before the checkpoint is there for the day on which that cannot
# be read. How many entries are gone follows from the checkpoint and what is left before it, also
# where Redis has lost its data. Ids up to the checkpoint's must not be given out again even then.
START: Final = (
    DROP_UPLOADS
    + RAISE_TOP
    + """
local fence, lease, entries, applied, uploads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, group, last, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('GET', lease) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
redis.call('SET', fence, token)

local before = tonumber(redis.call('GET', applied) or '0')
if redis.call('EXISTS', entries) == 0 then
  redis.call('XGROUP', 'CREATE', entries, group, '0', 'MKSTREAM')
end
drop_uploads(uploads, entries)
raise_top(entries, last)
redis.pcall('XGROUP', 'DESTROY', entries, group)
redis.call('XGROUP', 'CREATE', entries, group, last)
if before > count then return before end
local held, at, rows = 0, '-', nil
repeat
  rows = redis.call('XRANGE', entries, at, last, 'COUNT', 16)
  held = held + #rows
  if #rows > 0 then at = '(' .. rows[#rows][1] end
until #rows < 16
redis.call('SET', applied, math.max(0, count - held))
return count
"""
)

RELEASE: Final = (
    DROP_UPLOADS
    + """
local fence, entries, applied, uploads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local beside, in_samples = KEYS[5], KEYS[6]
local token, group, next_id, count, samples = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
redis.call('XTRIM', entries, 'MINID', next_id)
redis.call('XTRIM', beside, 'MINID', next_id)
drop_uploads(uploads, entries)
redis.call('SET', applied, count)
redis.call('SET', in_samples, samples)
for i = 6, #ARGV, 1000 do
  redis.call('XACK', entries, group, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
"""
)

# Where a group goes back to. A replica that took over may lack the newest entries: what it gives
# out next must come after them, or it would never be read.
GO_TO: Final = (
    RAISE_TOP
    + """
local fence, entries = KEYS[1], KEYS[2]
local token, group, last = ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
if redis.call('EXISTS', entries) == 0 then return 0 end
raise_top(entries, last)
local moved = redis.pcall('XGROUP', 'SETID', entries, group, last)
if type(moved) == 'table' and moved.err then return 0 end
return 1
"""
)

# An entry of the trainer's own; it brings no samples.
APPEND_OWN: Final = """
local fence, entries, beside, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('PERSIST', fence)
local id = redis.call('XADD', entries, '*', unpack(ARGV, 2))
redis.call('XADD', beside, id, 'n', 0, 'again', '')
"""

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


class Feed:
    """The trainer's end of one model's Redis.

    `read` may run on a thread of its own beside everything else; the rest belongs to
    one thread.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model.
        lease: Held by this trainer.
        events_length: Events kept, about.
        history_length: Events of batches kept, about.
        give_up: Asked while Redis is away; True makes calls fail instead of waiting on.
        dead_letters_length: Dead letters kept.
        dead_letters_bytes: Of the entries among them, in all.
    """

    def __init__(
        self,
        client: SyncClient,
        model: str,
        lease: Lease,
        *,
        events_length: int,
        history_length: int,
        give_up: Callable[[], bool] = lambda: False,
        dead_letters_length: int = 1000,
        dead_letters_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.client = client
        self.keys = Keys(model)
        self.redis_errors = 0
        self._lease = lease
        self._lengths = {
            self.keys.events: events_length,
            self.keys.history: history_length,
            self.keys.boundaries: BOUNDARIES_LENGTH,
            self.keys.explanations: EXPLANATIONS_LENGTH,
            self.keys.outbox: OUTBOX_LENGTH,
        }
        self._give_up = give_up
        self._dead_letters_length = dead_letters_length
        self._dead_letters_bytes = dead_letters_bytes
        self._queue: deque[Command] = deque()
        self._read_to = Position()
        self._rewind = False
        self._mean_bytes = READ_BYTES / 8
        self._start = client.register_script(START)
        self._go_to = client.register_script(GO_TO)
        self._release = client.register_script(RELEASE)
        self._append = client.register_script(APPEND_OWN)
        self._write = client.register_script(WRITE)
        self._bury = client.register_script(BURY)

    @classmethod
    def of(
        cls, settings: Settings, client: SyncClient, lease: Lease, give_up: Callable[[], bool]
    ) -> Feed:
        """The end of the model that the settings name."""
        return cls(
            client,
            settings.model,
            lease,
            events_length=settings.events_length,
            history_length=settings.history_length,
            give_up=give_up,
            dead_letters_length=settings.dead_letters_length,
            dead_letters_bytes=settings.dead_letters_mib * MIB,
        )

    # The input stream -----------------------------------------------------------

    def open(self, position: Position) -> Position:
        """Read on after a position. What it contains stays until it is released.

        Returns:
            The position, with a larger count where Redis says that more entries were
            removed: then a checkpoint that held them is missing.
        """
        keys = [
            self.keys.fence,
            self.keys.lease,
            self.keys.input,
            self.keys.applied,
            self.keys.uploads,
        ]
        last, count = position.last_entry_id, position.entries_applied
        arguments: list[Any] = [self._lease.token, GROUP, last, count]
        removed = int(self.call(lambda: self._start(keys=keys, args=arguments)))
        self._read_to, self._rewind = Position(last, max(removed, count)), False
        return self._read_to

    def last_removed(self) -> str:
        """The greatest id that an entry may have that was removed from the stream."""
        found: Any = self.call(lambda: self.client.xrange(self.keys.input, count=1))
        if found:
            return id_before(found[0][0].decode())
        info: Any = self.call(lambda: self.client.xinfo_stream(self.keys.input))
        return str(info["last-generated-id"].decode())

    def read(self, block_ms: int) -> list[Entry]:
        """The next entries in order, as many as suit; waits when there are none.

        Arguments:
            block_ms: Longest wait in milliseconds; 0 does not wait.

        Returns:
            Entries; none when the wait was over, or when Redis is away for the moment.
        """
        for _, entries in read_next(self.client, [self], block_ms):
            return entries
        return []

    # The steps of a read, for `read_next` ---------------------------------------------

    @property
    def stream(self) -> str:
        """The input stream."""
        return self.keys.input

    @property
    def mean_bytes(self) -> float:
        """Bytes of an entry, as the last ones were."""
        return self._mean_bytes

    def prepare(self) -> None:
        """Let the group stand after the last entry that arrived here."""
        if not self._rewind:
            return
        last = self._read_to.last_entry_id
        keys = [self.keys.fence, self.keys.input]
        try:
            there = self._go_to(keys=keys, args=[self._lease.token, GROUP, last])
        except redis.ResponseError as error:
            raise _lost(error) from error
        if not there:
            # Redis came back without the group: without its data, that is.
            logger.error("Redis has lost the input stream; going on after %s", self._read_to)
            self.redis_errors += 1
            self.open(self._read_to)
        self._rewind = False

    def took(self, rows: Sequence[Any]) -> list[Entry]:
        """The entries of an answer, which is in order."""
        # An entry that was deleted by hand after it was sent comes without fields.
        entries = [Entry(id.decode(), fields or {}) for id, fields in rows]
        if entries:
            self._read_to = Position(entries[-1].id, self._read_to.entries_applied + len(entries))
            self._mean_bytes = max(1.0, sum(entry.nbytes for entry in entries) / len(entries))
        return entries

    def missed(self, *, counts: bool) -> None:
        """The answer of a read did not come: the group may have moved.

        Arguments:
            counts: Whether that is an error of Redis.
        """
        self._rewind = True
        self.redis_errors += counts

    def go_back(self, position: Position) -> None:
        """Read on after a position that was passed. Not while a read is under way."""
        self._read_to, self._rewind = position, True

    def append(self, control: Control) -> None:
        """Put a control entry into the stream, to be read like any other."""
        keys = [self.keys.fence, self.keys.input, self.keys.samples]
        fields = [part for field in control.to_entry().items() for part in field]
        arguments: list[Any] = [self._lease.token, *fields]
        self.call(lambda: self._append(keys=keys, args=arguments))

    def release(
        self, position: Position, entry_ids: Sequence[str], samples: tuple[str, int] = ("0-0", 0)
    ) -> None:
        """Acknowledge and drop the entries that two durable checkpoints contain.

        Arguments:
            position: Of the older of these.
            entry_ids: The entries read since the last release, up to the position.
            samples: Since which entry samples are counted, and how many came up to the position.
        """
        keys = [
            self.keys.fence,
            self.keys.input,
            self.keys.applied,
            self.keys.uploads,
            self.keys.samples,
            self.keys.samples_applied,
        ]
        arguments: list[Any] = [
            self._lease.token,
            GROUP,
            next_id(position.last_entry_id),
            position.entries_applied,
            "{} {}".format(*samples),
            *entry_ids,
        ]
        self.call(lambda: self._release(keys=keys, args=arguments))

    # Reports ----------------------------------------------------------------------

    def report(self, key: str, entry_id: str, index: int, data: bytes) -> None:
        """Queue an event.

        Arguments:
            key: `keys.events`, or one of the streams that hold a part of it.
            entry_id: Of the entry that caused it.
            index: Which event of that entry; grows.
            data: As JSON.
        """
        id = report_id(entry_id, index)
        self._queue.append(("XADD", key, "MAXLEN", "~", self._lengths[key], id, "data", data))

    def bury(self, entry: Entry, reason: str, facts: Mapping[str, Any]) -> tuple[int, int]:
        """Keep a rejected entry among the dead letters, at once, after what is queued.

        Arguments:
            entry: Kept whole, unless it alone is more than all letters may hold, or a checkpoint,
                which whoever sent it has as a file.
            reason: Why, in a word.
            facts: Its record, JSON-ready; `size` and `whole` are added.

        Returns:
            How many older letters had to make room, and the bytes of their entries.
        """
        self.flush()
        keys, letter_id = self.keys, report_id(entry.id, 0)
        whole = entry.fields.get(b"kind") != b"restore" and (
            0 < entry.nbytes <= self._dead_letters_bytes
        )
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
            self._lease.token,
            letter_id,
            orjson.dumps(record),
            keys.dead_letter(""),
            entry.nbytes if whole else 0,
            self._dead_letters_length,
            self._dead_letters_bytes,
            entry.id,
            reason,
        ]
        if whole:
            arguments += [part for field in entry.fields.items() for part in field]
        letters, nbytes = self.call(lambda: self._bury(keys=names, args=arguments))
        return int(letters), int(nbytes)

    def quarantine(self, entry_id: str, index: int, data: bytes) -> None:
        """Queue an outlier; the newest are kept, as many as fit into a fixed room.

        Arguments:
            entry_id: Of the entry by which the burst was over.
            index: Which outlier; grows.
            data: As JSON.
        """
        length = max(1, min(QUARANTINE_LENGTH, QUARANTINE_BYTES // len(data)))
        id, key = report_id(entry_id, index), self.keys.quarantine
        self._queue.append(("XADD", key, "MAXLEN", "~", length, id, "data", data))

    def put(self, key: str, value: bytes) -> None:
        """Queue a plain value, such as the status."""
        self._queue.append(("SET", key, value))

    def set(self, key: str, value: bytes) -> None:
        """Put a plain value at once, whatever is queued."""
        self._send([("SET", key, value)])

    def get(self, key: str) -> bytes | None:
        """A plain value; None where there is none."""
        value: bytes | None = self.call(lambda: self.client.get(key))
        return value

    def served_entries(self) -> int:
        """Entries that the model held which was published last; 0 where none was."""
        rows: Any = self.call(lambda: self.client.xrevrange(self.keys.published, count=1))
        return int(rows[0][1][b"entries_applied"]) if rows else 0

    def samples_released(self) -> tuple[str, int] | None:
        """As `release` was given it last; None where it never was."""
        text = self.get(self.keys.samples_applied)
        if text is None:
            return None
        since, _, samples = text.decode().partition(" ")
        return since, int(samples)

    def account(
        self, ledger: bytes, fates: Mapping[str, bytes], gone: Sequence[str], *, anew: bool
    ) -> None:
        """Queue the ledger before everything else, so that it goes out as a whole.

        Arguments:
            ledger: As JSON.
            fates: Of entries, as JSON, that are new or have changed.
            gone: Entries that have none any more.
            anew: Whether there are no others.
        """
        keys = self.keys
        commands: list[Command] = [("SET", keys.ledger, ledger)]
        if anew:
            commands.append(("DEL", keys.fates))
        commands += [("HDEL", keys.fates, *some) for some in _parts(gone)]
        commands += [
            ("HSET", keys.fates, *(part for id in some for part in (id, fates[id])))
            for some in _parts(list(fates))
        ]
        self._queue.extendleft(reversed(commands))

    def forget(self, key: str) -> None:
        """Queue that a plain value is no more."""
        self._queue.append(("DEL", key))

    def flush(self) -> None:
        """Send what is queued, in order."""
        while self._queue:
            commands = list(islice(self._queue, FLUSH_COMMANDS))
            self._send(commands)
            for _ in commands:
                self._queue.popleft()

    @property
    def has_reports(self) -> bool:
        """Whether events are queued."""
        return any(command[0] == "XADD" for command in self._queue)

    def requests(self) -> list[str]:
        """What readers asked for since the last call."""
        found = []
        while (text := self.call(lambda: self.client.lpop(self.keys.requests))) is not None:
            found.append(text.decode("utf-8", "replace"))
        return found

    def answer(self, request_id: str, data: bytes) -> None:
        """Answer a reader; the answer is kept for a minute, and for one more with each piece."""
        key, n_pieces = self.keys.answer_pieces(request_id), 0
        for piece in pieces(data):
            self._send([("HSET", key, n_pieces, piece), ("EXPIRE", key, ANSWER_S)])
            n_pieces += 1
        ready = b"%d %d" % (n_pieces, len(data))
        self._send([("SET", self.keys.answer(request_id), ready, "EX", ANSWER_S)])

    def fetch(self, upload: Upload) -> bytes:
        """The bytes of an uploaded checkpoint.

        Raises:
            InvalidCheckpoint: They are not there any more, or are others.
        """
        key = self.keys.upload(upload.id)
        found = [
            self.call(partial(self.client.hget, key, str(index))) for index in range(upload.pieces)
        ]
        data = b"".join(piece for piece in found if piece is not None)
        if len(data) != upload.size or hashlib.sha256(data).hexdigest() != upload.sha256:
            raise InvalidCheckpoint(
                f"Redis has {len(data)} of the {upload.size} bytes of the uploaded checkpoint, or "
                f"others. Expected all of them; upload it again."
            )
        return data

    def publish(
        self, position: Position, version: int, location: str, snapshot: bytes | None
    ) -> None:
        """Tell the readers of a snapshot, and hand it over where it travels through Redis.

        Arguments:
            position: What the snapshot contains.
            version: Of the model.
            location: `file:<name>`, `redis`, or nothing while there is no model.
            snapshot: Its bytes, for `redis`.
        """
        fields = {
            "version": version,
            "entries_applied": position.entries_applied,
            "last_entry_id": position.last_entry_id,
            "location": location,
            "time": repr(time.time()),
        }
        flat = [part for field in fields.items() for part in field]
        notice: Command = ("XADD", self.keys.published, "MAXLEN", PUBLISHED_LENGTH, "*", *flat)
        handed: list[Command] = []
        if snapshot is not None:
            handed.append(("SET", self.keys.snapshot, snapshot))
        self._send([*handed, notice])

    # Machinery --------------------------------------------------------------------

    def _send(self, commands: Iterable[Command]) -> None:
        """Carry out commands, all at once, if this trainer is still the one."""
        arguments: list[Any] = [self._lease.token]
        keys = {self.keys.fence: None}
        for command in commands:
            arguments += [len(command), *command]
            keys[str(command[1])] = None
        self.call(lambda: self._write(keys=list(keys), args=arguments))

    def call(self, operation: Callable[[], Any]) -> Any:
        """The operation's result, repeating it while Redis is away.

        Raises:
            StreamUnavailable: It is to be given up.
            LeaseLost: Another trainer has begun.
        """
        try:
            return patiently(operation, self._failed)
        except redis.ResponseError as error:
            raise _lost(error) from error

    def _failed(self, error: Exception) -> None:
        self.redis_errors += 1
        if self._give_up():
            raise unavailable(error) from error
        logger.warning("Redis is away, trying again: %s", error)


class Readable(Protocol):
    """One stream of several that are read together; `Feed` says what each member means."""

    @property
    def stream(self) -> str:
        """Its key."""

    @property
    def mean_bytes(self) -> float:
        """Bytes of an entry, as the last ones were."""

    def prepare(self) -> None:
        """Let the group stand where it should."""

    def took(self, rows: Sequence[Any]) -> list[Any]:
        """What an answer holds."""

    def missed(self, *, counts: bool) -> None:
        """The answer did not come."""


S = TypeVar("S", bound=Readable)


def read_next(client: SyncClient, streams: Sequence[S], block_ms: int) -> list[tuple[S, list[Any]]]:
    """The next entries of several streams, in one command, as many of each as suit.

    Arguments:
        client: Of all of them.
        streams: One or more; on a cluster, whose streams lie on several nodes, each is asked by
            itself, and the last one is waited for.
        block_ms: Longest wait in milliseconds while there are none; 0 does not wait.

    Returns:
        Streams that have entries, with these; none when the wait was over, or when Redis is away
        for the moment.

    Raises:
        InvalidSettings: Redis answers, but not to us.
        LeaseLost: Another trainer has taken over the one stream; of several, it is left out.
    """
    if len(streams) > 1 and isinstance(client, redis.RedisCluster):
        return _read_in_turn(client, streams, block_ms)
    total = sum(stream.mean_bytes for stream in streams)
    most = min(MOST_COUNT, max(LEAST_COUNT, MOST_OF_MANY // len(streams)))
    try:
        streams = _prepared(streams)
        rows = client.xreadgroup(
            GROUP,
            GROUP,
            {stream.stream: ">" for stream in streams},
            count=max(LEAST_COUNT, min(most, int(READ_BYTES / total))),
            block=block_ms or None,
        )
    except Exception as error:
        passing = is_transient(error)
        lost = isinstance(error, redis.ResponseError) and str(error).startswith("NOGROUP")
        for stream in streams:
            stream.missed(counts=passing)
        if is_refusal(error):
            raise refused(error) from error
        if not passing and not lost:
            raise
        if passing:
            logger.warning("reading from Redis failed, trying again: %s", error)
            time.sleep(READ_PAUSE_S)
        return []
    by_name = {stream.stream.encode(): stream for stream in streams}
    # redis-py types answers by what they could be.
    answer: Any = rows or []
    found = [(by_name[name], by_name[name].took(entries)) for name, entries in answer]
    return [(stream, entries) for stream, entries in found if entries]


def _prepared(streams: Sequence[S]) -> list[S]:
    ready = []
    for stream in streams:
        try:
            stream.prepare()
        except LeaseLost:
            if len(streams) == 1:
                raise
            continue  # whoever writes for it is told at the next write
        ready.append(stream)
    return ready


def _read_in_turn(
    client: SyncClient, streams: Sequence[S], block_ms: int
) -> list[tuple[S, list[Any]]]:
    found = [one for stream in streams for one in read_next(client, [stream], 0)]
    return found or read_next(client, streams[-1:], block_ms)


class Reader:
    """Reads one step ahead, on a thread: learning does not wait for Redis to send.

    Arguments:
        client: Of all streams.
        block_ms: Longest wait of one read, in milliseconds.

    Example:
        reader.ask([feed])
        while (found := reader.next(0.05)) is None:
            ...  # a read is under way
        # None is: streams may be opened and closed here
        reader.ask([feed])
    """

    def __init__(self, client: SyncClient, block_ms: int = 250) -> None:
        self._client = client
        self._block_ms = block_ms
        self._thread = ThreadPoolExecutor(1, "gmr-reader")
        self._next: Future[Any] | None = None

    @property
    def asked(self) -> bool:
        """Whether a read is under way, or its answer waits."""
        return self._next is not None

    def ask(self, streams: Sequence[Readable]) -> None:
        """Begin a read. None may be under way."""
        assert self._next is None
        self._next = self._thread.submit(read_next, self._client, streams, self._block_ms)

    def next(self, timeout_s: float) -> list[tuple[Any, list[Any]]] | None:
        """Streams with their next entries; None while the read goes on."""
        assert self._next is not None
        try:
            found: list[tuple[Any, list[Any]]] = self._next.result(timeout_s)
        except NotYet:
            return None
        self._next = None
        return found

    def close(self) -> None:
        """Stop reading. What was read ahead is forgotten; see `Feed.go_back`."""
        self._thread.shutdown()


def _lost(error: redis.ResponseError) -> Exception:
    """What an answer of a script means, if it means that the lease is lost."""
    if "LEASELOST" not in str(error):
        return error
    return LeaseLost(
        "Another trainer works on this model now; this one was away for too long. "
        "Expected one at a time; it stops, and changes nothing more."
    )


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many at a time as one command takes."""
    for start in range(0, len(ids), FLUSH_COMMANDS):
        yield ids[start : start + FLUSH_COMMANDS]


def report_id(entry_id: str, index: int) -> str:
    """The id of the k-th report of an entry: grows with the entry and with k.

    Example:
        >>> report_id("1700000000000-3", 2)
        '1700000000000-30002'
    """
    milliseconds, sequence = entry_id.split("-")
    return f"{milliseconds}-{int(sequence) * REPORTS_PER_ENTRY + min(index, LAST_REPORT)}"


def next_id(entry_id: str) -> str:
    """The smallest id after one."""
    milliseconds, sequence = entry_id.split("-")
    return f"{milliseconds}-{int(sequence) + 1}"


def id_before(entry_id: str) -> str:
    """The greatest id before one.

    Example:
        >>> id_before("5-3"), id_before("5-0")
        ('5-2', '4-1844674407370954')
    """
    milliseconds, sequence = map(int, entry_id.split("-"))
    if sequence:
        return f"{milliseconds}-{sequence - 1}"
    # Of which there can still be a report.
    return f"{max(milliseconds - 1, 0)}-{2**64 // REPORTS_PER_ENTRY - 1}"
