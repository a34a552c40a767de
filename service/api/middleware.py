"""What happens around every request: measuring, guarding, and the headers of safety.

Rules of this module:

1. Plain ASGI, no `BaseHTTPMiddleware`, which would cost each request a task and
   break streaming.
2. Requests are counted by route template, never by path: a label that a stranger
   can choose would grow without bound.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InvalidRequest
from service.api.errors import CrossSite, UntrustedHost
from service.api.hosts import TrustedHosts
from service.api.parts import Parts
from service.api.problems import answer, problem_of
from service.logs import REQUEST_ID as REQUEST_ID_OF_LOGS

logger = logging.getLogger("service.access")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNMATCHED = "unmatched"
REQUEST_ID = b"x-request-id"
ID_PATTERN = re.compile(rb"[A-Za-z0-9._-]{1,64}")

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")


class Measured:
    """Counts and times every request, and gives it an id that its answer and its log bear.

    Arguments:
        app: What is measured.
        access_log: Whether a log record is written for every request.
    """

    def __init__(self, app: ASGIApp, access_log: bool = False) -> None:
        self.app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        REQUEST_ID_OF_LOGS.set(request_id)
        status = 500  # what the server answers when nothing else was begun
        endless = False
        start = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status, endless
            if message["type"] == "http.response.start":
                status = message["status"]
                endless = any(
                    name == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
                headers = [*message["headers"], (REQUEST_ID, request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            seconds = None if endless else time.perf_counter() - start
            parts: Parts = scope["app"].state.parts
            parts.metrics.answered(route, method, status, seconds)
            if self._access_log:
                _log(scope, status, time.perf_counter() - start)


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Write down that a request was answered. Its query may hold what is nobody's business."""
    caller = scope["state"].get("caller")
    client = scope.get("client")
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "ms": round(1000 * seconds, 3),
        "by": None if caller is None else caller.name,
        "client": None if client is None else client[0],
    }
    # As a literal: a path may hold any character, and a line is one record.
    path = fields["path"].encode("unicode_escape").decode("ascii")
    logger.info(
        "%s %s %d in %.1f ms by %s",
        fields["method"],
        path,
        status,
        fields["ms"],
        fields["by"] or "nobody",
        extra={"fields": fields},
    )


def _request_id(scope: Scope) -> str:
    """The id that whoever asks has given, where it is one, so that its own log has it, too."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID and ID_PATTERN.fullmatch(value):
            return str(value, "ascii")
    return secrets.token_hex(8)


class Guarded:
    """Adds the headers of safety, and refuses what a browser sends for another site.

    A page of another site can make a browser send a POST here; browsers say so in
    `Sec-Fetch-Site`, to some addresses only, and in `Origin`. By a name of its own that leads to
    this machine it can read answers, too; that name stands in `Host`.
    """

    def __init__(self, app: ASGIApp, hosts: TrustedHosts) -> None:
        self.app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def guard(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                headers += SECURITY_HEADERS
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append(NO_STORE)
                message["headers"] = headers
            await send(message)

        error = self._refusal(scope)
        if error is not None:
            refusal = answer(problem_of(error), Request(scope), str(error))
            return await refusal(scope, receive, guard)
        return await self.app(scope, receive, guard)

    def _refusal(self, scope: Scope) -> InvalidRequest | None:
        """Why the request is not taken; None if it is. Programs say nothing of a site."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._hosts.serves(host):
            return UntrustedHost.of(host)
        if scope["method"] not in CHANGING:
            return None
        elsewhere = headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin")
        origin = headers.get(b"origin")
        if elsewhere or (origin is not None and not self._hosts.trusts(origin, host)):
            return CrossSite.refused()
        return None
