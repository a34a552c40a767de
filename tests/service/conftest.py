"""A real Redis for the tests of the service; each test has a model of its own in it.

GMR_REDIS_BINARY runs them on another server than the one that is found by itself.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import SecretStr

from service.broker.connection import connect
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import DirectoryLock, Lease
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from tests.service.forked import end_forks
from tests.service.running import connected

MakeSettings = Callable[..., Settings]

# As the trainer's default: two threads on busy cores can be ten times slower than one.
torch.set_num_threads(1)


BINARY = find_binary(Settings().redis_binary)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _no_forks_are_left() -> Iterator[None]:
    yield
    end_forks()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    directory = tmp_path_factory.mktemp("redis")
    with DirectoryLock(directory, "test") as lock:
        server = EmbeddedRedis(directory, BINARY, 256, lock)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A server that a test may kill, fill or stop. Not started yet."""
    with DirectoryLock(tmp_path / "own", "test") as lock:
        server = EmbeddedRedis(tmp_path / "own", BINARY, 64, lock)
        yield server
        server.stop()


@pytest.fixture
def settings(redis_server: EmbeddedRedis, tmp_path: Path) -> Iterator[MakeSettings]:
    """Makes settings of a small, quick model with a name of its own, without experts beside it."""
    model = uuid.uuid4().hex
    made: dict[Any, Settings] = {}  # they do not change, and tests ask for the same ones often

    def make(**overrides: Any) -> Settings:
        key = (
            *overrides.items(),
            *(one for one in os.environ.items() if one[0].startswith("GMR_")),
        )
        try:
            return made[key]
        except KeyError:
            return made.setdefault(key, anew(**overrides))
        except TypeError:  # a value that cannot be a key
            return anew(**overrides)

    def anew(**overrides: Any) -> Settings:
        values: dict[str, Any] = {
            "redis_url": SecretStr(redis_server.url),
            "data_dir": tmp_path / "data",
            "model": model,
            "device": "cpu",
            "n_components": 4,
            "warm_up": 100,
            "experts": False,  # more than half of what a labelled batch costs
            "publish_interval_s": 0.02,
            "checkpoint_interval_s": 1.0,
            "settle_after_s": 3600,  # nothing of a test's own is to happen by the clock
        }
        if isinstance(overrides.get("redis_url"), str):
            overrides["redis_url"] = SecretStr(overrides["redis_url"])
        return Settings(**{**values, **overrides})

    with connected(redis_server.url):
        yield make


@pytest.fixture
def feed(redis_server: EmbeddedRedis) -> Iterator[Feed]:
    """The trainer's end of a model of its own, with the lease taken."""
    model = uuid.uuid4().hex
    with connect(redis_server.url) as client:
        lease = Lease(client, Keys(model))
        lease.acquire()
        yield Feed(client, model, lease, events_length=100, history_length=100)
