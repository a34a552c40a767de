"""The trainer's end of Redis: read entries in order, and let go of what is safe.

What it reports is `report_queue`'s, what cannot be used `burial`'s, what readers ask `requests`'.

Rules of this module:

1. The checkpoint is the truth about what was learned; the consumer group only shows
   it. So the group is made anew from the checkpoint at every start.
2. After a failed read the group goes back to the last entry that arrived here: its
   own position moves when Redis sends, not when we receive.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from service.broker.burial import Burial
from service.broker.connection import SyncClient
from service.broker.entries import Entry, Position, id_before, next_id
from service.broker.fenced import Command, Fenced, lost
from service.broker.kept_versions import KeptVersions
from service.broker.keys import GROUP
from service.broker.lease import Lease
from service.broker.reader import READ_BYTES, read_next
from service.broker.report_queue import ReportQueue
from service.broker.requests import Requests
from service.broker.travelling_names import TravellingNames
from service.settings import MIB, Settings
from service.wire import Control

logger = logging.getLogger(__name__)

PUBLISHED_LENGTH: Final = 16

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


class Feed(Fenced):
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
        replicas: That are to have an entry before it is read, and a report before it is told.
        patience_s: Seconds for which a call is repeated while Redis is away.
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
        dead_letters_bytes: int = 64 * MIB,
        replicas: int = 0,
        patience_s: float = math.inf,
    ) -> None:
        super().__init__(client, model, lease, give_up, replicas, patience_s)
        self.reports = ReportQueue(self, events_length, history_length)
        self.requests = Requests(self)
        self.feature_names = TravellingNames(self)
        self.kept_versions = KeptVersions(self)
        self.dead_letters = Burial(self, dead_letters_length, dead_letters_bytes)
        self._read_to = Position()
        self._rewind = False
        self._mean_bytes = READ_BYTES / 8
        self._start = client.register_script(START)
        self._go_to = client.register_script(GO_TO)
        self._release = client.register_script(RELEASE)
        self._append = client.register_script(APPEND_OWN)

    @classmethod
    def of(
        cls,
        settings: Settings,
        client: SyncClient,
        lease: Lease,
        give_up: Callable[[], bool],
        patience_s: float = math.inf,
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
            replicas=settings.redis_replicas,
            patience_s=patience_s,
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
        arguments: list[Any] = [self.token, GROUP, last, count]
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
        for _, entries in read_next(self.client, [self], block_ms, self.replicas):
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
            there = self._go_to(keys=keys, args=[self.token, GROUP, last])
        except redis.ResponseError as error:
            raise lost(error) from error
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
        arguments: list[Any] = [self.token, *fields]
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
            self.token,
            GROUP,
            next_id(position.last_entry_id),
            position.entries_applied,
            "{} {}".format(*samples),
            *entry_ids,
        ]
        self.call(lambda: self._release(keys=keys, args=arguments))

    # What is served ---------------------------------------------------------------

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
        self.write([*handed, notice])
