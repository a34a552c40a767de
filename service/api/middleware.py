"""What happens around every request: measuring, guarding, and the headers of safety.

Rules of this module:

1. Plain ASGI, no `BaseHTTPMiddleware`, which would cost each request a task and
   break streaming.
2. Requests are counted by route template, never by path: a label that a stranger
   can choose would grow without bound.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import CrossSite
from service.api.parts import Parts
from service.api.problems import answer, problem_of

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNMATCHED = "unmatched"

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")


class Measured:
    """Counts and times every request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
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
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            seconds = None if endless else time.perf_counter() - start
            parts: Parts = scope["app"].state.parts
            parts.metrics.answered(route, method, status, seconds)


class Guarded:
    """Adds the headers of safety, and refuses what a browser sends for another site.

    The service trusts whoever can reach it. A page of another site can make the
    browser of such a person send a POST here; browsers say so in `Sec-Fetch-Site`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

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

        if scope["method"] in CHANGING and _site(scope) not in (b"none", b"same-origin"):
            error = CrossSite.refused()
            refusal = answer(problem_of(error), Request(scope), str(error))
            return await refusal(scope, receive, guard)
        return await self.app(scope, receive, guard)


def _site(scope: Scope) -> bytes:
    """What the browser says about who asks; programs say nothing, which counts as none."""
    for name, value in scope["headers"]:
        if name == b"sec-fetch-site":
            return bytes(value)
    return b"none"
