"""Tests for the dashboards of named models, and the choice between them, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
from playwright.sync_api import Browser, expect

from service.settings import Settings
from tests.service.api.stack import serving, teach, training
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_story import check_accessible
from tests.service.running import LONGEST_S


def test_every_model_has_a_page_and_one_is_chosen_on_any(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    own = settings()
    with training(own), serving(own) as client:
        url = str(client.base_url).rstrip("/")
        with visiting(browser, f"{url}/") as visit:
            page = visit.page
            expect(page.locator("#models")).to_be_hidden()  # while there is nothing to choose
        for name in ("pump-7", "pump-8"):
            client.put(f"/models/{name}").raise_for_status()
        with httpx2.Client(base_url=f"{url}/models/pump-7", timeout=LONGEST_S) as pump:
            teach(pump, batches=3)
            pump.post("/drift/boundary").raise_for_status()
        with visiting(browser, f"{url}/") as visit:
            page = visit.page
            choice = page.get_by_label("Model", exact=True)
            expect(choice.locator("option")).to_have_count(3)
            expect(page.locator("#boundaries li")).to_have_count(0)
            choice.select_option("pump-7")
            page.wait_for_url("**/models/pump-7/")
            expect(page.locator("header .model")).to_contain_text("/pump-7")
            expect(page.locator("#link")).to_have_text("live")
            expect(page.locator("#boundaries li")).to_have_count(1)
            expect(page.get_by_label("Model", exact=True)).to_have_value("pump-7")
            check_accessible(page)
            page.get_by_label("Model", exact=True).select_option("pump-8")
            page.wait_for_url("**/models/pump-8/")
            page.get_by_label("Model", exact=True).select_option("")
            page.wait_for_url(f"{url}/")
