"""Who changed what: a record in the audit trail around every request of an administrator.

Rules of this module:

1. A request that cannot be written down is not carried out.
2. What is written of a body is its first kilobyte, where it is JSON; no route takes a secret there.
   One that is nested deeper than any route wants is left out: what cannot be written again could
   not be told. Of an answer it is only the id of an entry or of a key.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import GMRError
from service.api.access import is_audited
from service.api.negotiation import JSON
from service.api.of_model import path_within
from service.api.parts import Parts
from service.api.problems import answer, problem_of
from service.broker.audit_trail import AuditTrail

MOST_OF_BODY: Final = 1024
MOST_OF_ANSWER: Final = 64 * 1024
DEEPEST: Final = 16
"""Levels of a body that is kept."""

logger = logging.getLogger("service.audit")


class Audited:
    """Writes down what administrators ask for, and what became of it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_audited(scope["method"], path_within(scope)):
            return await self.app(scope, receive, send)
        parts: Parts = scope["app"].state.parts
        trail, request = AuditTrail(parts.stream), Request(scope)
        state = scope["state"]
        action = {
            "by": state["caller"].name,
            "method": scope["method"],
            "path": request.url.path,
            "request_id": state["request_id"],
        }
        logger.info("%(method)s %(path)s by %(by)s, request %(request_id)s", action)
        try:
            id = await trail.begin(action)
        except GMRError as error:
            refusal = answer(problem_of(error), request, str(error), error.context)
            return await refusal(scope, receive, send)

        form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        seen = Seen(form == JSON)

        async def received() -> Message:
            return seen.received(await receive())

        async def sent(message: Message) -> None:
            if seen.is_last(seen.sent(message)):
                await self._end(trail, id, seen)  # before whoever asked can look for it
            await send(message)

        try:
            await self.app(scope, received, sent)
        finally:
            await self._end(trail, id, seen)

    async def _end(self, trail: AuditTrail, id: str, seen: Seen) -> None:
        if seen.written:
            return
        seen.written = True
        try:
            await trail.end(id, seen.outcome())
        except GMRError as error:
            logger.error("the outcome of %s was not written down: %s", id, error)


class Seen:
    """What passes of one request that is worth keeping.

    Arguments:
        json: Whether its body is JSON.
    """

    def __init__(self, json: bool) -> None:
        self.written = False  # whether the outcome is in the trail
        self._json = json
        self._asked = b""
        self._answered = b""
        self._status = 500  # what the server answers when nothing else was begun

    def received(self, message: Message) -> Message:
        """Keep the beginning of the body."""
        if self._json and message["type"] == "http.request":
            room = MOST_OF_BODY + 1 - len(self._asked)
            self._asked += message.get("body", b"")[: max(0, room)]
        return message

    def sent(self, message: Message) -> Message:
        """Keep status and answer, where that is short."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body" and len(self._answered) < MOST_OF_ANSWER:
            self._answered += message.get("body", b"")[:MOST_OF_ANSWER]
        return message

    def is_last(self, message: Message) -> bool:
        """Whether the answer is whole by a message."""
        return message["type"] == "http.response.body" and not message.get("more_body", False)

    def outcome(self) -> dict[str, Any]:
        """What is written down."""
        answered, asked = _document(self._answered), None
        names = answered if isinstance(answered, dict) else {}
        if len(self._asked) <= MOST_OF_BODY:
            asked = _document(self._asked)
        return {
            "status": self._status,
            "asked": asked if _is_flat(asked) else None,
            "entry_id": _text(names.get("entry_id")),
            "made": _text(names.get("id")),
        }


def _document(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_flat(document: object) -> bool:
    """Whether a document has at most `DEEPEST` levels."""
    level = [document]
    for _ in range(DEEPEST):
        parts = (
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        )
        level = [*chain.from_iterable(parts)]
    return not any(isinstance(one, dict | list) for one in level)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
