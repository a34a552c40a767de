"""Lets a model begin anew.

A service that runs is given a model that has learned nothing, as any other checkpoint: an entry of
its stream, so that it can be rolled back. One that is stopped forgets all that was kept of a model.

Rules of this module:

1. Checkpoints go before streams: a reset that was cut off leaves a gap, which a start refuses, and
   the reset can be asked for again.
2. What belongs to the service stays: its other models, keys, the audit trail.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import RedisClusterException

from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.errors import InvalidSettings
from service.archive.parts import ARCHIVE
from service.broker.connection import SyncClient, connect, identity_of, unavailable
from service.broker.keys import Keys
from service.broker.lease import DirectoryLock, Lease
from service.broker.registry import keys_of, read_register
from service.settings import Settings
from service.store.choice import objects_of
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.upkeep.reach import redis_files


def fresh(checkpoint: bytes) -> bytes:
    """The checkpoint of a model with the same settings that has learned nothing.

    Raises:
        InvalidCheckpoint: The one given cannot be read.
    """
    _, config, _ = load(checkpoint)
    return dump(Engine(config).start(), config, {})


def forget_model(settings: Settings, name: str | None) -> int:
    """Delete all that is kept of a model of a stopped service; how many keys of Redis that were.

    Arguments:
        settings: Of the service, with its data dir.
        name: Of a named model, which stays registered with its settings; None: the service's own.

    Raises:
        InvalidSettings: The service runs, its Redis cannot be reached, or there is no such model.
    """
    if not settings.data_dir.is_dir():
        raise InvalidSettings(
            f"{settings.data_dir} is not there. Name the data dir of the service by --data-dir."
        )
    own = Keys(settings.model)
    with (
        DirectoryLock(settings.data_dir, "service", patience_s=0) as lock,
        _redis(settings, lock) as client,
    ):
        try:
            if client is None:
                if name is not None:
                    raise InvalidSettings(
                        f"{settings.data_dir} has no stream, and so no named models. Nothing was "
                        f"reset."
                    )
                return _forget(settings, None, own, own)
            register = read_register(client, own)
            if name is not None and name not in register:
                raise InvalidSettings(
                    f"There is no model {name!r}. Named models are "
                    f"{', '.join(sorted(register)) or 'none'}. Nothing was reset."
                )
            lease = Lease(client, own)
            lease.acquire(patience_s=1.0)
            try:
                return _forget(settings, client, own, own if name is None else own.named(name))
            finally:
                lease.release()
        except (redis.RedisError, RedisClusterException, OSError) as error:
            raise InvalidSettings(
                f"{unavailable(error)} Ask for the reset again then: it may be half done."
            ) from error


def _forget(settings: Settings, client: SyncClient | None, own: Keys, keys: Keys) -> int:
    folder = settings.data_dir
    if keys != own:
        folder = folder / "models" / keys.model.removeprefix(f"{own.model}/")
    for kept in ("checkpoints", "snapshots", ARCHIVE):
        if (folder / kept).is_dir():
            shutil.rmtree(folder / kept)
    if settings.checkpoints_in_store:
        named = None if keys == own else keys.model.removeprefix(f"{own.model}/")
        objects_of(settings if named is None else settings.for_model(named, {})).clear()
    if client is None:
        return 0
    stays = {own.models, own.model_states, own.doorbell, own.api_keys, own.audit, own.lease}
    stays |= {own.fence, own.epoch}
    gone = [key for key in keys_of(client, keys) if key.decode() not in stays]
    for key in gone:
        client.unlink(key)
    return len(gone)


@contextmanager
def _redis(settings: Settings, lock: DirectoryLock) -> Iterator[SyncClient | None]:
    address = settings.redis_address()
    if address is not None:
        with connect(address, identity=identity_of(settings)) as client:
            yield client
        return
    if not list(redis_files(settings.data_dir)):
        yield None
        return
    binary = find_binary(settings.redis_binary)
    server = EmbeddedRedis(settings.data_dir, binary, settings.redis_maxmemory_mib, lock)
    server.start()
    try:
        with connect(server.url) as client:
            yield client
    finally:
        server.stop()
