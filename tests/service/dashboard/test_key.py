"""The dashboard of a service that wants a key, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, expect
from pydantic import SecretStr

from clients.http.client import GMRClient
from service.settings import Settings
from tests.service.api.stack import serving, training

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
