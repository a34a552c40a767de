"""A server that answers what a test tells it to, over a real socket.

For what a healthy service never does: refuse, break off, answer nonsense.
"""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    line: str
    headers: dict[str, str]
    body: bytes


class ScriptedServer:
    """Answers the k-th connection with the k-th of `script`, then closes it.

    Arguments:
        script: Whole HTTP answers, or their beginnings; b"" closes at once. The last is
            repeated.
    """

    def __init__(self, *script: bytes) -> None:
        self.requests: list[Request] = []
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # shutdown wakes the accept that close alone would leave waiting.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                self.requests.append(_read(connection))
                answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                connection.sendall(answer)


def answer(
    status: int, document: object = None, media_type: str = "application/json", **headers: str
) -> bytes:
    """A whole HTTP answer."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = {
        "content-type": media_type,
        "content-length": str(len(body)),
        "connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


def problem(status: int, kind: str = "some-kind", **numbers: object) -> bytes:
    """A problem document."""
    document = {
        **numbers,
        "type": f"/problems/{kind}",
        "title": "A kind of problem",
        "status": status,
        "detail": "What happened.",
        "instance": "/here",
    }
    return answer(status, document, "application/problem+json")


def events(*records: str) -> bytes:
    """The beginning of an endless answer with server-sent events, broken off."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n"
    return (head + "".join(records)).encode()


def _read(connection: socket.socket) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rows = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Request(line, headers, body)
