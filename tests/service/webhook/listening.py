"""A receiver of webhooks for tests: a real HTTP server that answers as it is told."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@dataclass
class Listening:
    """What it was sent, and how it answers.

    Arguments:
        url: Where it listens.
        script: Status and header of the next answers; after them all is well.
        received: Headers (names in lower case) and body of every request, in order.
    """

    url: str = ""
    script: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def answering(self, *statuses: int, **headers: str) -> None:
        """Answer so for once each."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script += [(status, named) for status in statuses]

    @property
    def ids(self) -> list[str]:
        """`webhook-id` of every request."""
        return [headers["webhook-id"] for headers, _ in self.received]

    @property
    def events(self) -> list[Any]:
        """Every request's body."""
        return [json.loads(body) for _, body in self.received]


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[Listening]:
    """A receiver at work."""
    found = Listening()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.received.append(
                ({name.lower(): value for name, value in self.headers.items()}, body)
            )
            status, headers = found.script.pop(0) if found.script else (204, {})
            self.send_response(status)
            for name, value in {**headers, "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """What a receiver does, written out from the text of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode()
    digest = hmac.new(key, content + b"." + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    given = headers["webhook-signature"].split(" ")
    return any(hmac.compare_digest(one, expected) for one in given)
