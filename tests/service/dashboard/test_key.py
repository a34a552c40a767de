"""The dashboard of a service that wants a key, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, expect
from pydantic import SecretStr

from clients.http.client import GMRClient
from service.settings import Settings
from tests.service.api.stack import serving, training
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_story import check_accessible

OPERATOR = "operator-key-of-32-characters-0"


def test_whoever_looks_is_asked_for_a_key_once(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    made = settings(admin_key=SecretStr(OPERATOR))
    with training(made), serving(made) as client:
        url = str(client.base_url)
        with GMRClient(url, api_key=OPERATOR) as admin:
            key = admin.make_api_key("somebody", ["read"]).key
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        asked = page.get_by_role("dialog", name="Who is looking?")
        expect(asked).to_be_visible()
        asked.get_by_label("Key").fill("nonsense")
        asked.get_by_role("button", name="Look").click()
        expect(asked).to_contain_text("a key that does not count")
        asked.get_by_label("Key").fill(key)
        asked.get_by_role("button", name="Look").click()
        expect(page.locator("#link")).to_have_text("live")
        expect(asked).not_to_be_visible()
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        assert "gmr_key" not in str(page.evaluate("document.cookie"))
        context.close()


def test_what_a_key_may_not_see_is_said_until_another_key_may(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    made = settings(admin_key=SecretStr(OPERATOR))
    with training(made), serving(made) as client:
        url = str(client.base_url)
        with GMRClient(url, api_key=OPERATOR) as admin:
            reads = admin.make_api_key("somebody", ["read"]).key
        with visiting(browser, url) as visit:
            page = visit.page
            outliers, another = page.locator("#outliers-none"), page.locator("#key-other")
            dialog = page.get_by_role("dialog", name="Who is looking?")

            def give(key: str) -> None:
                dialog.get_by_label("Key").fill(key)
                with page.expect_navigation():
                    dialog.get_by_role("button", name="Look").click()

            expect(dialog).to_be_visible()
            expect(dialog.get_by_role("button", name="Not now")).to_be_hidden()
            expect(another).to_be_hidden()
            give(reads)
            expect(outliers).to_contain_text("this needs admin")
            another.click()
            check_accessible(page)
            dialog.get_by_role("button", name="Not now").click()
            expect(dialog).to_be_hidden()
            # Another window, which has the same cookies, gives a key that may.
            page.evaluate(
                """key => fetch('session', { method: 'POST',
                    headers: { Authorization: `Bearer ${key}` } })""",
                OPERATOR,
            )
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            expect(outliers).to_contain_text("None. Outliers that come together")
            expect(another).to_be_hidden()


def test_a_key_for_some_models_finds_them_from_the_page_of_the_service(
    browser: Browser, settings: Callable[..., Settings], pictures: Path
) -> None:
    made = settings(admin_key=SecretStr(OPERATOR))
    with training(made), serving(made) as client:
        url = str(client.base_url).rstrip("/")
        with GMRClient(url, api_key=OPERATOR) as admin:
            for name in ("press", "pump-7", "pump-8"):
                admin.make_model(name)
            one = admin.make_api_key("somebody", ["read"], ["pump-7"]).key
            some = admin.make_api_key("somebody", ["read"], ["pump-*"]).key
        for key, there in ((one, ["pump-7"]), (some, ["pump-7", "pump-8"])):
            with visiting(browser, f"{url}/") as visit:
                page = visit.page
                page.get_by_label("Key").fill(key)
                page.get_by_role("button", name="Look").click()
                expect(page.locator("#phase")).to_have_text("Not with this key")
                expect(page.locator("#phase-says")).to_contain_text("The key counts for the model")
                choice = page.get_by_label("Model", exact=True)
                expect(choice.locator("option")).to_have_text(["choose a model", *there])
                check_accessible(page)
                page.screenshot(path=pictures / "limited-key.png", full_page=True)
                expect(page.get_by_role("button", name="Another key")).to_be_visible()
                choice.select_option("pump-7")
                page.wait_for_url("**/models/pump-7/")
                expect(page.locator("#link")).to_have_text("live")
                options = page.get_by_label("Model", exact=True).locator("option")
                expect(options).to_have_text(there)
                expect(page.locator("#models")).to_be_visible(visible=len(there) > 1)
                page.goto(f"{url}/models/press/")
                expect(page.locator("#phase")).to_have_text("Not with this key")
                expect(options).to_have_text(["choose a model", *there])
