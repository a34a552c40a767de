"""Where the settings say that the checkpoints of a model are."""

from __future__ import annotations

from typing import Final

from service.broker.connection import identity_of
from service.settings import MIB, Settings
from service.store.objects import Objects
from service.store.objects_in_redis import MOST_BYTES, ObjectsInRedis, client_of

OWN: Final = "_own"
"""Folder of a service's own model, beside those of its named ones."""


def objects_of(settings: Settings) -> Objects | ObjectsInRedis:
    """The objects of a model, of settings whose checkpoints are in a store.

    Raises:
        InvalidSettings: The library is not installed, or the address will not do.
    """
    if settings.checkpoints_in_redis:
        address = settings.redis_address_of_ones_own()
        return ObjectsInRedis(client_of(address, identity_of(settings)), settings.model)
    # A named model is called SERVICE/NAME, and no name begins with an underscore.
    folder = settings.model if "/" in settings.model else f"{settings.model}/{OWN}"
    return Objects(settings.checkpoints, folder)


def most_bytes_of(settings: Settings) -> int:
    """What the checkpoints of a model may come to."""
    given = settings.checkpoints_mib * MIB
    return min(given, MOST_BYTES) if settings.checkpoints_in_redis else given
