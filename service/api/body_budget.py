"""One budget of memory for the bodies of all requests that one process is reading or answering.

A body is counted as it comes, not as it is announced: else a few requests that announce much and
send nothing would keep everybody out. What finds no room is refused, and its memory let go of.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.errors import TooManyBodies

HELD: Final = "body_bytes"
"""Key of a request's state: bytes of its body that are in memory."""


class BodyBudget:
    """What bodies hold, and may hold, in bytes.

    Arguments:
        limit: For all of them together.

    Example:
        >>> budget = BodyBudget(10)
        >>> budget.take(8)
        >>> budget.give(8)
        >>> budget.held
        0
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, n: int) -> None:
        """Count n bytes more.

        Raises:
            TooManyBodies: There is no room for them; nothing was counted.
        """
        if self.held + n > self.limit:
            raise TooManyBodies.beyond(self.limit, self.held)
        self.held += n

    def give(self, n: int) -> None:
        """Count n bytes less."""
        self.held -= n

    def hold(self, request: Request, n: int) -> None:
        """Count n bytes of a request's body, for as long as `Budgeted` answers it.

        Raises:
            TooManyBodies: There is no room for them.
        """
        self.take(n)
        state = request.scope.setdefault("state", {})
        state[HELD] = state.get(HELD, 0) + n


class Budgeted:
    """Gives back what the body of a request held, once it is answered or given up."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        finally:
            if scope["type"] == "http" and (held := scope.get("state", {}).pop(HELD, 0)):
                scope["app"].state.parts.bodies.give(held)
