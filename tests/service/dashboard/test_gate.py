"""Tests for what the dashboard says of a version that is held back, in a browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, expect

from service.settings import Settings
from tests.service.api.stack import serving, training
from tests.service.api.test_gate import FORGETFUL, OTHERS, forgotten, gate, told
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible


def test_a_hold_is_told_with_its_reason_and_released_from_the_page(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    own = settings(**FORGETFUL)
    with training(own), serving(own) as client, visiting(browser, url_of(client)) as visit:
        card = visit.page.locator("#gate")
        expect(card).to_be_hidden()
        forgotten(client)
        held = gate(client)
        expect(card.get_by_role("heading")).to_have_text(
            f"Version {held['checked_version']} is held back"
        )
        expect(card).to_contain_text(f"Version {held['served_version']} answers")
        expect(card).to_contain_text("may fall by 2 points")
        expect(visit.page.locator("#phase-says")).to_contain_text("GMR_DETECTOR=none")
        newest = visit.page.locator("#sub-tasks li").last
        # Versions that have begun to forget, and not yet too much, know the new classes already.
        known = {one["label"] for one in client.get("/model").json()["classes"]}
        if known.isdisjoint(OTHERS):
            expect(newest).to_contain_text(f"version {held['served_version']} answers meanwhile")
        else:
            expect(newest.get_by_role("img")).not_to_have_count(0)
        shares = client.get("/drift").json()["class_shares"]["classes"]
        shown = [one for one in shares if one["share"] or one["reference_share"] or one["drifts"]]
        assert 0 < len(shown) < len(shares)  # the first classes do not come any more
        expect(visit.page.locator("#shares li")).to_have_count(len(shown))
        check_accessible(visit.page)
        card.get_by_label("Why").fill("the old ones are gone")
        card.get_by_role("button", name="Let it answer").click()
        expect(card).to_be_hidden()
        [ended] = told(client, "hold_ended")
        assert (ended["reason"], ended["note"]) == ("released", "the old ones are gone")
