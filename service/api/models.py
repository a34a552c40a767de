"""The named models, as one API process knows them: which there are, and those it answers for.

Rules of this module:

1. The register is Redis'. It is read again where it is older than a second, or where a name is
   not in it; while Redis is away it goes on counting.
2. A model's snapshot is followed from the first question on, and let go when too many are.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from core.errors import InvalidRequest, InvalidSettings
from service.api.errors import ModelConflict, ModelLeaving, TooManyModels, UnknownModel
from service.api.feed import EventFeed
from service.api.metrics import ApiMetrics
from service.api.micro_batches import MicroBatches
from service.api.parts import Parts
from service.broker.connection import StreamUnavailable
from service.broker.register import Register
from service.broker.registry import NAME, NamedModel
from service.broker.snapshots import SnapshotFollower
from service.broker.stream import Stream
from service.settings import Settings

State = Literal["loaded", "unloaded", "failing", "leaving"]

FRESH_S: Final = 1.0
FIRST_SNAPSHOT_S: Final = 2.0
"""Longest wait for the snapshot of a model that is asked for the first time."""


@dataclass(eq=False)
class Loaded:
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


class Models:
    """The named models of one API process.

    Arguments:
        default: The parts of the default model.
        device: Where snapshots live.
    """

    def __init__(self, default: Parts, device: str) -> None:
        self._default = default
        self._device = device
        self._register: dict[str, NamedModel] | None = None
        self._read_at = -math.inf
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._loading: dict[str, asyncio.Lock] = {}

    @property
    def _settings(self) -> Settings:
        return self._default.settings

    async def register(self, name: str | None = None) -> dict[str, NamedModel]:
        """All named models, by name.

        Arguments:
            name: That should be among them, or the register is read anew.

        Raises:
            StreamUnavailable: Redis does not tell, and never has.
        """
        now = time.monotonic()
        fresh = self._register is not None and now - self._read_at < FRESH_S
        if self._register is not None and fresh and (name is None or name in self._register):
            return self._register
        try:
            self._register, self._read_at = await Register(self._default.stream).all(), now
        except StreamUnavailable:
            if self._register is None:
                raise
        return self._register

    async def find(self, name: str) -> NamedModel:
        """A model that is there.

        Raises:
            UnknownModel: There is none of this name.
            ModelLeaving: It is being taken down.
        """
        register = await self.register(name)
        if name not in register:
            raise UnknownModel.among(
                name, list(register), on_demand=self._settings.models_on_demand
            )
        if register[name].leaving:
            raise ModelLeaving.of(name)
        return register[name]

    async def make(self, name: str, given: Mapping[str, Any], made_by: str) -> NamedModel:
        """Register a model, unless it is there with the same settings.

        Arguments:
            name: Of the model.
            given: Its own settings.
            made_by: Name of the key of whoever asks.

        Raises:
            InvalidRequest: A setting or the name will not do.
            ModelConflict: There is one of this name, with other settings.
            ModelLeaving: It is being taken down.
            TooManyModels: There are as many as there may be.
        """
        if not NAME.fullmatch(name) or name == self._settings.model:
            raise InvalidRequest(
                f"{name[:80]!r} is no name for a model. Expected 1 to 64 letters, digits, dots, "
                f"underscores and hyphens, the first a letter or digit, and not that of the "
                f"service's own model. Choose another."
            )
        try:
            settings = self._settings.for_model(name, given)
        except InvalidSettings as error:
            raise InvalidRequest(str(error)) from error
        own = settings.own_of_model(given)
        wanted = NamedModel.made_now(name, own, made_by)
        found = await Register(self._default.stream).add(wanted, self._settings.max_models)
        if found is None:
            raise TooManyModels.beyond(self._settings.max_models)
        self._read_at = -math.inf
        if found.leaving:
            raise ModelLeaving.of(name)
        if dict(found.settings) != own:
            raise ModelConflict.of(name, found.settings)
        return found

    async def take_down(self, name: str) -> None:
        """Let a model be taken down, with all that is kept of it.

        Raises:
            UnknownModel: There is none of this name.
        """
        self._read_at = -math.inf
        register = await self.register()
        if name not in register:
            raise UnknownModel.among(name, list(register), on_demand=False)
        if not register[name].leaving:
            await Register(self._default.stream).take_down(register[name])
        self._read_at = -math.inf
        await self._let_go(name)

    async def parts(self, name: str) -> Parts:
        """What routes work with for a model.

        Raises:
            UnknownModel: There is none of this name.
            ModelLeaving: It is being taken down.
        """
        if name == self._settings.model:
            return self._default
        model = await self.find(name)
        lock = self._loading.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                loaded = self._loaded.get(name)
                if loaded is not None and loaded.model != model:  # taken down, and made again
                    await self._let_go(name)
                    loaded = None
                if loaded is None:
                    loaded = await self._load(model)
                    self._loaded[name] = loaded
                    self._count()
                self._loaded.move_to_end(name)
        finally:
            if not lock.locked():
                self._loading.pop(name, None)
        while len(self._loaded) > self._settings.api_models:
            await self._let_go(next(iter(self._loaded)))
        return loaded.parts

    async def close(self) -> None:
        """Follow none any longer."""
        while self._loaded:
            await self._let_go(next(iter(self._loaded)))

    def drain(self) -> None:
        """End endless answers."""
        for loaded in self._loaded.values():
            loaded.parts.drain()

    async def _load(self, model: NamedModel) -> Loaded:
        settings = self._settings.for_model(model.name, model.settings)
        default = self._default
        stream = Stream(
            default.stream.client,
            settings.model,
            max_backlog=settings.max_backlog,
            dedupe_ttl_s=settings.dedupe_ttl_s,
            dedupe_mib=settings.dedupe_mib,
            n_features=settings.n_features,
            examiner=default.stream.examiner,
            replicas=settings.redis_replicas,
        )
        parts = Parts(
            settings=settings,
            stream=stream,
            follower=SnapshotFollower(
                stream, settings.data_dir, self._device, default.workers.learns
            ),
            feed=EventFeed(stream),
            workers=default.workers,
            micro_batches=MicroBatches(default.workers, settings.micro_batch_rows),
            metrics=ApiMetrics(lambda: stream.redis_errors),
            keys=default.keys,
            bodies=default.bodies,
            rates=default.rates,
            default=default,
        )
        endless = (parts.follower.run(), parts.feed.run(), parts.count_on())
        tasks = [asyncio.create_task(one) for one in endless]
        await parts.first_model(FIRST_SNAPSHOT_S)
        return Loaded(model, parts, tasks)

    def _count(self) -> None:
        self._default.metrics.models_held.set(len(self._loaded))

    async def _let_go(self, name: str) -> None:
        loaded = self._loaded.pop(name, None)
        self._count()
        if loaded is not None:
            await loaded.close()


def state_of(model: NamedModel, states: Mapping[str, Mapping[str, Any]]) -> State:
    """How the trainer has a model.

    Arguments:
        model: As registered.
        states: What the trainer says of those that are not unloaded.
    """
    told: State = states.get(model.name, {}).get("state", "unloaded")
    return "leaving" if model.leaving else told
