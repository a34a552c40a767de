"""What the routes need for one model: made by `app.py` for the own model of a service, and by
`followed.py` for the named ones."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final, cast

from fastapi import Request

from core.counted import counted
from core.errors import ModelNotReady
from core.snapshot import Snapshot
from service.api.body_budget import BodyBudget
from service.api.errors import Unavailable
from service.api.feed import EventFeed
from service.api.key_rates import KeyRates
from service.api.key_ring import KeyRing
from service.api.metrics import ApiMetrics
from service.api.micro_batches import MicroBatches
from service.api.work import Workers
from service.broker.connection import StreamUnavailable
from service.broker.snapshots import SnapshotFollower
from service.broker.stream import Stream
from service.settings import Settings

COUNT_S: Final = 1.0
"""Seconds between two writes of what was refused; a process that is killed loses that of one."""


@dataclass
class Parts:
    """The parts by which one API process answers for one model.

    All but `draining`, `started` and `uploading` are set once.

    Arguments:
        of_service: The stream of the own model of the service that has the model; its status says
            whether a trainer is there.
    """

    settings: Settings
    stream: Stream
    follower: SnapshotFollower
    feed: EventFeed
    workers: Workers
    micro_batches: MicroBatches
    metrics: ApiMetrics
    keys: KeyRing
    bodies: BodyBudget
    rates: KeyRates
    of_service: Stream
    draining: bool = False
    started: bool = False  # Redis has answered, and the model that there was is loaded
    uploading: int = 0  # checkpoints that come
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def entries_applied(self) -> int:
        """Entries of the stream that the served model contains."""
        served = self.follower.current
        return 0 if served is None else served.entries_applied

    @property
    def model_version(self) -> int:
        """Version of the served model; 0 while nothing was learned."""
        served = self.follower.current
        return 0 if served is None or served.snapshot is None else served.snapshot.version

    def holds(self, entry_id: str) -> bool:
        """Whether the served model contains an entry of the stream."""
        served = self.follower.current
        return served is not None and position(served.last_entry_id) >= position(entry_id)

    async def count(self) -> None:
        """Join what this process counted with what all others did.

        Raises:
            StreamUnavailable, TimeoutError: Redis does not answer.
        """
        async with self.counting:
            try:
                counts = await self.stream.count(self.metrics.send_rejected())
            except BaseException:
                self.metrics.not_counted()
                raise
            self.metrics.counted(counts.samples_ingested, counts.batches_ingested, counts.rejected)

    async def first_model(self, patience_s: float) -> None:
        """Wait a while for the model that was published last, if any.

        Without it the first requests would be told that nothing was learned, and everything
        ever accepted would look like backlog.
        """
        with contextlib.suppress(StreamUnavailable, TimeoutError):
            async with asyncio.timeout(patience_s):
                if (
                    await self.stream.reports.last_notice() is not None
                    and self.follower.current is None
                ):
                    await self.follower.changed()

    async def count_on(self) -> None:
        """Join the counts every second in which something was refused, until cancelled."""
        while True:
            await asyncio.sleep(COUNT_S)
            if self.metrics.has_news:
                with contextlib.suppress(StreamUnavailable, TimeoutError):
                    await self.count()

    def drain(self) -> None:
        """Say on /health/ready that no new requests should come, and end the endless answers."""
        self.draining = True
        self.feed.stop()


def parts_of(request: Request) -> Parts:
    """The parts that answer `request`: those of the model that its path names."""
    named = getattr(request.state, "parts", None)
    return cast(Parts, named or request.app.state.parts)


async def snapshot_of(parts: Parts) -> Snapshot:
    """The model to answer with. Take it once per request: it may be swapped meanwhile.

    Raises:
        ModelNotReady: Nothing was learned yet.
        Unavailable: What was learned cannot be read.
    """
    snapshot = parts.follower.ask()
    if snapshot is None:
        if parts.follower.current is None and parts.follower.unread is not None:
            raise Unavailable(f"{parts.follower.unread} Start API and trainer of the same release.")
        if awaiting := await _awaiting(parts):
            raise ModelNotReady(
                f"Nothing has been learned yet, so there is no model to ask: "
                f"{counted(awaiting, 'sample')} with ids came and "
                f"{'waits for its label' if awaiting == 1 else 'wait for their labels'}. Send "
                f"labels to POST /labels, or samples without ids or with labels to POST /ingest, "
                f"and wait until GET /model says backlog 0. Without a label a sample is learned "
                f"when its wait is over (GMR_LABEL_WAIT_S)."
            )
        raise ModelNotReady(
            "Nothing has been learned yet, so there is no model to ask. Expected samples first. "
            "Send some to POST /ingest and wait until GET /model says backlog 0."
        )
    return snapshot


async def _awaiting(parts: Parts) -> int:
    """Samples that wait for their label, as the trainer reported last; 0 where that is not known.

    It is asked for an error's text only, so that nobody is kept waiting for it.
    """
    with contextlib.suppress(StreamUnavailable, TimeoutError):
        async with asyncio.timeout(COUNT_S):
            status = await parts.stream.reports.status()
            return 0 if status is None else int(status.get("awaiting", 0))
    return 0


def position(record_id: str) -> tuple[int, int]:
    """An id of a Redis stream as numbers, which compare as its entries are ordered.

    Example:
        >>> position("1700000000000-9") < position("1700000000000-10")
        True
    """
    milliseconds, _, sequence = record_id.partition("-")
    return int(milliseconds), int(sequence or 0)
