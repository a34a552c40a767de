"""Tests for the dashboard, by what somebody sees and does who watches a stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from service.settings import Settings
from tests.service.api.stack import serving, training, wait_until
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.digits import SIDE, Digits

WIDER = """width => document.documentElement.scrollWidth === width ? [] :
    [...document.querySelectorAll('body *')]
    .filter((one) => one.getBoundingClientRect().right > width && !one.closest('.wide, nav'))
    .map((one) => one.outerHTML.slice(0, 200))"""
"""What is too wide for the window, where the page has to be scrolled sideways."""

SERIOUS = ("serious", "critical")


def check_accessible(page: Page) -> None:
    """Nothing serious is found by the checker."""
    found = Axe().run(page).response["violations"]
    serious = {
        one["id"]: [node["html"] for node in one["nodes"]]
        for one in found
        if one["impact"] in SERIOUS
    }
    assert not serious


def keep_pictures(
    browser: Browser, client: httpx2.Client, url: str, digits: Digits, folder: Path
) -> None:
    """The page as it looks in light, in dark and on a phone, and a boundary's."""
    for name, width, dark in (
        ("dashboard", 1280, False),
        ("dashboard-dark", 1280, True),
        ("dashboard-phone", 390, False),
    ):
        with visiting(browser, url, width=width, dark=dark) as visit:
            page = visit.page
            expect(page.locator("#sub-tasks .pixels")).not_to_have_count(0)
            expect(page.locator("#chart-statistic canvas")).to_be_visible()
            expect(page.locator("#retention-rows tr")).not_to_have_count(0)
            digits.send(client, (0, 1), 500)
            expect(page.locator("#tile-rate .value")).to_have_text(re.compile(r"^[1-9].*/s$"))
            assert page.evaluate(WIDER, width) == []
            check_accessible(page)
            end = page.locator("#charts").bounding_box()
            assert end is not None
            clip = {"x": 0, "y": 0, "width": width, "height": end["y"] + end["height"] + 24}
            page.screenshot(path=folder / f"{name}.png", full_page=True, clip=clip)
            if not dark and width > 1000:
                page.locator("#boundaries a").last.click()
                expect(page.locator("#boundary-page .prototypes canvas").first).to_be_visible()
                page.screenshot(path=folder / "dashboard-boundary.png", full_page=True)
            check_accessible(page)
            if width < 1000:
                page.locator("details:has(#signals) summary").click()
                expect(page.locator("#signals tr").last).to_be_visible()
                assert page.evaluate(WIDER, width) == []
                for room in map(page.locator, ("#compared", "#retention", "#versions")):
                    assert room.evaluate("box => box.scrollWidth <= box.clientWidth")


def versions(client: httpx2.Client) -> dict[int, int]:
    """Kept versions by the boundary that came right after."""
    kept = client.get("/model/versions").json()["versions"]
    return {one["before_boundary"]: one["version"] for one in kept if one.get("before_boundary")}


def test_a_stream_is_watched_understood_and_acted_upon(
    browser: Browser, settings: Callable[..., Settings], pictures: Path, tmp_path: Path
) -> None:
    story = settings(
        model="digits",
        n_components=60,
        warm_up=300,
        ert="20000",
        shadow_detectors="paper",
        proposal_samples=20,
        checkpoint_interval_s=0.1,
    )
    # For a picture that is kept, time should pass between two batches.
    digits = Digits(pause_s=0.0 if pictures.samefile(tmp_path) else 0.1)
    with training(story), serving(story) as client:
        url = str(client.base_url).rstrip("/")
        with visiting(browser, url) as visit:
            page = visit.page
            expect(page.locator("#phase")).to_have_text("Waiting for samples")
            expect(page.locator("#tile-inliers .value")).to_have_text("unknown")
            expect(page.locator("#link")).to_have_text("live")
            page.evaluate("window.untouched = true")

            digits.send(client, (0, 1), 1500)
            expect(page.locator("#steps [data-step=armed]")).to_have_attribute(
                "aria-current", "step"
            )
            expect(page.locator("#sub-tasks h3")).to_have_text(["Sub-task 0now"])
            expect(page.locator("#classes li")).to_have_count(2)
            expect(page.locator("#features-section")).to_be_hidden()  # of pixels

            # The boundary appears by itself, and is one click away from its cause.
            digits.send(client, (2, 3), 1500)
            expect(page.locator("#boundaries li")).to_have_count(1)
            expect(page.locator("#sub-tasks h3")).to_have_text(["Sub-task 0", "Sub-task 1now"])
            assert page.evaluate("window.untouched")
            compared = page.locator("#compared-rows tr")
            expect(compared.locator("th")).to_have_text(["sequential decides", "paper shadow"])
            expect(compared.first.locator("td").nth(1)).to_have_text("1")
            pixels = [f"pixel {row}, {column}" for row in range(SIDE) for column in range(SIDE)]
            named = client.put("/model/feature-names", json={"feature_names": pixels})
            named.raise_for_status()
            page.locator("#boundaries a").click()
            expect(page.locator("#boundary-page h2")).to_have_text("Boundary 1: sub-task 1 begins")
            first = page.locator("#boundary-page tbody th").first
            expect(first).to_have_text(re.compile(r"^pixel \d+, \d+ feature \d+$"))
            expect(page.locator("#boundary-page h2")).to_be_focused()
            expect(page.get_by_role("heading", name="Features that changed")).to_be_visible()
            expect(page.locator("#boundary-page")).to_contain_text("of the new samples is other")
            page.get_by_label("What do you know about it?").fill("Somebody else writes.")
            page.get_by_role("button", name="Add the note").click()
            expect(page.locator("#notes li")).to_contain_text("Somebody else writes.")
            expect(page.locator("#boundary-page .prototypes canvas")).not_to_have_count(0)
            page.go_back()
            expect(page.locator("#overview")).to_be_visible()

            # What comes without a label, and is unknown, gets a name.
            digits.send(client, (4,), 1000, labelled=False)
            expect(page.locator("#boundaries li")).to_have_count(2)
            proposal = page.locator("#proposals [data-proposal]").first
            proposal.get_by_label("Name").fill("4")
            proposal.get_by_role("button", name="Name it").click()
            expect(page.locator("#said")).to_have_text(re.compile("will be learned as class 4"))
            wait_until(
                lambda: 4 in [one["label"] for one in client.get("/model").json()["classes"]]
            )
            expect(proposal).to_have_count(0)

            digits.send(client, (0, 1), 1500)
            expect(page.locator("#sub-tasks .return")).to_have_text("↩ return of 0")
            expect(page.locator("#arcs path")).to_have_count(1)
            expect(page.locator("#retention-rows")).to_contain_text("Sub-task 2")

            # A sample taken from the model is named by it.
            page.get_by_role("button", name="Take one from the model").click()
            expect(page.locator("#answer-class")).to_have_text(re.compile(r"^[0-4]$"))
            expect(page.locator("#answer")).to_contain_text("responsible for")

            # So is one that is drawn.
            pen = page.locator("#sample-pen")
            pen.scroll_into_view_if_needed()
            box = pen.bounding_box()
            assert box is not None
            page.evaluate("document.getElementById('answer').replaceChildren()")
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20, steps=8)
            page.mouse.up()
            expect(page.locator("#answer-class")).to_have_text(re.compile(r"^[0-4]$"))
            expect(page.get_by_label("Paste the features")).to_have_value("")

            keep_pictures(browser, client, url, digits, pictures)

            # Going back is asked for twice, and shown.
            before = versions(client)[1]
            page.get_by_role("button", name=f"Go back to version {before}", exact=True).click()
            page.locator("#rollback").get_by_role("button", name="Go back").click()
            expect(page.locator("#said")).to_have_text(
                re.compile(f"Version {before} answers again")
            )
            expect(page.locator("#boundaries li.dropped")).to_have_count(3)
            expect(page.locator("#sub-tasks h3")).to_have_text(["Sub-task 0now"])
            assert client.get("/drift").json()["boundaries"] == 0
            # What was dropped is part of no sub-task, and what comes is.
            expect(page.locator("#sub-tasks li")).to_contain_text("1,500 samples")
            digits.send(client, (0, 1), 100)
            expect(page.locator("#sub-tasks li")).to_contain_text("1,600 samples")
            expect(page.locator("#phase-says")).to_contain_text("1,600 samples so far")

            # A reload shows the same.
            assert page.evaluate("window.untouched")
            said = page.locator("#boundaries").inner_text()
            page.reload()
            expect(page.locator("#boundaries li")).to_have_count(3)
            assert page.locator("#boundaries").inner_text() == said
            expect(page.locator("#chart-inliers canvas")).to_be_visible()
    assert {path.name for path in pictures.glob("dashboard*.png")} == {
        "dashboard.png",
        "dashboard-dark.png",
        "dashboard-phone.png",
        "dashboard-boundary.png",
    }
