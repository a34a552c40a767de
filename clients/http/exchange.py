"""A request and its response, as httpx2 has them, in our terms."""

from __future__ import annotations

from typing import Any

import httpx2

from clients.http.errors import ServiceUnreachable
from clients.http.faults import broken_off, not_connected
from clients.http.replies import Reply
from clients.http.subscription import Feed

CONNECT_S = 5.0

# The service sends a comment well within this time when there is no event.
_FEED_SILENCE_S = 60.0


def asked_of(feed: Feed) -> dict[str, Any]:
    """How events are asked for: from where, which, and how long nothing may come."""
    return {"params": feed.query, "headers": feed.headers(), "timeout": _feed_timeout()}


def id_of(record: httpx2.ServerSentEvent) -> str | None:
    """The id of an event, if it has one."""
    return record.id or None


def reply_of(response: httpx2.Response) -> Reply:
    """What `calls` read of a response."""
    # The body of a feed is read piece by piece, later.
    body = response.content if response.is_stream_consumed else b""
    return Reply(response.status_code, response.headers, body)


def unreachable(error: httpx2.TransportError, url: str) -> ServiceUnreachable:
    """Our error for one of the network."""
    reason = str(error) or type(error).__name__
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        return not_connected(error, url)
    if isinstance(error, httpx2.TimeoutException):
        return ServiceUnreachable(
            f"The service at {url} did not answer in time ({reason}). Ask for less at once, or "
            f"allow more time."
        )
    return broken_off(error, url)


def _feed_timeout() -> httpx2.Timeout:
    return httpx2.Timeout(_FEED_SILENCE_S, connect=CONNECT_S)
