"""The named models of one service, as an API process knows them.

The register is Redis'. It is asked for again where that was done more than a second ago, or where a
name is not in it; while Redis is away, or slow to answer, what was read last stays valid.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from core.errors import InvalidRequest, InvalidSettings
from service.api.errors import ModelConflict, ModelLeaving, TooManyModels, UnknownModel
from service.api.followed import FollowedModels
from service.api.parts import Parts
from service.broker.connection import StreamUnavailable
from service.broker.register import Register
from service.broker.registry import NAME, NamedModel
from service.broker.stream import Stream
from service.settings import Settings
from service.settings.settings import KIND_OF_MODEL

State = Literal["loaded", "unloaded", "failing", "leaving"]

FRESH_S: Final = 1.0

PATIENCE_S: Final = 0.25
"""For Redis to answer, where what is known will do: models are asked without it."""


class Models:
    """The named models of one service.

    Arguments:
        settings: Of the service.
        stream: Of the service's own model.
        followed: The named models that this process answers for.
        own: The parts of the service's own model; None where this process does not answer for it.
    """

    def __init__(
        self, settings: Settings, stream: Stream, followed: FollowedModels, own: Parts | None = None
    ) -> None:
        self.settings = settings
        self.stream = stream
        self._followed = followed
        self._own = own
        self._register: dict[str, NamedModel] | None = None
        self._asked_at = -math.inf

    async def named(self, name: str | None = None) -> dict[str, NamedModel]:
        """All named models, by name.

        Arguments:
            name: The one that is asked for, of which what is known will do; None: all of them.

        Raises:
            StreamUnavailable: Redis does not tell, and has not told of that name.
        """
        known, now = self._register, time.monotonic()
        fresh = now - self._asked_at < FRESH_S
        if known is None or (name not in known if name is not None else not fresh):
            self._register, self._asked_at = await Register(self.stream).all(), now
            return self._register
        if not fresh:
            self._asked_at = now
            with suppress(StreamUnavailable, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    self._register = known = await Register(self.stream).all()
        return known

    async def states(self) -> dict[str, dict[str, Any]]:
        """What the trainer says of those that are not unloaded, by name.

        Raises:
            StreamUnavailable: Redis does not tell.
        """
        return await self.stream.reports.model_states()

    async def find(self, name: str) -> NamedModel:
        """A model that is there.

        Raises:
            UnknownModel: There is none of this name.
            ModelLeaving: It is being taken down.
        """
        named = await self.named(name)
        if name not in named:
            raise UnknownModel.of(name)
        if named[name].leaving:
            raise ModelLeaving.of(name)
        return named[name]

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
        if not NAME.fullmatch(name) or name == self.settings.model:
            raise InvalidRequest(
                f"{name[:80]!r} is no name for a model. Expected 1 to 64 letters, digits, dots, "
                f"underscores and hyphens, the first a letter or digit, and not that of the "
                f"service's own model, which needs no making: leave /models/{{name}} out of its "
                f"paths. Choose another."
            )
        try:
            settings = self.settings.for_model(name, given)
        except InvalidSettings as error:
            raise InvalidRequest(str(error)) from error
        own = settings.own_of_model(given)
        register = Register(self.stream)
        after = await register.last_sent(settings.model)  # before it is there to be sent to
        wanted = NamedModel.made_now(name, own, made_by, after)
        found = await register.add(wanted, self.settings.max_models)
        if found is None:
            raise TooManyModels.beyond(self.settings.max_models)
        self._asked_at = -math.inf
        if found.leaving:
            raise ModelLeaving.of(name)
        if not _agree(found.settings, own, given):
            raise ModelConflict.of(name, found.settings)
        return found

    async def take_down(self, name: str) -> None:
        """Let a model be taken down, with all that is kept of it.

        Raises:
            UnknownModel: There is none of this name.
        """
        self._asked_at = -math.inf
        named = await self.named()
        if name not in named:
            raise UnknownModel.of(name)
        if not named[name].leaving:
            await Register(self.stream).take_down(named[name])
        self._asked_at = -math.inf
        await self._followed.let_go(self.settings.name_of(name))

    async def parts(self, name: str) -> Parts:
        """What routes work with for a model.

        Raises:
            UnknownModel: There is none of this name.
            ModelLeaving: It is being taken down.
        """
        if self._own is not None and name == self.settings.model:
            return self._own
        return await self._followed.parts(await self.find(name), self.settings, self.stream)


def _agree(there: Mapping[str, Any], own: Mapping[str, Any], given: Collection[str]) -> bool:
    """Whether a model that is there has the settings that were asked for.

    What decides on the kind of model was registered, given or not, as the service's own model was
    then: where it is not given now, it is as it was.

    Arguments:
        there: What is registered.
        own: What would be.
        given: Names of what was given.
    """
    registered = {name: there[name] for name in there if name in given or name not in KIND_OF_MODEL}
    return registered == {name: own[name] for name in given}


def state_of(model: NamedModel, states: Mapping[str, Mapping[str, Any]]) -> State:
    """How the trainer has a model.

    Arguments:
        model: As registered.
        states: What the trainer says of those that are not unloaded.
    """
    state: State = states.get(model.name, {}).get("state", "unloaded")
    return "leaving" if model.leaving else state
