"""The API's end of Redis: append to the input stream, read what the trainer reports.

Rules of this module:

1. Every append carries an id and is refused as a duplicate when it comes twice,
   so it may be repeated after a failure whose outcome is unknown.
2. An append is one script: checks, then XADD, then the note of the id. The order
   matters. A full Redis refuses only a script's first write, so a note written
   first could record a batch that was never added.
3. Redis may restart under a live service. Every call is repeated for a while and
   then raises `StreamUnavailable`; `redis_errors` counts each failure.
4. Nothing here knows what a batch means; `service.wire` does.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import orjson

from core.errors import GMRError, InvalidSettings, ShapeMismatch
from service.connection import (
    AsyncClient,
    StreamUnavailable,
    connect_async,
    is_full,
    is_refusal,
    is_transient,
    refused,
    unavailable,
)
from service.keys import Keys
from service.settings import Settings
from service.wire import Control, RawBatch, RawLabels, RawName, new_batch_id

__all__ = [
    "Appended",
    "BacklogFull",
    "BatchConflict",
    "Notice",
    "Record",
    "Stream",
    "StreamUnavailable",
]

RETRY_S: Final = 3.0
"""Seconds for which a call is repeated before it is given up."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
ANSWER_POLL_S: Final = 0.05


class BatchConflict(GMRError):
    """A batch_id was used before, for another batch."""


class BacklogFull(GMRError):
    """Too many entries wait to be learned; send more slowly."""


@dataclass(frozen=True)
class Appended:
    """What became of an append.

    Arguments:
        entry_id: Of the entry in the input stream; of the first one for a duplicate.
        batch_id: The sender's, or one made here.
        duplicate: Whether the same batch was there before; nothing was added then.
        accepted: Entries accepted in all, ever. Less the entries that a snapshot
            holds, it is the backlog of that snapshot.
    """

    entry_id: str
    batch_id: str
    duplicate: bool
    accepted: int


@dataclass(frozen=True)
class Record:
    """One record of a stream of reports: its id, and the event as JSON-ready values."""

    id: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Notice:
    """The trainer's word that a snapshot was published.

    Arguments:
        id: Of the notice.
        version: Of the model.
        entries_applied: Entries that the snapshot contains.
        last_entry_id: The last of them.
        location: Where the snapshot is; `service.snapshots` knows the forms.
        time: When it was published, Unix seconds.
    """

    id: str
    version: int
    entries_applied: int
    last_entry_id: str
    location: str
    time: float


APPEND: Final = """
local entries, noted, features, applied = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local crc, samples, d, most, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local accepted = tonumber(redis.call('GET', applied) or '0') + redis.call('XLEN', entries)

local note = redis.call('GET', noted)
if note then
  local id, noted_crc = string.match(note, '^(%S+) (%S+)')
  return {noted_crc == crc and 'duplicate' or 'conflict', id, accepted}
end
if most ~= '' and accepted >= tonumber(most) then
  return {'full', '', accepted}
end
local fixed = redis.call('GET', features)
if d ~= '' and fixed and fixed ~= d then
  return {'features', fixed, accepted}
end

local id = redis.call('XADD', entries, '*', unpack(ARGV, 6))
redis.call('SET', noted, id .. ' ' .. crc .. ' ' .. samples, 'EX', ttl)
if d ~= '' and not fixed then
  redis.call('SET', features, d)
end
return {'added', id, accepted + 1}
"""

ACCEPTED: Final = """
return tonumber(redis.call('GET', KEYS[2]) or '0') + redis.call('XLEN', KEYS[1])
"""


class Stream:
    """The API's end of one model's Redis. Use it inside one event loop.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model.
        max_backlog: Entries waiting beyond which a batch is refused.
        dedupe_ttl_s: Seconds for which a batch id is remembered.
        n_features: D, where a setting fixes it.

    Example:
        async with Stream.open(settings) as stream:
            appended = await stream.append(RawBatch.of(features, labels))
    """

    def __init__(
        self,
        client: AsyncClient,
        model: str,
        *,
        max_backlog: int,
        dedupe_ttl_s: int,
        n_features: int | None = None,
    ) -> None:
        self.client = client
        self.keys = Keys(model)
        self.redis_errors = 0
        self._max_backlog = max_backlog
        self._dedupe_ttl_s = dedupe_ttl_s
        self._n_features = n_features
        self._append = client.register_script(APPEND)
        self._accepted = client.register_script(ACCEPTED)

    @classmethod
    def open(cls, settings: Settings) -> Stream:
        """The stream that the settings name; connects at the first call.

        Raises:
            InvalidSettings: No Redis address is set.
        """
        address = settings.redis_address()
        if address is None:
            raise InvalidSettings(
                "No Redis address is set, and only `gmr serve` brings an embedded Redis. Set "
                "GMR_REDIS_URL, or start the whole service by `gmr serve`."
            )
        return cls(
            connect_async(address),
            settings.model,
            max_backlog=settings.max_backlog,
            dedupe_ttl_s=settings.dedupe_ttl_s,
            n_features=settings.n_features,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Writing ------------------------------------------------------------------

    async def append(self, batch: RawBatch, *, entries_applied: int | None = None) -> Appended:
        """Put a batch into the stream. When this returns, the batch is durable.

        Arguments:
            batch: With or without a batch id; without one it gets a fresh one.
            entries_applied: Entries that the served snapshot holds; the backlog is
                counted from there. None switches the check off.

        Raises:
            BatchConflict: The batch id was used for other content.
            BacklogFull: Too many entries wait; nothing was added.
            ShapeMismatch: The stream has another number of features.
            StreamUnavailable: Redis is away or full; repeating is safe.
        """
        d = batch.n_features
        if self._n_features is not None and d != self._n_features:
            raise ShapeMismatch.features(expected=self._n_features, got=d)
        batch_id = batch.batch_id or new_batch_id()
        most = None if entries_applied is None else entries_applied + self._max_backlog
        fields: dict[str, bytes | memoryview] = {**batch.to_entry(), "id": batch_id.encode()}
        return await self._send(batch_id, len(batch), fields, d=d, most=most)

    async def append_labels(
        self, labels: RawLabels | RawName, *, entries_applied: int | None = None
    ) -> Appended:
        """Put labels for samples of before, or to come, into the stream.

        Arguments:
            labels: With or without a batch id; without one they get a fresh one.
            entries_applied: As for `append`.

        Raises:
            BatchConflict, BacklogFull, StreamUnavailable: As for `append`.
        """
        batch_id = labels.batch_id or new_batch_id()
        most = None if entries_applied is None else entries_applied + self._max_backlog
        fields: dict[str, bytes | memoryview] = {**labels.to_entry(), "id": batch_id.encode()}
        return await self._send(batch_id, len(labels), fields, d=None, most=most)

    async def append_control(self, control: Control) -> Appended:
        """Put anything else that changes the model into the stream.

        Raises:
            StreamUnavailable: Redis is away or full.
        """
        request_id = uuid.uuid4().hex
        return await self._send(request_id, 0, control.to_entry(), d=None, most=None)

    async def request_checkpoint(self, timeout_s: float) -> bytes | None:
        """Ask the trainer for its whole state; None when it does not answer in time."""
        request_id = uuid.uuid4().hex
        deadline = time.monotonic() + timeout_s
        request = f"checkpoint {request_id}"
        await self._call(lambda: self.client.rpush(self.keys.requests, request))
        while time.monotonic() < deadline:
            await asyncio.sleep(ANSWER_POLL_S)
            answer: bytes | None = await self._call(
                lambda: self.client.get(self.keys.answer(request_id))
            )
            if answer is not None:
                await self._call(lambda: self.client.delete(self.keys.answer(request_id)))
                return answer
        # Nobody waits for it any more.
        await self._call(lambda: self.client.lrem(self.keys.requests, 0, request))
        return None

    # Reading ------------------------------------------------------------------

    async def ping(self) -> None:
        """Return when Redis answers.

        Raises:
            StreamUnavailable: It does not.
        """
        await self._call(self.client.ping)

    async def accepted(self) -> int:
        """Entries accepted in all, ever: those in the stream and those trimmed from it."""
        keys = [self.keys.input, self.keys.applied]
        return int(await self._call(lambda: self._accepted(keys=keys)))

    async def n_features(self) -> int | None:
        """D, or None while any number of features will do."""
        if self._n_features is not None:
            return self._n_features
        fixed = await self._call(lambda: self.client.get(self.keys.features))
        return None if fixed is None else int(fixed)

    async def status(self) -> dict[str, Any] | None:
        """What the trainer last said of itself; None when none was ever there."""
        text = await self._call(lambda: self.client.get(self.keys.status))
        status: dict[str, Any] | None = None if text is None else orjson.loads(text)
        return status

    async def versions(self) -> list[dict[str, Any]]:
        """The kept versions, newest first."""
        text = await self._call(lambda: self.client.get(self.keys.versions))
        versions: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return versions

    async def proposals(self) -> list[dict[str, Any]]:
        """The open proposals of new classes, oldest first."""
        text = await self._call(lambda: self.client.get(self.keys.proposals))
        proposals: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return proposals

    async def trainer_metrics(self) -> bytes | None:
        """The trainer's metrics, in Prometheus' text format."""
        text: bytes | None = await self._call(lambda: self.client.get(self.keys.trainer_metrics))
        return text

    async def history(self, last: int) -> list[Record]:
        """The newest events of batches, oldest first."""
        return await self._newest(self.keys.history, last)

    async def boundaries(self, since: str = "-") -> list[Record]:
        """Boundaries from a record id (or Unix milliseconds) on, oldest first."""
        rows = await self._call(lambda: self.client.xrange(self.keys.boundaries, min=since))
        return _records(rows)

    async def boundary(self, id: str) -> Record | None:
        """One boundary with its whole explanation; the heavy part only while it is kept."""
        found = await self._call(lambda: self.client.xrange(self.keys.boundaries, id, id))
        if not found:
            return None
        (record,) = _records(found)
        heavy = _records(
            await self._call(lambda: self.client.xrange(self.keys.explanations, id, id))
        )
        parts = {name: part for one in heavy for name, part in one.data.items()}
        explanation = {**(record.data.get("explanation") or {}), **parts}
        return Record(record.id, {**record.data, "explanation": explanation})

    async def quarantine(self, last: int) -> list[Record]:
        """The newest outliers of bursts, oldest first."""
        return await self._newest(self.keys.quarantine, last)

    async def newest_boundaries(self, last: int) -> list[Record]:
        """The newest boundaries, oldest first."""
        return await self._newest(self.keys.boundaries, last)

    async def set_aside(self, last: int) -> list[dict[str, str]]:
        """The newest rejected entries with `entry_id`, `reason` and `detail`, oldest first."""
        rows = await self._call(lambda: self.client.xrevrange(self.keys.set_aside, count=last))
        shown = (b"entry_id", b"reason", b"detail")
        return [
            {name.decode(): fields.get(name, b"").decode("utf-8", "replace") for name in shown}
            for _, fields in reversed(rows)
        ]

    async def events(self, after: str = "$", *, count: int = 100, block_ms: int) -> list[Record]:
        """The next events after a record id, waiting for one if there is none.

        Arguments:
            after: Id of the last record seen; `$` for those yet to come. `$` means
                "from now on" at each call, so go on with `last_event_id` or with the
                id of the last record.
            count: At most so many.
            block_ms: Longest wait; an empty list when nothing came.
        """
        rows = await self._call(
            lambda: self.client.xread({self.keys.events: after}, count=count, block=block_ms)
        )
        return [record for _, batch in rows for record in _records(batch)]

    async def last_event_id(self) -> str:
        """Id of the newest event, or `0-0`."""
        rows = await self._call(lambda: self.client.xrevrange(self.keys.events, count=1))
        return str(rows[0][0].decode()) if rows else "0-0"

    async def last_notice(self) -> Notice | None:
        """The latest published snapshot's notice; None when there is none yet."""
        rows = await self._call(lambda: self.client.xrevrange(self.keys.published, count=1))
        return _notice(*rows[0]) if rows else None

    async def next_notice(self, after: str, *, block_ms: int) -> Notice | None:
        """The latest notice after one, waiting for it; None when none came in time."""
        rows = await self._call(
            lambda: self.client.xread({self.keys.published: after}, block=block_ms)
        )
        return _notice(*rows[0][1][-1]) if rows else None

    async def snapshot(self) -> bytes | None:
        """The latest snapshot, where snapshots travel through Redis."""
        data: bytes | None = await self._call(lambda: self.client.get(self.keys.snapshot))
        return data

    # Machinery ----------------------------------------------------------------

    async def _send(
        self,
        batch_id: str,
        samples: int,
        fields: Mapping[str, bytes | memoryview],
        *,
        d: int | None,
        most: int | None,
    ) -> Appended:
        keys = [self.keys.input, self.keys.batch(batch_id), self.keys.features, self.keys.applied]
        arguments: list[Any] = [
            fields.get("crc", b"0"),
            samples,
            "" if d is None else d,
            "" if most is None else most,
            self._dedupe_ttl_s,
        ]
        for name, value in fields.items():
            arguments += [name, value]
        reply = await self._call(lambda: self._append(keys=keys, args=arguments))
        outcome, detail, accepted = reply[0].decode(), reply[1].decode(), int(reply[2])
        if outcome == "conflict":
            raise BatchConflict(
                f"The batch_id {batch_id!r} was used before for another batch (entry {detail}); "
                f"expected a new id for new content. Send the batch under an id of its own.",
                batch_id=batch_id,
                entry_id=detail,
            )
        if outcome == "full":
            raise BacklogFull(
                f"{self._max_backlog} entries or more wait to be learned, which is the limit; "
                f"nothing was added. Send the batch again in a moment, or raise GMR_MAX_BACKLOG.",
                max_backlog=self._max_backlog,
                accepted=accepted,
            )
        if outcome == "features":
            assert d is not None
            raise ShapeMismatch.features(expected=int(detail), got=d)
        return Appended(detail, batch_id, outcome == "duplicate", accepted)

    async def _newest(self, key: str, last: int) -> list[Record]:
        rows = await self._call(lambda: self.client.xrevrange(key, count=last))
        return _records(reversed(rows))

    async def _call(self, operation: Callable[[], Any]) -> Any:
        """The operation's result, repeating it while Redis is away for a moment.

        Untyped, because redis-py types every answer as bytes, text or nothing, and
        which it is depends on the connection.
        """
        deadline = time.monotonic() + RETRY_S
        pause = FIRST_PAUSE_S
        while True:
            try:
                result = await operation()
            except Exception as error:
                if is_full(error):
                    self.redis_errors += 1
                    raise StreamUnavailable(
                        "Redis has no memory left; nothing was accepted. Send the batch again in a "
                        "moment; if this lasts, raise its memory (GMR_REDIS_MAXMEMORY_MIB for the "
                        "embedded one) or lower GMR_MAX_BACKLOG."
                    ) from error
                if is_refusal(error):
                    self.redis_errors += 1
                    raise refused(error) from error
                if not is_transient(error):
                    raise
                self.redis_errors += 1
                if time.monotonic() + pause > deadline:
                    raise unavailable(error) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                _heed_cancellation()
                return result


def _heed_cancellation() -> None:
    """Raise where a cancellation got lost.

    The client waits by `asyncio.wait_for`, which up to Python 3.11 swallows a
    cancellation that comes in the same turn as the result. Whoever cancelled an
    endless loop of reads would wait for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _records(rows: Any) -> list[Record]:
    return [Record(id.decode(), orjson.loads(fields[b"data"])) for id, fields in rows]


def _notice(id: bytes, fields: Mapping[bytes, bytes]) -> Notice:
    return Notice(
        id.decode(),
        int(fields[b"version"]),
        int(fields[b"entries_applied"]),
        fields[b"last_entry_id"].decode(),
        fields[b"location"].decode(),
        float(fields[b"time"]),
    )
