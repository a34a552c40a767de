"""Tests for a page that somebody uses while the stream goes on, answers are late, or fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from pydantic import SecretStr

from clients.http.client import GMRClient
from service.api.routes.drift import Proposals
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    make_settings,
    samples,
    send,
    serving,
    teach,
    training,
)
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible
from tests.service.running import wait_until


@pytest.fixture(scope="module")
def stream(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service of two sub-tasks, whose stream goes on where a test sends more."""
    settings = make_settings(
        redis_url,
        tmp_path_factory.mktemp("live"),
        preset="flat",
        detector="none",
        checkpoint_interval_s=0.1,
    )
    with training(settings), serving(settings) as client:
        for _ in range(2):
            teach(client, 3)
            client.post("/drift/boundary").raise_for_status()
        teach(client, 3)
        yield client


def more(client: httpx2.Client) -> dict[str, Any]:
    """One batch more, learned."""
    send(client, RawBatch.of(samples(100), labels(100))).raise_for_status()
    return learned(client)


def proposals(*numbers: int) -> dict[str, Any]:
    rows = [
        {
            "proposal": number,
            "origin": "unknown",
            "samples": 40,
            "first_sample": 100,
            "last_sample": 900,
            "prototype": [0.5] * N_FEATURES,
            "nearest_classes": [3, "cat"],
            "nearest_probabilities": [0.9, 0.1],
        }
        for number in numbers
    ]
    return Proposals.model_validate({"proposals": rows}).model_dump()


def hold(page: Page, questions: str) -> list[Route]:
    """Hold such questions back from now on; the first has been asked."""
    held: list[Route] = []
    page.route(questions, lambda route: held.append(route))
    waits_for(page, held)
    return held


def waits_for(page: Page, held: list[Route], n: int = 1) -> None:
    """Until so many requests are held back."""
    while len(held) < n:
        page.wait_for_timeout(10)


def test_what_is_looked_at_closer_stays_in_sight_while_batches_come(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        chart = page.locator("#chart-likelihood")
        chart.scroll_into_view_if_needed()
        expect(chart.locator("canvas")).to_be_visible()
        over = chart.locator(".u-over")
        legend = chart.locator(".u-legend")

        def leftmost() -> str:
            page.mouse.move(0, 0)  # or the pointer, where it is already, would not move
            over.hover(position={"x": 2, "y": 30})
            return legend.inner_text()

        whole = leftmost()
        box = over.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 30, steps=5)
        page.mouse.up()
        wait_until(lambda: leftmost() != whole)  # drawn with the next frame
        closer = leftmost()
        page.mouse.move(0, 0)
        newest = legend.inner_text()
        more(stream)
        expect(legend).not_to_have_text(re.compile(re.escape(newest)))
        page.wait_for_timeout(1000)
        assert leftmost() == closer
        over.dblclick(position={"x": 30, "y": 30})
        wait_until(lambda: leftmost() == whole)


@pytest.mark.parametrize(
    "control", ["#sub-tasks li:last-child a", "#version-rows tr:last-child button", "summary"]
)
def test_what_has_the_focus_keeps_it_while_batches_come(
    browser: Browser, stream: httpx2.Client, control: str
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        expect(page.locator("#sub-tasks [role=img]")).not_to_have_count(0)
        focused = page.locator(f"#overview {control} >> visible=true").first
        if control == "summary":
            focused = page.locator("#retention-rows summary").first
            focused.click()
        expect(page.locator("#retention-rows tr")).not_to_have_count(0)
        focused.focus()
        made = page.evaluate_handle("document.activeElement")
        count = page.locator("#sub-tasks li:last-child p").first.inner_text()
        version = page.locator("#tile-version .value").inner_text()
        more(stream)
        expect(page.locator("#sub-tasks li:last-child p").first).not_to_have_text(count)
        expect(page.locator("#tile-version .value")).not_to_have_text(version)
        page.wait_for_timeout(1500)  # all lists were drawn again
        assert page.evaluate("made => made === document.activeElement", made)
        if control == "summary":
            expect(page.locator("#retention-rows details[open] li")).to_have_count(2)


def test_a_name_that_is_being_typed_outlives_other_proposals_and_is_told_once(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page, told = visit.page, []
        answer = proposals(1, 2)
        page.route("**/drift/proposals", lambda route: route.fulfill(json=answer))

        def tell(route: Route) -> None:
            told.append(route.request.post_data_json)
            route.fulfill(json={}, status=202)

        page.route("**/labels", tell)
        page.reload()
        card = page.locator("#proposals [data-proposal='2']")
        card.get_by_label("Name").fill("3")
        answer.update(proposals(2, 3))
        expect(page.locator("#proposals [data-proposal='3']")).to_be_visible()
        expect(card.get_by_label("Name")).to_have_value("3")
        expect(card.get_by_label("Name")).to_be_focused()
        card.get_by_role("button", name="Name it").dblclick()
        expect(page.locator("#said")).to_contain_text("will be learned as class 3")
        page.wait_for_timeout(300)
        # There is a class 3 beside "cat": its name is a number.
        assert told == [{"proposal": 2, "label": 3}]
        # What was said is in sight, though the top of the page is not.
        assert page.evaluate("scrollY") > 500
        expect(page.locator("#said")).to_be_in_viewport()
        check_accessible(page)


def test_an_older_answer_does_not_take_the_place_of_a_newer_one(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        expect(page.locator("#chart-likelihood canvas")).to_be_visible()
        held: list[Route] = []
        page.route("**/drift/curve**", lambda route: held.append(route))
        page.get_by_text("15 min").click()
        page.get_by_text("all", exact=True).click()
        waits_for(page, held, 2)
        held[1].continue_()
        nothing = {name: [] for name in ("time", "batches")}
        held[0].fulfill(
            json={"batches_per_point": 1, "last_id": "0", "points": {**nothing, "ratios": {}}}
        )
        page.wait_for_timeout(1000)
        expect(page.locator("#chart-likelihood")).not_to_have_class(re.compile("nothing"))

        first, second = stream.get("/drift/boundaries").json()["boundaries"]
        held.clear()
        page.route(f"**/drift/boundaries/{first['id']}", lambda route: held.append(route))
        page.evaluate("id => { location.hash = `#/boundary/${id}`; }", first["id"])
        waits_for(page, held)
        page.evaluate("id => { location.hash = `#/boundary/${id}`; }", second["id"])
        title = page.locator("#boundary-title")
        expect(title).to_contain_text("Boundary 2")
        held[0].continue_()
        page.wait_for_timeout(500)
        expect(title).to_contain_text("Boundary 2")


def test_a_connection_that_says_nothing_holds_one_question(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        expect(page.locator("#link")).to_have_text("live")
        held = hold(page, "**/drift")
        page.wait_for_timeout(3500)
        assert len(held) == 1
        expect(page.locator("#phase-says")).to_contain_text("does not answer")  # it gives up
        page.unroute("**/drift")
        expect(page.locator("#phase-says")).not_to_contain_text("does not answer")


SLEEPS = """() => {
    const now = performance.now.bind(performance);
    let hidden = true;
    Object.defineProperty(document, 'hidden', { get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
    performance.now = () => now() + 3600e3;
    window.phases = new Set();
    new MutationObserver(() => phases.add(document.getElementById('phase').textContent))
        .observe(document.getElementById('phase'), { childList: true });
    hidden = false;
    document.dispatchEvent(new Event('visibilitychange'));
    dispatchEvent(new Event('hashchange'));
}"""
"""The page is out of sight for an hour."""


def test_after_an_hour_out_of_sight_the_trainer_is_not_called_silent(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        expect(page.locator("#phase")).to_have_text("Learning")
        hold(page, "**/drift")
        page.evaluate(SLEEPS)
        page.wait_for_timeout(1000)
        page.unroute("**/drift")
        expect(page.locator("#link")).to_have_text("live")
        assert "Trainer is silent" not in page.evaluate("[...phases]")


def test_pictures_that_could_not_be_had_are_asked_for_again(
    browser: Browser, stream: httpx2.Client
) -> None:
    looks = """async () => {
        const real = performance.now.bind(performance);
        let later = 0, asked = 0;
        performance.now = () => real() + later;
        const { Looks } = await import('/static/timeline.js');
        const looks = new Looks();
        const ask = async () => {
            asked += 1;
            if (asked === 1) throw new Error('away');
            return [[1]];
        };
        const of = () => new Promise((then) => {
            looks.of('boundary', 0, ask, then);
            setTimeout(then, 50);
        });
        await of();
        await of();
        later = 61_000;
        await of();
        return [asked, looks.of('boundary', 0, ask, () => {})];
    }"""
    with visiting(browser, url_of(stream)) as visit:
        assert visit.page.evaluate(looks) == [2, [[1]]]


def test_amounts_far_from_one_are_told_by_their_power_of_ten(
    browser: Browser, stream: httpx2.Client
) -> None:
    amount = """async (pair) => (await import('/static/usual.js')).amount(...pair)"""
    with visiting(browser, url_of(stream)) as visit:
        for value, deviation, said in (
            (5.2e-12, 1e-12, "5.2 · 10⁻¹²"),
            (-3e38, 1e37, "\N{MINUS SIGN}3.0 · 10³⁸"),
            (0, 1e-12, "0"),
            (0, 0, "0"),
            (21.26, 0.3, "21.3"),
            (1e-9, 2, "0"),
            (12345.6, 40, "12,346"),
        ):
            assert visit.page.evaluate(amount, [value, deviation]) == said


def test_what_a_key_may_not_see_is_not_called_none(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    admin_key = "operator-key-of-32-characters-0"
    with serving(settings(admin_key=SecretStr(admin_key))) as client:
        with GMRClient(url_of(client), api_key=admin_key) as admin:
            key = admin.make_api_key("reader", ["read"]).key
        with visiting(browser, url_of(client)) as visit:
            page = visit.page
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Look").click()
            expect(page.locator("#outliers-none")).to_contain_text("admin")
            expect(page.locator("#proposals-none")).to_contain_text("None proposed")
