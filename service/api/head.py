"""HEAD: what GET answers, without the body.

Rules of this module:

1. Routes know of GET only; this middleware asks them, and keeps status and headers.
2. An answer without end has no headers worth asking for: an `EndlessRoute` refuses HEAD.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.query import StrictRoute

ASKED_AS_HEAD: Final = "gmr.head"
"""Key of a scope whose request came as HEAD."""


class HeadAsGet:
    """Lets the routes answer a HEAD as a GET, and drops the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self.app(scope, receive, send)
        asked = {**scope, "method": "GET", ASKED_AS_HEAD: True}

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self.app(asked, receive, without_body)
        finally:
            if "route" in asked:  # which requests are counted by
                scope["route"] = asked["route"]


class EndlessRoute(StrictRoute):
    """A route whose answer has no end."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a strict route, for GET alone."""
        handler = super().get_route_handler()

        async def for_get(request: Request) -> Response:
            if is_head(request):
                raise HTTPException(405)
            return await handler(request)

        return for_get


def is_head(request: Request) -> bool:
    """Whether a request came as HEAD."""
    return request.method == "HEAD" or ASKED_AS_HEAD in request.scope


def answers_head(request: Request) -> bool:
    """Whether the path of a request that has GET has HEAD, too."""
    return not isinstance(request.scope.get("route"), EndlessRoute)
