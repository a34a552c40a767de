"""A real browser for the tests of the dashboard: Chromium from the system's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 20_000
"""Longest wait for what the page should show; a busy machine is slow."""


@contextmanager
def browser_at_hand() -> Iterator[Browser]:
    """A browser, or a skip with the reason; where CI is set a missing browser is a failure."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        reason = "no Chromium on the PATH (Debian, as root: make system)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.addresses: set[str] = set()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("request", lambda request: self.addresses.add(request.url))

    def _heard(self, message: object) -> None:
        text = f"{message.text} ({message.location.get('url')})"  # type: ignore[attr-defined]
        # An answer that says what is missing is no fault of the page; the browser notes it all the
        # same. That nothing has been learned yet, or that no trainer reports, is such an answer.
        if message.type in ("error", "warning") and "status of" not in text:  # type: ignore[attr-defined]
            self.complaints.append(text)


@contextmanager
def visiting(
    browser: Browser, url: str, *, width: int = 1280, dark: bool = False
) -> Iterator[Visit]:
    """A page of its own, without a past. Nothing may go wrong on it, or come from elsewhere."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        base_url=url,
    )
    visit = Visit(context.new_page())
    try:
        visit.page.goto("/")
        yield visit
    finally:
        context.close()
    assert visit.complaints == []
    assert all(address.startswith((url, "data:", "blob:")) for address in visit.addresses)
