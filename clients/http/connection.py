"""One keep-alive connection, for whoever sends thousands of calls in a row.

`GMRClient` is for everyone; this does the same with a third of the processor time
per request (measured: 0.12 ms against 0.38 ms), which counts where client, service
and training share a machine. The calls, what their replies mean and when they are
sent again are those of `calls` and `retry.py`; only the sending is different: the
standard library's HTTP client on one socket. Not safe to share between threads.
"""

from __future__ import annotations

import http.client
import select
import urllib.request
from types import TracebackType
from typing import Protocol, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from clients.http.address import address, bearer, user_agent
from clients.http.calls import Call
from clients.http.client import GMRClient
from clients.http.faults import broken_off, not_connected
from clients.http.replies import Reply
from clients.http.retry import RetryPolicy

T = TypeVar("T")


class Sender(Protocol):
    """Sends calls, one after the other."""

    def send(self, call: Call[T]) -> T:
        """The answer to a call; tries again as its retry policy says."""

    def close(self) -> None:
        """Close the connection."""


class Connection:
    """A connection to a running service, opened by the first call.

    Arguments:
        url: Where the service listens; by default `GMR_URL`, or http://127.0.0.1:8000.
        timeout: Seconds that one answer may take.
        retry: How patient to be.
        api_key: Says who asks, where the service wants to know; by default `GMR_API_KEY`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        api_key: str | None = None,
    ) -> None:
        self.url = address(url)
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._http = kind(parts.netloc, timeout=timeout)
        self._path = parts.path
        self._retry = RetryPolicy() if retry is None else retry
        self._headers = {
            "user-agent": user_agent(),
            "accept-encoding": "identity",
            **bearer(api_key),
        }

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
        """The answer to a call.

        Raises:
            ServiceError, ServiceUnreachable, UnexpectedAnswer: As `GMRClient` does.
        """
        if not call.patient:
            return self._once(call)
        return self._retry.run(self._once, call, repeatable=call.repeatable)

    def _once(self, call: Call[T]) -> T:
        self._connect()
        path = self._path + call.path + (f"?{urlencode(call.query)}" if call.query else "")
        try:
            self._http.request(call.method, path, call.body, {**self._headers, **call.headers})
            response = self._http.getresponse()
            body = response.read()
        except BaseException as error:
            # Whatever broke it off, an interrupt too: the next answer on this socket would be
            # taken for that of the next call.
            self._http.close()
            if not isinstance(error, (OSError, http.client.HTTPException)):
                raise
            raise broken_off(error, self.url) from error
        headers = {name.lower(): value for name, value in response.getheaders()}
        return call.answer(Reply(response.status, headers, body))

    def _connect(self) -> None:
        """Have an open connection; one that the service closed while idle is replaced."""
        if self._http.sock is not None:
            # Nothing is owed to us now: what can be read is the end of the connection.
            if not select.select([self._http.sock], [], [], 0)[0]:
                return
            self._http.close()
        try:
            self._http.connect()
        except OSError as error:
            raise not_connected(error, self.url) from error


def open_sender(url: str | None, retry: RetryPolicy) -> Sender:
    """The quickest sender that reaches the service: through a proxy only `GMRClient` does."""
    parts = urlsplit(address(url))
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(
        parts.hostname or ""
    ):
        return GMRClient(url, retry=retry)
    return Connection(url, retry=retry)
