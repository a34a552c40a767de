"""Sends calls and waits for what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, cast

import httpx2

from clients.http.address import address, headers_of
from clients.http.calls import Call
from clients.http.errors import ClientError, ServiceError
from clients.http.exchange import CONNECT_S, asked_of, id_of, reply_of, unreachable
from clients.http.feature_order import FeatureOrder
from clients.http.retry import RetryPolicy
from clients.http.subscription import Feed
from clients.http.trust import trusted
from clients.http.waiting import Steps
from clients.rounding import Rounding

T = TypeVar("T")


class Blocking:
    """Connections to a service, for threads.

    Arguments:
        url, model, timeout, retry, api_key, headers, transport: As `GMRClient` takes them.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.url = address(url, model)
        self._retry = RetryPolicy() if retry is None else retry
        self._rounding = Rounding()
        self._order = FeatureOrder()
        self._http = httpx2.Client(
            base_url=self.url,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_S),
            headers=headers_of(headers, api_key),
            transport=transport,
            verify=trusted(),
        )

    def close(self) -> None:
        """Close the connections."""
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

    def _newest_event(self, kinds: Sequence[str] | None) -> str:
        # A feed begins with the id that it starts after.
        return next(self._heard(Feed(self._retry, None, kinds), id_of))

    def _heard(self, feed: Feed, read: Callable[[httpx2.ServerSentEvent], T | None]) -> Iterator[T]:
        """What is read from the records of a feed, which is opened again wherever it breaks."""
        while True:
            try:
                with self._http.stream("GET", "/events", **asked_of(feed)) as response:
                    if response.status_code >= 400:
                        response.read()
                    feed.opened(reply_of(response))
                    for record in httpx2.EventSource(response):
                        if (found := read(record)) is not None:
                            yield found
                failure: ClientError | None = None
            except httpx2.TransportError as error:
                failure = unreachable(error, self.url)
            except ServiceError as error:
                failure = error
            time.sleep(feed.interrupted(failure, time.monotonic()))

    def _drive(self, steps: Steps[T]) -> T:
        resume = partial(next, steps)
        while True:
            try:
                step = resume()
            except StopIteration as stop:
                return cast(T, stop.value)
            if not isinstance(step, Call):
                time.sleep(step)
                resume = partial(next, steps)
                continue
            try:
                resume = partial(steps.send, self.send(step))
            except ClientError as error:
                resume = partial(steps.throw, error)

    def send(self, call: Call[T]) -> T:
        """Send a call made by `clients.http.calls`, for programs that prepare calls ahead."""
        if not call.patient:
            return self._once(call)
        return self._retry.run(self._once, call, repeatable=call.repeatable)

    def _once(self, call: Call[T]) -> T:
        try:
            response = self._http.request(
                call.method,
                call.path,
                params=call.query or None,
                headers=call.headers,
                content=call.body,
            )
        except httpx2.TransportError as error:
            raise unreachable(error, self.url) from error
        return call.answer(reply_of(response))
