"""The audit trail: what administrators did, in a bounded stream beside the model's.

An action is written down before it is carried out, and its outcome after it. An action without an
outcome is one whose process died meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from service.broker.caller import READ_S, ROWS_PER_S
from service.broker.connection import StreamUnavailable
from service.broker.stream import Stream

LENGTH: Final = 10_000
"""Actions that are kept, with their outcomes."""


class AuditTrail:
    """The API's end of it.

    Arguments:
        stream: Of the service's own model; named models have no trail of their own.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._key = stream.keys.audit

    async def begin(self, action: Mapping[str, Any]) -> str:
        """Write an action down; its id.

        Raises:
            StreamUnavailable: It could not be written down, and so must not be carried out.
        """
        return await self._write({"time": time.time(), **action})

    async def end(self, id: str, outcome: Mapping[str, Any]) -> None:
        """Write down what became of an action.

        Raises:
            StreamUnavailable: It could not be written down.
        """
        await self._write({"of": id, **outcome})

    async def newest(self, last: int) -> list[dict[str, Any]]:
        """The newest actions with their outcomes, oldest first."""
        rows: Any = await self._stream.read(
            lambda: self._stream.client.xrevrange(self._key, count=2 * last),
            READ_S + 2 * last / ROWS_PER_S,
        )
        outcomes: dict[str, dict[str, Any]] = {}
        found: list[dict[str, Any]] = []
        for id, fields in rows:
            record = orjson.loads(fields[b"data"])
            if "of" in record:
                outcomes[record.pop("of")] = record
            elif len(found) < last:
                found.append({"id": id.decode(), **record, **outcomes.get(id.decode(), {})})
        return found[::-1]

    async def _write(self, record: Mapping[str, Any]) -> str:
        data = orjson.dumps(record)
        # The outcome is a record, too.
        id: Any = await self._stream.call(
            lambda: self._stream.client.xadd(
                self._key, {"data": data}, maxlen=2 * LENGTH, approximate=False
            ),
            lambda error: StreamUnavailable(
                f"Redis does not answer ({type(error).__name__}), so that this cannot be written "
                f"into the audit trail; nothing was done. Ask again in a moment."
            ),
        )
        return str(id.decode())
