"""Tests for a service that a browser has open in many windows: they share one connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from benchmarks._ports import free_port
from service.settings import Settings
from tests.service.api.stack import serving, teach, training, wait_until
from tests.service.dashboard.test_page import url_of

MakeSettings = Callable[..., Settings]

WINDOWS: Final = 8
"""More than the connections that a browser has to one service."""

DRAWN = """uPlot.sync('time').plots
    .filter((plot) => plot.root.parentElement.id === 'chart-likelihood')
    .map((plot) => plot.data[1].filter((value) => value !== null).length)[0]"""
"""How many batches the chart shows: all but the first, for which there was no model."""

HIDDEN = """hidden => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
}"""

WITHOUT_LOCKS = "Object.defineProperty(navigator, 'locks', { value: undefined })"


@contextmanager
def windows(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 900, "height": 900})
    try:
        yield context
    finally:
        context.close()


def opened(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#link")).to_have_text("live")
    return page


def listeners(client: httpx2.Client, of: str = "") -> int:
    """Open connections to events of a model."""
    told = client.get(f"{of}/metrics").text
    found = re.search(r"^gmr_event_listeners ([0-9.]+)$", told, re.M)
    assert found is not None
    return int(float(found[1]))


def shown(pages: list[Page], batches: int) -> bool:
    return all(page.evaluate(DRAWN) == batches - 1 for page in pages)


def test_more_windows_than_a_browser_has_connections_show_every_batch_once(
    browser: Browser, settings: MakeSettings
) -> None:
    own = settings(detector="none", preset="flat")
    with training(own), serving(own) as client, windows(browser) as context:
        teach(client, 3)
        pages = [opened(context, url_of(client)) for _ in range(WINDOWS)]
        wait_until(lambda: listeners(client) == 1)
        teach(client, 2)
        wait_until(lambda: shown(pages, 5))

        # The window that has the connection is closed, then the one after it is hidden.
        pages.pop(0).close()
        teach(client, 2)
        wait_until(lambda: shown(pages, 7))
        pages[0].evaluate(HIDDEN, True)
        teach(client, 2)
        wait_until(lambda: shown(pages[1:], 9))
        assert shown(pages[:1], 7)
        pages[0].evaluate(HIDDEN, False)
        wait_until(lambda: shown(pages, 9))
        teach(client, 1)
        wait_until(lambda: shown(pages, 10))
        for page in pages:
            expect(page.locator("#link")).to_have_text("live")
        wait_until(lambda: listeners(client) == 1)


def test_all_windows_tell_of_a_break_and_go_on_after_it(
    browser: Browser, settings: MakeSettings
) -> None:
    own = settings(detector="none", preset="flat", port=free_port())
    with training(own), windows(browser) as context:
        with serving(own) as client:
            teach(client, 3)
            pages = [opened(context, url_of(client)) for _ in range(3)]
        for page in pages:
            expect(page.locator("#link")).to_have_text("reconnecting")
        with serving(own) as client:
            teach(client, 2)
            for page in pages:
                expect(page.locator("#link")).to_have_text("live")
            wait_until(lambda: shown(pages, 5))
            wait_until(lambda: listeners(client) == 1)
            teach(client, 1)
            wait_until(lambda: shown(pages, 6))


@pytest.mark.parametrize(("script", "own_model"), [("", 1), (WITHOUT_LOCKS, 2)])
def test_windows_of_other_models_and_browsers_without_locks_have_connections_of_their_own(
    browser: Browser, settings: MakeSettings, script: str, own_model: int
) -> None:
    own = settings(detector="none", preset="flat", max_models=2)
    with training(own), serving(own) as client, windows(browser) as context:
        client.put("/models/pump").raise_for_status()
        context.add_init_script(script)
        for path in ("/", "/", "/models/pump/"):
            opened(context, f"{url_of(client)}{path}")
        wait_until(lambda: listeners(client) == own_model)
        assert listeners(client, "/models/pump") == 1
