"""Tests for a page whose service is away, or comes back as another."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from benchmarks._ports import free_port
from service.settings import Settings
from tests.service.api.stack import (
    make_settings,
    redis_server,
    serving,
    teach,
    training,
)
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible

MakeSettings = Callable[..., Settings]

AGO = re.compile(
    r"The service does not answer.* What you see is from \d\d:\d\d:\d\d, \d+ seconds? ago\. "
    r"The trainer may be well\."
)

POINTS = """uPlot.sync('time').plots.filter((plot) => plot.root.checkVisibility())
    .map((plot) => plot.data[0].length)"""
"""How many points each chart has."""


def test_a_page_whose_service_is_away_says_so_and_not_that_the_trainer_is_silent(
    browser: Browser, settings: MakeSettings
) -> None:
    own = settings(detector="none", preset="flat", port=free_port())
    with training(own), ExitStack() as stack:
        with serving(own) as client:
            teach(client, 3)
            visit = stack.enter_context(visiting(browser, url_of(client)))
            page = visit.page
            expect(page.locator("#phase")).to_have_text("Learning")
        expect(page.locator("#phase")).to_have_text("Service out of reach")
        expect(page.locator("#phase-says")).to_have_text(AGO)
        check_accessible(page)
        page.evaluate("window.phases = new Set()")
        page.evaluate(
            """() => { new MutationObserver(() => phases.add(document.getElementById('phase')
                .textContent)).observe(document.getElementById('phase'), { childList: true }); }"""
        )
        page.wait_for_timeout(11_000)  # by which a trainer would be called silent
        assert page.evaluate("[...phases]") == []
        with serving(own) as client:
            expect(page.locator("#phase")).to_have_text("Learning")
            expect(page.locator("#link")).to_have_text("live")
            assert page.evaluate("[...phases]") == ["Learning"]
            visit.complaints.clear()  # that nobody answered
            stack.close()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_what_a_proxy_says_for_a_service_that_is_away_is_no_news_of_the_trainer(
    browser: Browser, settings: MakeSettings, status: int
) -> None:
    own = settings(detector="none", preset="flat")
    with training(own), serving(own) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        expect(page.locator("#phase")).to_have_text("Waiting for samples")
        page.route("**/drift", lambda route: route.fulfill(status=status, body="<h1>Bad</h1>"))
        expect(page.locator("#phase")).to_have_text("Service out of reach")
        expect(page.locator("#phase-says")).to_contain_text(f"a proxy says {status}")
        page.unroute("**/drift")
        expect(page.locator("#phase")).to_have_text("Waiting for samples")


def test_the_page_of_a_boundary_that_could_not_be_had_comes_later(
    browser: Browser, settings: MakeSettings
) -> None:
    own = settings(detector="none", preset="flat")
    with training(own), serving(own) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        teach(client, 3)
        client.post("/drift/boundary").raise_for_status()
        link = page.locator("#boundaries a")
        expect(link).to_be_visible()
        page.route("**/drift/boundaries/*", lambda route: route.fulfill(status=502))
        link.click()
        title = page.locator("#boundary-page h2")
        expect(title).to_have_text("Not known at the moment")
        expect(page.locator("#boundary-page")).to_contain_text("The page goes on trying.")
        page.unroute("**/drift/boundaries/*")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # or 15 s later
        expect(title).to_contain_text("Boundary 1")


def test_one_question_that_fails_changes_no_headline(
    browser: Browser, settings: MakeSettings
) -> None:
    own = settings(detector="none", preset="flat")
    with training(own), serving(own) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        expect(page.locator("#phase")).to_have_text("Waiting for samples")
        page.route("**/drift", lambda route: route.fulfill(status=502), times=1)
        with page.expect_response(lambda answer: answer.status == 502):
            pass
        page.wait_for_timeout(500)  # drawn
        expect(page.locator("#phase")).to_have_text("Waiting for samples")


@pytest.mark.parametrize("name", ["other", None], ids=["another name", "the same name"])
def test_of_a_service_that_comes_back_with_another_model_nothing_old_is_left(
    browser: Browser, settings: MakeSettings, tmp_path: Path, name: str | None
) -> None:
    port = free_port()
    plain = {"detector": "none", "preset": "flat", "port": port}
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as server, ExitStack() as stack:
        first = settings(**plain)
        with training(first), serving(first) as client:
            teach(client, 3)
            client.post("/drift/boundary").raise_for_status()
            teach(client, 3)
            visit = stack.enter_context(visiting(browser, url_of(client)))
            page = visit.page
            expect(page.locator("header .model")).to_have_text(first.model)
            expect(page.locator("#boundaries li")).to_have_count(1)
            expect(page.locator("#sub-tasks [role=img]")).not_to_have_count(0)
            page.evaluate("window.untouched = true")
        name = name or first.model
        other = make_settings(server.url, tmp_path / "other", model=name, **plain)
        with training(other), serving(other) as client:
            expect(page.locator("header .model")).to_have_text(name)
            expect(page).to_have_title(f"gmr-stream: {name}")
            for room in ("#timeline", "#versions", "#chart-likelihood canvas"):
                expect(page.locator(room)).to_be_hidden()
            expect(page.locator("#boundaries li")).to_have_count(0)
            expect(page.locator("#tile-version .value")).to_have_text("none")
            expect(page.locator("#tile-likelihood .value")).to_have_text("unknown")
            teach(client, 2)
            expect(page.locator("#chart-likelihood canvas")).to_be_visible()
            assert max(page.evaluate(POINTS)) <= 2
            expect(page.locator("#link")).to_have_text("live")
            assert page.evaluate("window.untouched")
            check_accessible(page)
            visit.complaints.clear()  # that nobody answered
            stack.close()
