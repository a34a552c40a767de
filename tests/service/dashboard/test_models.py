"""Tests for the dashboards of named models, and the choice between them, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
from playwright.sync_api import Browser, expect

from service.settings import Settings
from tests.service.api.stack import serving, teach, training, wait_until
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
            expect(page.locator("#phase-says")).to_have_text(
                "Nothing has come yet. Send a batch to POST /models/pump-8/ingest, or run: "
                f"gmr ingest FILE.csv --label-column NAME --url {url} --model pump-8"
            )
            # The choice tells the name: it stands there once.
            name = page.locator("header .model").bounding_box()
            assert name is not None
            assert name["width"] <= 1
            page.get_by_label("Model", exact=True).select_option("")
            page.wait_for_url(f"{url}/")


def test_a_model_that_is_let_go_is_quiet_and_its_trainer_is_not_silent(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    own = settings(unload_after_s=0.3, settle_after_s=0.1)
    with training(own), serving(own) as client:
        url = str(client.base_url).rstrip("/")
        client.put("/models/pump").raise_for_status()
        with httpx2.Client(base_url=f"{url}/models/pump", timeout=LONGEST_S) as pump:
            teach(pump, batches=3)
            wait_until(lambda: pump.get("/drift").json().get("loaded") is False)
            told = pump.get("/drift").json()
            assert told["stream_samples"] == 300
            wait_until(lambda: pump.get("/drift").json()["heartbeat_time"] > told["heartbeat_time"])
            assert pump.get("/drift").json()["time"] == told["time"]
        with visiting(browser, f"{url}/") as visit:
            page = visit.page
            page.clock.install()
            page.goto(f"{url}/models/pump/")
            expect(page.locator("#phase")).to_have_text("Quiet")
            page.clock.fast_forward(11_000)
            for _ in range(3):  # a second each: by then the trainer was heard, and that is drawn
                with page.expect_response("**/pump/drift"):
                    pass
            expect(page.locator("#phase")).to_have_text("Quiet")
            check_accessible(page)
