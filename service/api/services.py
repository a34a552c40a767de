"""The services that an API process answers for: one, or all buckets of a cluster.

A model's name says which bucket has it (`service.cluster.buckets`), so that nothing is asked for
that: how many buckets there are is asked once, because that never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

from fastapi import Request

from service.api.errors import Unavailable, UnknownModel
from service.api.followed import FollowedModels
from service.api.key_ring import Caller
from service.api.models import Models
from service.api.parts import Parts, parts_of
from service.broker.keys import Keys
from service.broker.many_reports import ModelReport, reports_of
from service.broker.registry import NAME, NamedModel
from service.broker.stream import Stream
from service.cluster.buckets import bucket_of, settings_of
from service.settings import Settings


class Services:
    """Where the named models are.

    Arguments:
        own: The parts of the process, which are those of a service's own model.
        followed: The named models that this process answers for.
        cluster: Settings of the cluster; None where there is one service only.
    """

    def __init__(
        self, own: Parts, followed: FollowedModels, cluster: Settings | None = None
    ) -> None:
        self._own_parts = own
        self._own = Models(own.settings, own.stream, followed, own)
        self._followed = followed
        self._cluster = cluster
        self._buckets: dict[int, Models] = {0: self._own}
        self._n_buckets: int | None = None

    @property
    def are_buckets(self) -> bool:
        """Whether they are those of a cluster."""
        return self._cluster is not None

    async def of(self, name: str) -> Models:
        """The service of a model, whether there is such a model or not.

        Raises:
            StreamUnavailable: Redis does not tell how many buckets there are.
            Unavailable: The cluster has not been begun.
        """
        if self._cluster is None or name == self._own.settings.model:
            return self._own
        return self._of(self._cluster, bucket_of(name, await self._how_many(self._cluster)))

    async def all(self) -> list[Models]:
        """All of them.

        Raises:
            StreamUnavailable, Unavailable: As for `of`.
        """
        if self._cluster is None:
            return [self._own]
        cluster = self._cluster
        return [self._of(cluster, bucket) for bucket in range(await self._how_many(cluster))]

    async def listed(self) -> list[tuple[dict[str, NamedModel], dict[str, dict[str, Any]]]]:
        """The named models of each service by name, and what its trainer says of them.

        Raises:
            StreamUnavailable, Unavailable: As for `of`.
        """
        services = await self.all()
        registers = asyncio.gather(*(one.named() for one in services))
        states = asyncio.gather(*(one.states() for one in services))
        return list(zip(await registers, await states, strict=True))

    async def reports(self, names: Collection[str]) -> dict[str, ModelReport]:
        """What is reported of named models, by name: some questions for a hundred of them.

        Raises:
            StreamUnavailable, Unavailable: As for `of`.
        """
        keys = {name: (await self.of(name)).stream.keys.named(name) for name in names}
        return await reports_of(self._own.stream, keys)

    async def parts(self, name: str, caller: Caller) -> Parts:
        """What routes work with for a model.

        Arguments:
            name: Of the model.
            caller: Who asks for it.

        Raises:
            UnknownModel: There is none of this name.
            ModelLeaving: It is being taken down.
            StreamUnavailable, Unavailable: As for `of`.
        """
        models = await self.of(name)
        try:
            return await models.parts(name)
        except UnknownModel:
            pass
        raise await self.unknown(name, caller)

    async def take_down(self, name: str, caller: Caller) -> None:
        """Let a model be taken down, with all that is kept of it; arguments as of `parts`.

        Raises:
            UnknownModel: There is none of this name.
            StreamUnavailable, Unavailable: As for `of`.
        """
        models = await self.of(name)
        try:
            return await models.take_down(name)
        except UnknownModel:
            pass
        raise await self.unknown(name, caller)

    async def unknown(self, name: str, caller: Caller) -> UnknownModel:
        """The error for a name that no model has; similar names may be in other buckets.

        Whoever asks is told of models that the key counts for, and of no others.
        """
        if not caller.roles:
            return UnknownModel.of(name)
        registers = await asyncio.gather(*(one.named() for one in await self.all()))
        every = [there for register in registers for there in register]
        known = [there for there in every if caller.counts_for([there])]
        settings = self._own.settings
        own = None if self.are_buckets else settings.model
        return UnknownModel.among(
            name,
            known,
            on_demand=settings.models_on_demand and NAME.fullmatch(name) is not None,
            own=own,
            some=caller.models is not None,
        )

    async def close(self) -> None:
        """Follow no model any longer."""
        await self._followed.close()

    def drain(self) -> None:
        """Say on /health/ready that no new requests should come, and end the endless answers."""
        self._own_parts.drain()
        self._followed.drain()

    def _of(self, cluster: Settings, bucket: int) -> Models:
        if bucket not in self._buckets:
            settings = settings_of(cluster, bucket)
            stream = Stream.beside(self._own.stream, settings)
            self._buckets[bucket] = Models(settings, stream, self._followed)
        return self._buckets[bucket]

    async def _how_many(self, cluster: Settings) -> int:
        if self._n_buckets is None:
            stream, key = self._own.stream, Keys(cluster.model).cluster
            number: Any = await stream.read(lambda: stream.client.get(key))
            if number is None:
                raise Unavailable(
                    f"There is no cluster {cluster.model!r} in this Redis. Expected one that was "
                    f"begun by `gmr cluster up`. Begin it, or name it by GMR_MODEL."
                )
            self._n_buckets = int(number)
        return self._n_buckets


def services_of(request: Request) -> Services | None:
    """Where the named models are; None where the path of `request` names one of them."""
    state = request.app.state
    return cast(Services, state.services) if parts_of(request) is state.parts else None
