"""What the trainer of a model reports, read: the API's end of `report_queue`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import orjson

from service.broker.branch import Branch
from service.broker.caller import READ_S, ROWS_PER_S, Caller
from service.broker.connection import SOCKET_TIMEOUT_S, read_stream
from service.broker.records import Notice, Record


class Reports:
    """Reports of one model.

    Arguments:
        redis: To ask.
    """

    def __init__(self, redis: Caller) -> None:
        self._read = redis.read
        self._client = redis.client
        self._keys = redis.keys

    async def status(self) -> dict[str, Any] | None:
        """What the trainer last said of itself; None when none was ever there."""
        text = await self._read(lambda: self._client.get(self._keys.status))
        status: dict[str, Any] | None = None if text is None else orjson.loads(text)
        return status

    async def versions(self) -> list[dict[str, Any]]:
        """The kept versions, newest first."""
        text = await self._read(lambda: self._client.get(self._keys.versions))
        versions: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return versions

    async def proposals(self) -> list[dict[str, Any]]:
        """The open proposals of new classes, oldest first."""
        text = await self._read(lambda: self._client.get(self._keys.proposals))
        proposals: list[dict[str, Any]] = [] if text is None else orjson.loads(text)
        return proposals

    async def model_states(self) -> dict[str, dict[str, Any]]:
        """How the trainer has those that are not unloaded, by name."""
        text = await self._read(lambda: self._client.get(self._keys.model_states))
        states: dict[str, dict[str, Any]] = {} if text is None else orjson.loads(text)
        return states

    async def trainer_metrics(self) -> bytes | None:
        """The trainer's metrics, in Prometheus' text format."""
        text: bytes | None = await self._read(lambda: self._client.get(self._keys.trainer_metrics))
        return text

    async def history(self, last: int) -> list[Record]:
        """The newest events of batches, oldest first."""
        return await self._newest(self._keys.history, last)

    async def history_pages(
        self, since: str = "-", page: int = 1000
    ) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Events of batches from a record id (or Unix milliseconds) on, as ids and JSON, by pages.

        Arguments:
            since: Where to begin.
            page: Events at a time.
        """
        while True:
            read = partial(self._client.xrange, self._keys.history, min=since, count=page)
            rows = await self._read(read)
            if rows:
                yield [(id.decode(), fields[b"data"]) for id, fields in rows]
            if len(rows) < page:
                return
            since = f"({rows[-1][0].decode()}"

    async def boundaries(self, since: str = "-") -> list[Record]:
        """Boundaries from a record id (or Unix milliseconds) on, oldest first."""
        rows = await self._read(lambda: self._client.xrange(self._keys.boundaries, min=since))
        return _records(rows)

    async def boundary(self, id: str) -> Record | None:
        """One boundary with its whole explanation; the heavy part only while it is kept."""
        found = await self._read(lambda: self._client.xrange(self._keys.boundaries, id, id))
        if not found:
            return None
        (record,) = _records(found)
        heavy = _records(
            await self._read(lambda: self._client.xrange(self._keys.explanations, id, id))
        )
        parts = {name: part for one in heavy for name, part in one.data.items()}
        explanation = {**(record.data.get("explanation") or {}), **parts}
        return Record(record.id, {**record.data, "explanation": explanation})

    async def quarantine(self, last: int) -> list[Record]:
        """The newest outliers of bursts, oldest first."""
        return await self._newest(self._keys.quarantine, last)

    async def newest_boundaries(self, last: int) -> list[Record]:
        """The newest boundaries, oldest first."""
        return await self._newest(self._keys.boundaries, last)

    async def branch(self) -> Branch:
        """Which entries are no part of the model any more."""
        text = await self._read(lambda: self._client.get(self._keys.branch))
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
        rows = await self._after(self._keys.events, after, block_ms, count)
        return [record for _, batch in rows for record in _records(batch)]

    async def last_event_id(self) -> str:
        """Id of the newest event, or `0-0`."""
        rows = await self._read(lambda: self._client.xrevrange(self._keys.events, count=1))
        return str(rows[0][0].decode()) if rows else "0-0"

    async def last_notice(self) -> Notice | None:
        """The latest published snapshot's notice; None when there is none yet."""
        rows = await self._read(lambda: self._client.xrevrange(self._keys.published, count=1))
        return _notice(*rows[0]) if rows else None

    async def next_notice(self, after: str, *, block_ms: int) -> Notice | None:
        """The latest notice after one, waiting for it; None when none came in time."""
        rows = await self._after(self._keys.published, after, block_ms)
        return _notice(*rows[0][1][-1]) if rows else None

    async def _after(self, key: str, after: str, block_ms: int, count: int | None = None) -> Any:
        """What comes to a stream after an id, as `xread` answers."""
        return await self._read(
            lambda: read_stream(self._client, key, after, block_ms, count),
            READ_S + block_ms / 1000,
        )

    async def snapshot(self) -> bytes | None:
        """The latest snapshot, where snapshots travel through Redis."""
        data: bytes | None = await self._read(
            lambda: self._client.get(self._keys.snapshot), SOCKET_TIMEOUT_S
        )
        return data

    async def _newest(self, key: str, last: int) -> list[Record]:
        rows = await self._read(
            lambda: self._client.xrevrange(key, count=last), READ_S + last / ROWS_PER_S
        )
        return _records(reversed(rows))


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
