"""What one connection may ask of the server before a route has seen its request.

uvicorn's parser collects a header of any length, in steps that take longer the more there is, and
waits for the rest of a request for ever. Here is the edge that it leaves to a proxy in front.

Rules of this module:

1. The head of a request (its first line and headers) has at most `MAX_HEAD_BYTES`, of these at
   most `MAX_URL_BYTES` of address, and `MAX_FIELDS` headers. What is larger is not parsed. What
   stands between two parts of a body, or behind it (trailers), is bounded alike, to within a read.
2. A head comes whole within `HEAD_S` seconds, and a body at `BODY_BYTES_PER_S` or faster after
   `BODY_S` seconds of patience. A connection that is slower is closed.
3. There are at most `MAX_CONNECTIONS` connections; each one more is closed at once.
4. What is refused here is refused in plain text with the status that HTTP has for it.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_URL_BYTES: Final = 8 * 1024
MAX_FIELDS: Final = 100
HEAD_S: Final = 10.0
BODY_S: Final = 30.0
BODY_BYTES_PER_S: Final = 16 * 1024
MAX_CONNECTIONS: Final = 1000

logger = logging.getLogger(__name__)


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, with bounds on size and time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._no_body_bytes = 0  # that came since the last part of a body
        self._timer: asyncio.TimerHandle | None = None

    # Connections ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"There are {MAX_CONNECTIONS} connections already. Close some, or ask later.",
            )
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._cancel()
        super().connection_lost(exc)

    # Bytes ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has come, never more of a head than it may have."""
        while data and self.parser is not None and not self.transport.is_closing():
            part = data
            if self._in_head:
                if self._timer is None:
                    self._wait_for_head()
                part = data[: MAX_HEAD_BYTES + 1 - self._head_bytes]
                self._head_bytes += len(part)
            data = data[len(part) :]
            self._no_body_bytes += len(part)
            super().data_received(part)
            if not self._in_head and self._no_body_bytes > MAX_HEAD_BYTES:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"More than {MAX_HEAD_BYTES} bytes came that are no body. Expected chunks and "
                    f"trailers within that. Send data in the body.",
                )
                return
            if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"The head of the request has more than {MAX_HEAD_BYTES} bytes. Expected an "
                    f"address and headers within that. Send data in the body.",
                )
                return

    def send_400_response(self, msg: str) -> None:
        """Say what was too much, where that is why the parser gave up."""
        if self.transport.is_closing():
            return
        super().send_400_response(msg)

    # What the parser finds ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._body_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take the address, or a part of it."""
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                f"The address has more than {MAX_URL_BYTES} bytes. Expected one within that. "
                f"Ask for less at a time.",
            )
            raise httptools.HttpParserError("address too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        super().on_header(name, value)
        if len(self.headers) > MAX_FIELDS:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The request has more than {MAX_FIELDS} headers. Leave some out.",
            )
            raise httptools.HttpParserError("too many headers")

    def on_headers_complete(self) -> None:
        """The head has come: the body is waited for."""
        self._in_head, self._head_bytes, self._no_body_bytes = False, 0, 0
        self._cancel()
        self._timer = self.loop.call_later(BODY_S, self._check_body, BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        self._no_body_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come whole: what comes next is a head."""
        self._cancel()
        self._in_head = True
        super().on_message_complete()

    # Patience -------------------------------------------------------------------------------

    def _wait_for_head(self) -> None:
        self._cancel()
        self._timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        self._timer = None
        if self._head_bytes:
            message = f"The head of the request did not come within {HEAD_S:g} s. Send it at once."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, message)
        else:
            self.transport.close()

    def _check_body(self, seconds: float) -> None:
        """Close the connection if the body comes too slowly, and look again later if not.

        Arguments:
            seconds: Since the head had come.
        """
        self._timer = None
        # While the route has enough to read, the transport is paused, and nobody is late.
        reading = not self.flow.read_paused
        if reading and self._body_bytes < BODY_BYTES_PER_S * (seconds - BODY_S + 1):
            message = (
                f"The body comes more slowly than {BODY_BYTES_PER_S} bytes a second. "
                f"Send smaller batches, or over a faster connection."
            )
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, message)
            return
        self._timer = self.loop.call_later(BODY_S, self._check_body, seconds + BODY_S)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer in plain text, and close.

        Arguments:
            status: That says what was too much.
            message: What happened, what was expected, what to do; in ASCII.
        """
        self._cancel()
        if self.transport.is_closing():
            return
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy:
            text = message.encode("ascii")
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\n"
                f"connection: close\r\n\r\n"
            )
            self.transport.write(head.encode("ascii") + text)
        logger.debug("%d %s", status.value, message)
        self.transport.close()
