"""Events as they happen, for any number of listeners.

One blocking read per process waits for new events and wakes the listeners; each of
them then reads on from the last event that it has sent. A slow listener so delays
no other, and none holds a connection to Redis while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from service.broker.connection import StreamUnavailable
from service.broker.records import Record
from service.broker.stream import Stream

WAIT_MS: Final = 2_000
PAUSE_S: Final = 1.0
CHUNK: Final = 100

logger = logging.getLogger(__name__)


class EventFeed:
    """Wakes listeners when the event stream grows.

    Arguments:
        stream: Where the events are.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._news = asyncio.Event()
        self._stopped = False

    async def run(self) -> None:
        """Watch the event stream until cancelled."""
        last: str | None = None
        told = False  # a process has a feed for each of its models
        while True:
            try:
                if last is None:
                    last = await self._stream.reports.last_event_id()
                records = await self._stream.reports.events(last, block_ms=WAIT_MS)
            except StreamUnavailable as error:
                if not told:
                    logger.warning("events are held up: %s", error)
                told = True
                await asyncio.sleep(PAUSE_S)
                continue
            told = False
            if records:
                last = records[-1].id
                self._wake()

    def stop(self) -> None:
        """Let every listener come to its end."""
        self._stopped = True
        self._wake()

    async def follow(self, after: str, patience_s: float) -> AsyncIterator[list[Record]]:
        """Events after the record `after`, in order, some at a time.

        Arguments:
            after: Id of the last event that the listener knows.
            patience_s: An empty list comes when nothing happened for so long.
        """
        while not self._stopped:
            # Taken before reading: what arrives in between is then not slept through.
            news = self._news
            records = await self._stream.reports.events(after, count=CHUNK, block_ms=1)
            if records:
                after = records[-1].id
                yield records
                continue
            try:
                await asyncio.wait_for(news.wait(), patience_s)
            except TimeoutError:
                yield []

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
