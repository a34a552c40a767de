"""One Redis for all tests of the API; one taught service per module that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.settings import Settings
from tests.service.api.stack import at_rest, make_settings, redis_server, serving, teach, training


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Callable[..., Settings]:
    """Makes settings of a model of its own."""

    def make(**overrides: Any) -> Settings:
        return make_settings(redis_url, tmp_path, **overrides)

    return make


@pytest.fixture
def own(settings: Callable[..., Settings]) -> Settings:
    """Of a model whose versions are kept at once."""
    return settings(checkpoint_interval_s=0.05)


@pytest.fixture
def live(own: Settings) -> Iterator[httpx2.Client]:
    """A service of the test's own that has learned two classes."""
    with training(own), serving(own) as client:
        teach(client, batches=3)
        yield client


@pytest.fixture
def api(settings: Callable[..., Settings]) -> Iterator[httpx2.Client]:
    """A service without a trainer: what is sent stays in the stream."""
    with serving(settings()) as client:
        yield client


@pytest.fixture(scope="module")
def blank(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """The same, shared by the tests of a module that leave nothing behind."""
    with serving(make_settings(redis_url, tmp_path_factory.mktemp("blank"))) as client:
        yield client


@pytest.fixture(scope="module")
def taught(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that has learned two classes. Tests leave it as it is."""
    directory = tmp_path_factory.mktemp("taught")
    settings = make_settings(redis_url, directory, checkpoint_interval_s=0.1, experts=True)
    with training(settings), serving(settings) as client:
        teach(client)
        at_rest(client)
        yield client
