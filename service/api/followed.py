"""The named models that one API process answers for: of one service, or of many.

A cache: a model's snapshot is followed from the first question on; when more than `api_models` are,
the one that was asked longest ago is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from core.errors import InvalidSettings
from service.api.errors import Unavailable
from service.api.feed import EventFeed
from service.api.metrics import ApiMetrics
from service.api.micro_batches import MicroBatches
from service.api.parts import Parts
from service.broker.connection import StreamUnavailable
from service.broker.registry import NamedModel
from service.broker.snapshots import SnapshotFollower
from service.broker.stream import Stream
from service.settings import Settings

FIRST_SNAPSHOT_S: Final = 2.0
"""Longest wait for the snapshot of a model that is asked for the first time."""


@dataclass(eq=False)
class Followed:
    """A named model that this process answers for.

    Arguments:
        model: What was registered of it when it was loaded.
        parts: What routes work with.
        tasks: That follow it.
    """

    model: NamedModel
    parts: Parts
    tasks: list[asyncio.Task[None]]

    async def close(self) -> None:
        """Follow it no longer."""
        self.parts.drain()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        with contextlib.suppress(StreamUnavailable, TimeoutError):
            await self.parts.count()


class FollowedModels:
    """The named models of one API process that it has a snapshot of.

    Arguments:
        process: The parts of the process, of which all models share what does not concern one.
        device: Where snapshots live.
    """

    def __init__(self, process: Parts, device: str) -> None:
        self._process = process
        self._device = device
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._loading: dict[str, asyncio.Lock] = {}
        self._asking: Counter[str] = Counter()  # requests that hold such a lock, or wait for it

    async def parts(self, model: NamedModel, service: Settings, stream: Stream) -> Parts:
        """What routes work with for a model, which is followed from now on.

        Arguments:
            model: As registered.
            service: Settings of the service that has it.
            stream: Of that service's own model.

        Raises:
            Unavailable: A later release made it.
        """
        key = service.name_of(model.name)
        lock = self._loading.setdefault(key, asyncio.Lock())
        self._asking[key] += 1
        try:
            async with lock:
                found = self._followed.get(key)
                if found is not None and found.model != model:  # taken down, and made again
                    await self.let_go(key)
                    found = None
                if found is None:
                    # Settings take longer to make than most requests do.
                    settings = _settings_of(model, service)
                    found = await self._follow(model, settings, stream)
                    self._followed[key] = found
                    self._count()
                self._followed.move_to_end(key)
        finally:
            self._asking[key] -= 1
            if not self._asking[key]:
                del self._asking[key], self._loading[key]
        while len(self._followed) > self._process.settings.api_models:
            await self.let_go(next(iter(self._followed)))
        return found.parts

    async def let_go(self, key: str) -> None:
        """Follow a model no longer, if it is followed.

        Arguments:
            key: Name of the model with that of its service, as in its settings.
        """
        found = self._followed.pop(key, None)
        self._count()
        if found is not None:
            await found.close()

    async def close(self) -> None:
        """Follow none any longer."""
        while self._followed:
            await self.let_go(next(iter(self._followed)))

    def drain(self) -> None:
        """End endless answers."""
        for found in self._followed.values():
            found.parts.drain()

    async def _follow(self, model: NamedModel, settings: Settings, of_service: Stream) -> Followed:
        process, stream = self._process, Stream.beside(of_service, settings)
        parts = Parts(
            settings=settings,
            stream=stream,
            follower=SnapshotFollower(
                stream, settings.data_dir, self._device, process.workers.learns
            ),
            feed=EventFeed(stream),
            workers=process.workers,
            micro_batches=MicroBatches(process.workers, settings.micro_batch_rows),
            metrics=ApiMetrics(lambda: stream.redis_errors),
            keys=process.keys,
            bodies=process.bodies,
            rates=process.rates,
            of_service=of_service,
        )
        endless = (parts.follower.run(), parts.feed.run(), parts.count_on())
        tasks = [asyncio.create_task(one) for one in endless]
        await parts.first_model(FIRST_SNAPSHOT_S)
        return Followed(model, parts, tasks)

    def _count(self) -> None:
        self._process.metrics.models_held.set(len(self._followed))


def _settings_of(model: NamedModel, service: Settings) -> Settings:
    """Settings of a model that is registered.

    Raises:
        Unavailable: This release cannot work with them.
    """
    try:
        return model.settings_in(service)
    except InvalidSettings as error:
        raise Unavailable(str(error)) from error
