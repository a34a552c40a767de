"""The register of named models: the API's end. The trainer's is `registry`."""

from __future__ import annotations

from typing import Any

from service.broker.branch import FIRST_ID
from service.broker.caller import Caller
from service.broker.connection import perhaps_done
from service.broker.keys import Keys
from service.broker.registry import DOORBELL_LENGTH, REGISTER, TAKE_DOWN, NamedModel


class Register:
    """The named models of a service.

    Arguments:
        redis: Of the service's own model.
    """

    def __init__(self, redis: Caller) -> None:
        self._redis = redis
        self._keys = redis.keys
        self._register = redis.client.register_script(REGISTER)
        self._take_down = redis.client.register_script(TAKE_DOWN)

    async def all(self) -> dict[str, NamedModel]:
        """The named models of the service whose own model this is, by name, oldest first."""
        values = await self._redis.read(lambda: self._redis.client.hvals(self._keys.models))
        models = sorted(map(NamedModel.from_json, values), key=lambda model: model.made)
        return {model.name: model for model in models}

    async def last_sent(self, model: str) -> str:
        """Id of the last entry in the stream of a model; `0-0` where there is none.

        Arguments:
            model: Its name with that of its service, as in its settings.
        """
        key = Keys(model).input
        found = await self._redis.read(lambda: self._redis.client.xrevrange(key, count=1))
        return found[0][0].decode() if found else FIRST_ID

    async def add(self, model: NamedModel, most: int) -> NamedModel | None:
        """Register a named model.

        Arguments:
            model: As it should be.
            most: Named models that there may be.

        Returns:
            What is registered under its name; None where there are too many.
        """
        keys = [self._keys.models, self._keys.doorbell]
        values: list[Any] = [model.name, model.to_json(), most, DOORBELL_LENGTH]
        reply = await self._redis.call(
            lambda: self._register(keys=keys, args=values),
            lambda error: perhaps_done(error, "the model was made", "Ask for the same again."),
        )
        return None if reply is None else NamedModel.from_json(reply)

    async def take_down(self, model: NamedModel) -> bool:
        """Let the trainer take a named model down; False where it is another by now."""
        keys = [self._keys.models, self._keys.doorbell]
        left = model.left().to_json()
        values: list[Any] = [model.name, model.text or model.to_json(), left, DOORBELL_LENGTH]
        reply = await self._redis.call(
            lambda: self._take_down(keys=keys, args=values),
            lambda error: perhaps_done(error, "the model is taken down", "Ask for it again."),
        )
        return bool(reply)
