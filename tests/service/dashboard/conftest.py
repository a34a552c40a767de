"""One browser for each module of tests of the dashboard, and one Redis for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from service.settings import Settings
from tests.service.api.stack import make_settings, redis_server
from tests.service.dashboard.browser import browser_at_hand


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Open for one module: as long as it is, an event loop runs in the thread of all tests."""
    with browser_at_hand() as found:
        yield found


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
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where pictures of the page are kept: as `--pictures` says, else in a temporary folder."""
    return Path(request.config.getoption("--pictures") or tmp_path)
