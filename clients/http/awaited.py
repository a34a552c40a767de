"""Sends calls, awaiting what comes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
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


class Awaited:
    """Connections to a service, for asyncio.

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
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = address(url, model)
        self._retry = RetryPolicy() if retry is None else retry
        self._rounding = Rounding()
        self._order = FeatureOrder()
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_S),
            headers=headers_of(headers, api_key),
            transport=transport,
            verify=trusted(),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _newest_event(self, kinds: Sequence[str] | None) -> str:
        async with aclosing(self._heard(Feed(self._retry, None, kinds), id_of)) as ids:
            return await anext(ids)

    async def _heard(
        self, feed: Feed, read: Callable[[httpx2.ServerSentEvent], T | None]
    ) -> AsyncGenerator[T]:
        """See `Blocking._heard`."""
        while True:
            try:
                async with self._http.stream("GET", "/events", **asked_of(feed)) as response:
                    if response.status_code >= 400:
                        await response.aread()
                    feed.opened(reply_of(response))
                    async for record in httpx2.EventSource(response):
                        if (found := read(record)) is not None:
                            yield found
                failure: ClientError | None = None
            except httpx2.TransportError as error:
                failure = unreachable(error, self.url)
            except ServiceError as error:
                failure = error
            await asyncio.sleep(feed.interrupted(failure, time.monotonic()))

    async def _drive(self, steps: Steps[T]) -> T:
        resume = partial(next, steps)
        while True:
            try:
                step = resume()
            except StopIteration as stop:
                return cast(T, stop.value)
            if not isinstance(step, Call):
                await asyncio.sleep(step)
                resume = partial(next, steps)
                continue
            try:
                resume = partial(steps.send, await self.send(step))
            except ClientError as error:
                resume = partial(steps.throw, error)

    async def send(self, call: Call[T]) -> T:
        """See `GMRClient.send`."""
        if not call.patient:
            return await self._once(call)
        return await self._retry.run_async(self._once, call, repeatable=call.repeatable)

    async def _once(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(
                call.method,
                call.path,
                params=call.query or None,
                headers=call.headers,
                content=call.body,
            )
        except httpx2.TransportError as error:
            raise unreachable(error, self.url) from error
        return call.answer(reply_of(response))
