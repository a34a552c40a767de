"""Puts entries into the input stream of a model.

Every append carries an id and is refused as a duplicate when it comes twice, so it may be repeated
after a failure whose outcome is unknown. It is one script: `service.broker.append`. What a batch
means is not known here; `service.wire` knows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.errors import ShapeMismatch, UnknownVersion
from service.broker.append import APPEND, MOST_KEPT, MOST_LINES
from service.broker.caller import Caller
from service.broker.confirmed import confirmed_async
from service.broker.connection import (
    AsyncClient,
    StreamUnavailable,
    not_known,
    perhaps_done,
    too_few_replicas,
)
from service.broker.disk import DiskRoom
from service.broker.durability import Examiner
from service.broker.records import Appended
from service.broker.remembered_ids import RememberedIds
from service.broker.stream_errors import (
    BacklogFull,
    BatchConflict,
    LetterConflict,
    RestorePending,
    UnknownLetter,
)
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

REPLICATION_MS: Final = 2000
"""Longest wait for replicas to confirm an entry."""

CONTROLS_BEYOND: Final = 16
"""Entries by which controls may exceed the backlog of batches."""

MADE_UP_ID_S: Final = 600
"""Seconds for which an id that was made here is remembered: nobody else knows it, but whoever was
answered that a batch may have been accepted, and repeats it."""


class Appender(Caller):
    """The API's connection to one model, by which to put entries into its stream.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model; of a named one SERVICE/NAME.
        max_backlog: Entries waiting beyond which a batch is refused.
        dedupe_ttl_s: Seconds for which a batch id is remembered, at most.
        dedupe_mib: MiB of Redis that these may take, those of this model.
        n_features: D, where a setting fixes it.
        examiner: Looks at each connection of the client.
        replicas: That must have an entry before it is acknowledged.
        room: Looks at the disk of an embedded Redis; None where it is another's.
    """

    def __init__(
        self,
        client: AsyncClient,
        model: str,
        *,
        max_backlog: int,
        dedupe_ttl_s: int,
        dedupe_mib: int,
        n_features: int | None = None,
        examiner: Examiner | None = None,
        replicas: int = 0,
        room: DiskRoom | None = None,
    ) -> None:
        super().__init__(client, model, examiner)
        self._max_backlog = max_backlog
        self._dedupe_ttl_s = dedupe_ttl_s
        self._n_features = n_features
        self._replicas = replicas
        self._room = room
        self._append = client.register_script(APPEND)
        self.ids = RememberedIds(self, dedupe_mib << 20)

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
            self.keys.ids,
            self.keys.kept_versions,
        ]
        arguments: list[Any] = [
            identity(fields),
            samples,
            "" if d is None else d,
            "" if most is None else most,
            min(self._dedupe_ttl_s, MADE_UP_ID_S) if own else self._dedupe_ttl_s,
            MOST_LINES,
            "1" if restores else "",
            letter,
            0 if upload is None else upload.pieces,
            fields.get("crc", b"0"),
            fields.get(REQUEUED_FROM, b""),
            "" if own else batch_id,
            self.ids.budget,
            _version_named(fields),
            MOST_KEPT,
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
        if outcome == "pinned":
            raise BacklogFull(
                f"{MOST_KEPT} versions are kept, which is the limit, because rollbacks to them "
                f"wait; nothing was added. Ask again once these are done.",
                kept=MOST_KEPT,
            )
        if outcome == "unkept":
            raise UnknownVersion.among(int(detail), map(int, reply[3][::2]))
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
        if outcome == "added" and reply[3] == b"crowded":
            await self.ids.forget_oldest()
        return Appended(detail, batch_id, outcome == "duplicate", accepted)

    async def _appended(self, keys: list[str], arguments: list[Any]) -> tuple[Any, int]:
        """What the script says, and how many replicas have what it did."""
        if not self._replicas:
            return await self._append(keys=keys, args=arguments), 0
        return await confirmed_async(
            self.client,
            self._append,
            keys,
            arguments,
            self._replicas,
            REPLICATION_MS,
            self.keys.replicated,
        )


def _version_named(fields: Mapping[str, bytes | memoryview]) -> str:
    """The version that an entry goes back to; empty where it is no rollback that can be read."""
    version = bytes(fields.get("version", b""))
    readable = fields.get("kind") == b"rollback" and 0 < len(version) < 19 and version.isdigit()
    return str(int(version)) if readable else ""


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
