"""The API's end of Redis: append to the input stream, read what the trainer reports.

Rules of this module:

1. Every append carries an id and is refused as a duplicate when it comes twice,
   so it may be repeated after a failure whose outcome is unknown.
2. An append is one script: `service.broker.append`.
3. Redis may restart under a live service, or hang. Every call is repeated for a while and
   then raises `StreamUnavailable`, which says what is known of it; `redis_errors` counts
   each failure. Questions are given up sooner than what is to be kept.
4. Nothing here knows what a batch means; `service.wire` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import orjson
import redis.asyncio

from core.errors import GMRError, InvalidSettings, ShapeMismatch
from service.broker.api_keys import ApiKey
from service.broker.append import APPEND, MOST_LINES
from service.broker.branch import Branch
from service.broker.connection import (
    SOCKET_TIMEOUT_S,
    AsyncClient,
    StreamUnavailable,
    connect_async,
    examiner_of,
    identity_of,
    is_refusal,
    is_transient,
    is_worth_repeating,
    not_known,
    not_told,
    perhaps_done,
    too_few_replicas,
    turned_away,
    weakness_of,
)
from service.broker.disk import DiskRoom, room_of
from service.broker.durability import Durability, Examiner
from service.broker.keys import Keys
from service.broker.pieces import ANSWER_S, UPLOAD_S
from service.broker.records import Answer, Appended, Counts, Notice, Record
from service.broker.refusals import refusal_of
from service.broker.registry import DOORBELL_LENGTH, REGISTER, TAKE_DOWN, NamedModel
from service.settings import Settings
from service.wire import (
    REQUEUED_FROM,
    Control,
    RawBatch,
    RawLabels,
    RawName,
    Upload,
    identity,
    new_batch_id,
)

__all__ = [
    "Answer",
    "Appended",
    "BacklogFull",
    "BatchConflict",
    "Counts",
    "LetterConflict",
    "Notice",
    "Record",
    "RestorePending",
    "Stream",
    "StreamUnavailable",
    "UnknownLetter",
]

RETRY_S: Final = 3.0
"""Seconds for which a call is repeated before it is given up."""

ROWS_PER_S: Final = 5000
"""At which long lists come at least, also on a busy machine."""

READ_S: Final = 1.0
READ_TRIES: Final = 3
"""A question is asked so often and each time waited for so long: where Redis hangs, better a 503
soon than late. Several tries, because a busy process may itself have slept through one."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
ANSWER_POLL_S: Final = 0.05

REPLICATION_MS: Final = 2000
"""Longest wait for replicas to confirm an entry."""

CONTROLS_BEYOND: Final = 16
"""Entries by which controls may exceed the backlog of batches."""

OWN_ID_S: Final = 600
"""Seconds for which an id that was made here is remembered: nobody else knows it, but whoever was
answered that a batch may have been accepted, and repeats it."""


class BatchConflict(GMRError):
    """A batch_id was used before, for another batch."""


class BacklogFull(GMRError):
    """Too many entries wait to be learned; send more slowly."""


class LetterConflict(GMRError):
    """A dead letter cannot be sent again."""

    @classmethod
    def requeued(cls, id: str, entry_id: str) -> LetterConflict:
        """The error for one that was sent again before."""
        return cls(
            f"The dead letter {id} was sent again before, as entry {entry_id}. Expected one that "
            f"was not. If that entry failed, too, send its own dead letter again.",
            entry_id=entry_id,
        )

    @classmethod
    def repeated(cls, id: str, entry_id: str) -> LetterConflict:
        """The error for one whose sender has sent the batch again."""
        return cls(
            f"The batch of the dead letter {id} was accepted again since, as entry {entry_id}. "
            f"Sending it once more would learn it twice. Drop the letter.",
            entry_id=entry_id,
        )

    @classmethod
    def bare(cls, id: str) -> LetterConflict:
        """The error for one without a payload."""
        return cls(
            f"The dead letter {id} was kept without its payload, which was too large, or a "
            f"checkpoint. Expected one with `whole: true`. Send the original again."
        )


class UnknownLetter(GMRError):
    """No dead letter has this id, or none any more."""

    @classmethod
    def of(cls, id: str) -> UnknownLetter:
        """The error for an id."""
        return cls(
            f"No dead letter has the id {id[:40]!r}. Expected one of GET /deadletters; the oldest "
            f"make room for newer ones. Ask for the list."
        )


class RestorePending(GMRError):
    """Whether a batch was dropped depends on a rollback or upload that is not done yet."""


PIECE: Final = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""

# A full Redis refuses only the first write of a script, if it needs memory: this one needs none.
COUNT: Final = """
redis.call('PERSIST', KEYS[1])
for i = 1, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], 'rejected:' .. ARGV[i], ARGV[i + 1])
end
return redis.call('HGETALL', KEYS[1])
"""

ACCEPTED: Final = """
return tonumber(redis.call('GET', KEYS[2]) or '0') + redis.call('XLEN', KEYS[1])
"""


class Stream:
    """The API's end of one model's Redis. Use it inside one event loop.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model; of a named one SERVICE/NAME.
        max_backlog: Entries waiting beyond which a batch is refused.
        dedupe_ttl_s: Seconds for which a batch id is remembered.
        n_features: D, where a setting fixes it.
        examiner: Looks at each connection of the client.
        replicas: That must have an entry before it is acknowledged.

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
        examiner: Examiner | None = None,
        replicas: int = 0,
        room: DiskRoom | None = None,
    ) -> None:
        self.client = client
        self.keys = Keys(model)
        service, _, name = model.partition("/")
        self._doorbell = (Keys(service).doorbell, name) if name else None
        self.redis_errors = 0
        self._max_backlog = max_backlog
        self._dedupe_ttl_s = dedupe_ttl_s
        self._n_features = n_features
        self.examiner = examiner or Examiner(model, "api")
        self._replicas = replicas
        self._room = room
        self._append = client.register_script(APPEND)
        self._piece = client.register_script(PIECE)
        self._count = client.register_script(COUNT)
        self._register = client.register_script(REGISTER)
        self._take_down = client.register_script(TAKE_DOWN)
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
        examiner = examiner_of(settings, "api")
        return cls(
            connect_async(address, examiner, identity_of(settings)),
            settings.model,
            max_backlog=settings.max_backlog,
            dedupe_ttl_s=settings.dedupe_ttl_s,
            n_features=settings.n_features,
            examiner=examiner,
            replicas=settings.redis_replicas,
            room=room_of(settings),
        )

    @property
    def durability(self) -> Durability | None:
        """What Redis promises of what it acknowledges; None before the first connection."""
        return self.examiner.found

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
            RestorePending: It was sent before, and a rollback may drop it.
            ShapeMismatch: The stream has another number of features.
            StreamUnavailable: Redis is away or full; repeating is safe.
        """
        d = batch.n_features
        if self._n_features is not None and d != self._n_features:
            raise ShapeMismatch.features(expected=self._n_features, got=d)
        batch_id = batch.batch_id or new_batch_id()
        most = None if entries_applied is None else entries_applied + self._max_backlog
        fields: dict[str, bytes | memoryview] = {**batch.to_entry(), "id": batch_id.encode()}
        own = batch.batch_id is None
        return await self._send(batch_id, len(batch), fields, d=d, most=most, own=own)

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
        own = labels.batch_id is None
        return await self._send(batch_id, len(labels), fields, d=None, most=most, own=own)

    async def append_control(
        self,
        control: Control,
        *,
        n_features: int | None = None,
        entries_applied: int | None = None,
    ) -> Appended:
        """Put anything else that changes the model into the stream.

        Arguments:
            control: What is asked for.
            n_features: D of a checkpoint; fixes that of the stream, as a first batch does.
            entries_applied: As for `append`; there is room for a few where there is none for
                batches, so that a model can be rolled back all the same.

        Raises:
            BacklogFull: Too many entries wait; nothing was added.
            ShapeMismatch: The stream has another number of features.
            StreamUnavailable: Redis is away or full.
        """
        if None not in (n_features, self._n_features) and n_features != self._n_features:
            raise ShapeMismatch.features(expected=self._n_features or 0, got=n_features or 0)
        request_id = uuid.uuid4().hex
        return await self._send(
            request_id,
            0,
            control.to_entry(),
            d=n_features,
            most=None
            if entries_applied is None
            else entries_applied + self._max_backlog + CONTROLS_BEYOND,
            upload=control.upload,
            restores=control.kind in ("rollback", "restore"),
            own=True,
            away=lambda error: not_known(error, None),  # the sender has no name for it
        )

    async def requeue(
        self,
        letter_id: str,
        fields: Mapping[bytes, bytes],
        *,
        samples: int,
        d: int | None,
        entries_applied: int | None = None,
    ) -> Appended:
        """Put the entry of a dead letter into the stream again, once.

        Arguments:
            letter_id: Of the letter.
            fields: The entry's, with what tells of its first time.
            samples: That it holds, or labels.
            d: Its number of features; None where it holds none.
            entries_applied: As for `append`.

        Raises:
            UnknownLetter: It is gone meanwhile.
            LetterConflict: It was sent again before, or by its sender, or has no payload.
            BacklogFull, ShapeMismatch, StreamUnavailable: As for `append`.
        """
        if d is not None and self._n_features is not None and d != self._n_features:
            raise ShapeMismatch.features(expected=self._n_features, got=d)
        named = {name.decode("ascii", "replace"): value for name, value in fields.items()}
        batch_id = named.get("id", b"").decode("utf-8", "replace") or uuid.uuid4().hex
        return await self._send(
            batch_id,
            samples,
            named,
            d=d,
            most=None if entries_applied is None else entries_applied + self._max_backlog,
            restores=named.get("kind") in (b"rollback", b"restore"),
            letter=letter_id,
            away=lambda error: perhaps_done(
                error,
                f"the dead letter {letter_id} was sent again",
                "Send it again in a moment: it goes out once in either case.",
            ),
        )

    async def put_piece(self, upload_id: str, index: int, piece: bytes) -> None:
        """Keep one piece of an upload; it goes by itself unless an entry soon names the upload.

        Raises:
            StreamUnavailable: Redis is away or full.
        """
        keys = [self.keys.upload(upload_id)]
        values: list[Any] = [index, piece, UPLOAD_S]
        await self.call(lambda: self._piece(keys=keys, args=values), not_told)

    async def drop_upload(self, upload_id: str) -> None:
        """Let go of the pieces of an upload that no entry names; at once, if Redis is there."""
        with contextlib.suppress(GMRError):
            await self.read(lambda: self.client.unlink(self.keys.upload(upload_id)))

    async def uploads(self) -> int:
        """How many uploads wait to be taken over, or for a checkpoint that contains them."""
        return int(await self.read(lambda: self.client.hlen(self.keys.uploads)))

    async def request_checkpoint(self, timeout_s: float) -> Answer | None:
        """Ask the trainer for its whole state; None when it does not answer in time."""
        request_id = uuid.uuid4().hex
        deadline = time.monotonic() + timeout_s
        request = f"checkpoint {request_id}"
        await self.read(lambda: self.client.rpush(self.keys.requests, request), READ_TRIES * READ_S)
        if self._doorbell is not None:  # it may have to be loaded first
            stream, name = self._doorbell
            await self.read(
                lambda: self.client.xadd(stream, {"model": name}, maxlen=DOORBELL_LENGTH)
            )
        while time.monotonic() < deadline:
            await asyncio.sleep(ANSWER_POLL_S)
            answer: bytes | None = await self.read(
                lambda: self.client.get(self.keys.answer(request_id))
            )
            if answer is not None:
                n_pieces, size = map(int, answer.split())
                return Answer(request_id, n_pieces, size)
        # Nobody waits for it any more.
        await self.read(lambda: self.client.lrem(self.keys.requests, 0, request))
        return None

    async def pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """The bytes of an answer of the trainer's, some at a time; they are gone afterwards.

        Raises:
            StreamUnavailable: Redis is away, or the pieces were not taken in time.
        """
        key = self.keys.answer_pieces(answer.request_id)
        try:
            for index in range(answer.pieces):
                piece = await self.read(
                    partial(self.client.hget, key, str(index)), SOCKET_TIMEOUT_S
                )
                if piece is None:
                    raise StreamUnavailable(
                        f"Piece {index} of the answer is gone: it was not taken within "
                        f"{ANSWER_S} seconds of the one before. Ask again."
                    )
                await self.read(lambda: self.client.expire(key, ANSWER_S))
                yield piece
        finally:
            with contextlib.suppress(GMRError):
                await self.read(lambda: self.client.unlink(key))

    async def count(self, rejected: Mapping[str, int]) -> Counts:
        """Add to what all API processes count together, and read it.

        Arguments:
            rejected: Batches that were refused since the last call, by reason.

        Raises:
            StreamUnavailable: Redis is away; whether they were added is not known.
        """
        arguments = [part for pair in rejected.items() for part in pair]
        async with asyncio.timeout(READ_S):
            # Once: a repeat would count them twice.
            reply = await self._once(lambda: self._count(keys=[self.keys.counts], args=arguments))
        found = dict(zip(map(bytes.decode, reply[::2]), map(int, reply[1::2]), strict=True))
        return Counts(
            found.pop("samples_ingested", 0),
            found.pop("batches_ingested", 0),
            {name.removeprefix("rejected:"): n for name, n in found.items()},
        )

    # Reading ------------------------------------------------------------------

    async def ping(self) -> None:
        """Return when Redis answers.

        Raises:
            StreamUnavailable: It does not.
        """
        await self.read(self.client.ping)

    async def accepted(self) -> int:
        """Entries accepted in all, ever: those in the stream and those trimmed from it."""
        keys = [self.keys.input, self.keys.applied]
        return int(await self.read(lambda: self._accepted(keys=keys)))

    async def n_features(self) -> int | None:
        """D, or None while any number of features will do."""
        if self._n_features is not None:
            return self._n_features
        fixed = await self.read(lambda: self.client.get(self.keys.features))
        return None if fixed is None else int(fixed)

    async def status(self) -> dict[str, Any] | None:
        """What the trainer last said of itself; None when none was ever there."""
        text = await self.read(lambda: self.client.get(self.keys.status))
        status: dict[str, Any] | None = None if text is None else orjson.loads(text)
        return status

    async def versions(self) -> list[dict[str, Any]]:
        """The kept versions, newest first."""
        text = await self.read(lambda: self.client.get(self.keys.versions))
        versions: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return versions

    async def proposals(self) -> list[dict[str, Any]]:
        """The open proposals of new classes, oldest first."""
        text = await self.read(lambda: self.client.get(self.keys.proposals))
        proposals: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return proposals

    async def api_keys(self) -> list[ApiKey]:
        """What is kept of the keys of the API, oldest first."""
        values = await self.read(lambda: self.client.hvals(self.keys.api_keys))
        return sorted(map(ApiKey.from_json, values), key=lambda key: (key.made, key.id))

    async def add_api_key(self, key: ApiKey) -> None:
        """Let a key count from now on."""
        await self.call(
            lambda: self.client.hset(self.keys.api_keys, key.id, key.to_json()),
            away=lambda error: perhaps_done(
                error, "the key was made", "Look at GET /keys, and revoke it if nobody has it."
            ),
        )

    async def drop_api_key(self, id: str) -> bool:
        """Let a key count no more; False where there was none."""
        gone = await self.call(
            lambda: self.client.hdel(self.keys.api_keys, id),
            away=lambda error: perhaps_done(error, "the key was revoked", "Revoke it again."),
        )
        return bool(gone)

    async def named_models(self) -> dict[str, NamedModel]:
        """The named models of the service whose own model this is, by name, oldest first."""
        values = await self.read(lambda: self.client.hvals(self.keys.models))
        models = sorted(map(NamedModel.from_json, values), key=lambda model: model.made)
        return {model.name: model for model in models}

    async def model_states(self) -> dict[str, dict[str, Any]]:
        """How the trainer has those that are not unloaded, by name."""
        text = await self.read(lambda: self.client.get(self.keys.model_states))
        states: dict[str, dict[str, Any]] = {} if text is None else orjson.loads(text)
        return states

    async def register_model(self, model: NamedModel, most: int) -> NamedModel | None:
        """Register a named model.

        Arguments:
            model: As it should be.
            most: Named models that there may be.

        Returns:
            What is registered under its name; None where there are too many.
        """
        keys = [self.keys.models, self.keys.doorbell]
        values: list[Any] = [model.name, model.to_json(), most, DOORBELL_LENGTH]
        reply = await self.call(
            lambda: self._register(keys=keys, args=values),
            lambda error: perhaps_done(error, "the model was made", "Ask for the same again."),
        )
        return None if reply is None else NamedModel.from_json(reply)

    async def take_down_model(self, model: NamedModel) -> bool:
        """Let the trainer take a named model down; False where it is another by now."""
        keys = [self.keys.models, self.keys.doorbell]
        left = model.left().to_json()
        values: list[Any] = [model.name, model.to_json(), left, DOORBELL_LENGTH]
        reply = await self.call(
            lambda: self._take_down(keys=keys, args=values),
            lambda error: perhaps_done(error, "the model is taken down", "Ask for it again."),
        )
        return bool(reply)

    async def trainer_metrics(self) -> bytes | None:
        """The trainer's metrics, in Prometheus' text format."""
        text: bytes | None = await self.read(lambda: self.client.get(self.keys.trainer_metrics))
        return text

    async def history(self, last: int) -> list[Record]:
        """The newest events of batches, oldest first."""
        return await self._newest(self.keys.history, last)

    async def history_pages(
        self, since: str = "-", page: int = 1000
    ) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Events of batches from a record id (or Unix milliseconds) on, as ids and JSON, by pages.

        Arguments:
            since: Where to begin.
            page: Events at a time.
        """
        while True:
            read = partial(self.client.xrange, self.keys.history, min=since, count=page)
            rows = await self.read(read)
            if rows:
                yield [(id.decode(), fields[b"data"]) for id, fields in rows]
            if len(rows) < page:
                return
            since = f"({rows[-1][0].decode()}"

    async def boundaries(self, since: str = "-") -> list[Record]:
        """Boundaries from a record id (or Unix milliseconds) on, oldest first."""
        rows = await self.read(lambda: self.client.xrange(self.keys.boundaries, min=since))
        return _records(rows)

    async def boundary(self, id: str) -> Record | None:
        """One boundary with its whole explanation; the heavy part only while it is kept."""
        found = await self.read(lambda: self.client.xrange(self.keys.boundaries, id, id))
        if not found:
            return None
        (record,) = _records(found)
        heavy = _records(
            await self.read(lambda: self.client.xrange(self.keys.explanations, id, id))
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

    async def branch(self) -> Branch:
        """Which entries are no part of the model any more."""
        text = await self.read(lambda: self.client.get(self.keys.branch))
        return Branch() if text is None else Branch.from_json(text)

    async def events(self, after: str = "$", *, count: int = 100, block_ms: int) -> list[Record]:
        """The next events after a record id, waiting for one if there is none.

        Arguments:
            after: Id of the last record seen; `$` for those yet to come. `$` means
                "from now on" at each call, so go on with `last_event_id` or with the
                id of the last record.
            count: At most so many.
            block_ms: Longest wait; an empty list when nothing came.
        """
        rows = await self.read(
            lambda: self.client.xread({self.keys.events: after}, count=count, block=block_ms),
            READ_S + block_ms / 1000,
        )
        return [record for _, batch in rows for record in _records(batch)]

    async def last_event_id(self) -> str:
        """Id of the newest event, or `0-0`."""
        rows = await self.read(lambda: self.client.xrevrange(self.keys.events, count=1))
        return str(rows[0][0].decode()) if rows else "0-0"

    async def last_notice(self) -> Notice | None:
        """The latest published snapshot's notice; None when there is none yet."""
        rows = await self.read(lambda: self.client.xrevrange(self.keys.published, count=1))
        return _notice(*rows[0]) if rows else None

    async def next_notice(self, after: str, *, block_ms: int) -> Notice | None:
        """The latest notice after one, waiting for it; None when none came in time."""
        rows = await self.read(
            lambda: self.client.xread({self.keys.published: after}, block=block_ms),
            READ_S + block_ms / 1000,
        )
        return _notice(*rows[0][1][-1]) if rows else None

    async def snapshot(self) -> bytes | None:
        """The latest snapshot, where snapshots travel through Redis."""
        data: bytes | None = await self.read(
            lambda: self.client.get(self.keys.snapshot), SOCKET_TIMEOUT_S
        )
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
        upload: Upload | None = None,
        restores: bool = False,
        letter: str = "",
        own: bool = False,
        away: Callable[[Exception], StreamUnavailable] | None = None,
    ) -> Appended:
        if self._room is not None:
            self._room.check()
        keys = [
            self.keys.input,
            self.keys.batch(batch_id),
            self.keys.features,
            self.keys.applied,
            self.keys.branch,
            self.keys.restoring,
            self.keys.dead_letters,
            self.keys.dead_letters_requeued,
            self.keys.dead_letters_bytes,
            self.keys.dead_letter(letter),
            self.keys.upload("" if upload is None else upload.id),
            self.keys.uploads,
            self.keys.counts,
            self.keys.samples,
        ]
        arguments: list[Any] = [
            identity(fields),
            samples,
            "" if d is None else d,
            "" if most is None else most,
            min(self._dedupe_ttl_s, OWN_ID_S) if own else self._dedupe_ttl_s,
            MOST_LINES,
            "1" if restores else "",
            letter,
            0 if upload is None else upload.pieces,
            fields.get("crc", b"0"),
            fields.get(REQUEUED_FROM, b""),
        ]
        for name, value in fields.items():
            arguments += [name, value]
        reply, replicas = await self.call(
            lambda: self._appended(keys, arguments),
            away or (lambda error: not_known(error, batch_id)),
        )
        outcome, detail, accepted = reply[0].decode(), reply[1].decode(), int(reply[2])
        if letter:
            _check_letter(letter, outcome, detail)
        if outcome in ("added", "duplicate") and replicas < self._replicas:
            raise too_few_replicas(replicas, self._replicas, None if away else batch_id)
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
        if outcome == "incomplete":
            raise StreamUnavailable(
                "Pieces of the checkpoint are gone from Redis before it could be accepted; nothing "
                "was changed. Send it again."
            )
        if outcome == "features":
            assert d is not None
            raise ShapeMismatch.features(expected=int(detail), got=d)
        if outcome == "restoring":
            raise RestorePending(
                f"A rollback or an upload (entry {detail}) is accepted and not done yet, and it "
                f"decides whether this batch, which was sent before, is part of the model. Nothing "
                f"was added. Send it again in a moment.",
                entry_id=detail,
            )
        if outcome == "rejected":
            reason, dead_letter = reply[3].decode().split(" ")
            return Appended(detail, batch_id, True, accepted, reason, dead_letter)
        return Appended(detail, batch_id, outcome == "duplicate", accepted)

    async def _appended(self, keys: list[str], arguments: list[Any]) -> tuple[Any, int]:
        """What the script says, and how many replicas have what it did."""
        if not self._replicas:
            return await self._append(keys=keys, args=arguments), 0
        # All on one connection, since WAIT asks for what that one has written. A repeat writes
        # nothing, so a value of no meaning is written after it, which replicas get after the entry.
        assert isinstance(self.client, redis.asyncio.Redis)  # `Settings.load` sees to that
        async with self.client.pipeline(transaction=False) as together:
            await self._append(keys=keys, args=arguments, client=together)
            together.set(self.keys.replicated, b"")
            together.execute_command("WAIT", self._replicas, REPLICATION_MS)
            # As they are: the pipeline's own error would begin with the command, ids and all.
            found = await together.execute(raise_on_error=False)
        for one in found:
            if isinstance(one, Exception):
                raise one
        reply, _, replicas = found
        return reply, int(replicas)

    async def _newest(self, key: str, last: int) -> list[Record]:
        rows = await self.read(
            lambda: self.client.xrevrange(key, count=last), READ_S + last / ROWS_PER_S
        )
        return _records(reversed(rows))

    async def read(self, operation: Callable[[], Any], seconds: float | None = None) -> Any:
        """The answer to a question, which nobody waits long for.

        Arguments:
            operation: Changes nothing that matters.
            seconds: Longest wait, where it may be asked once only.
        """
        tries = READ_TRIES if seconds is None else 1
        while True:
            tries -= 1
            try:
                async with asyncio.timeout(READ_S if seconds is None else seconds):
                    return await self.call(operation, not_told)
            except TimeoutError as error:
                self.redis_errors += 1
                if not tries:
                    raise not_told(error) from error

    async def _once(self, operation: Callable[[], Any]) -> Any:
        """The operation's result, tried once."""
        try:
            return await operation()
        except Exception as error:
            if not (is_transient(error) or is_refusal(error)):
                raise
            self.redis_errors += 1
            raise (turned_away if is_refusal(error) else not_told)(error) from error

    async def call(
        self, operation: Callable[[], Any], away: Callable[[Exception], StreamUnavailable]
    ) -> Any:
        """The operation's result, repeating it while Redis is away for a moment.

        Untyped, because redis-py types every answer as bytes, text or nothing, and
        which it is depends on the connection.

        Arguments:
            operation: Safe to repeat.
            away: Makes the error of the last failure.
        """
        deadline = time.monotonic() + RETRY_S
        pause = FIRST_PAUSE_S
        unsure = False  # whether an earlier try may have done it
        while True:
            try:
                result = await operation()
            except Exception as error:
                if not (is_transient(error) or is_refusal(error)):
                    raise
                self.redis_errors += 1
                known = refusal_of(error)
                if known is not None and known[0] == "NOPERM":
                    self.examiner.doubt_rights()
                    unsure = True  # a script may have begun
                elif known is None and weakness_of(error) is None:
                    unsure = True
                if not is_worth_repeating(error) or time.monotonic() + pause > deadline:
                    raise (away if unsure else turned_away)(error) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                _heed_cancellation()
                return result


def _check_letter(id: str, outcome: str, detail: str) -> None:
    """Raise where a dead letter could not be sent again because of what became of it."""
    if outcome == "gone":
        raise UnknownLetter.of(id)
    if outcome == "requeued":
        raise LetterConflict.requeued(id, detail)
    if outcome == "bare":
        raise LetterConflict.bare(id)
    if outcome in ("duplicate", "conflict"):
        raise LetterConflict.repeated(id, detail)


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
