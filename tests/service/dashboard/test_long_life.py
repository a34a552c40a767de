"""Tests for a page that is open for days: what it asks for, and what it keeps, is bounded."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import numpy as np
import pytest
from playwright.sync_api import Browser, CDPSession, Page, Route, expect

from benchmarks import _history as history
from service.settings import Settings
from tests.service.api.stack import N_FEATURES, make_settings, serving, teach, training
from tests.service.dashboard.browser import PATIENCE_MS, visiting
from tests.service.dashboard.test_page import url_of

LATER = """
const now = performance.now.bind(performance);
window.later = 0;
performance.now = () => now() + later;
"""
"""A clock that a test puts forward."""

TOLD = """
window.told = 0;
window.EventSource = class extends EventTarget {
    static CLOSED = 2;
    constructor() {
        super();
        window.source = this;
        setTimeout(() => this.onopen?.());
    }
    close() {}
};
"""
"""Events are those that a test tells."""

TELL = """events => {
    for (const data of events) {
        source.dispatchEvent(new MessageEvent(data.kind,
            { data: JSON.stringify(data), lastEventId: `${Date.now()}-${told += 1}` }));
    }
}"""

SUB_TASKS, CLASSES = 60, 8


@pytest.fixture(scope="module")
def stream(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service of two sub-tasks."""
    data_dir = tmp_path_factory.mktemp("long")
    settings = make_settings(redis_url, data_dir, preset="flat", detector="none")
    with training(settings), serving(settings) as client:
        teach(client, 3)
        client.post("/drift/boundary").raise_for_status()
        teach(client, 3)
        yield client


def answers(client: httpx2.Client) -> dict[str, Any]:
    """What a service of many labelled sub-tasks would answer, by path."""
    drift, model = client.get("/drift").json(), client.get("/model").json()
    [boundary] = client.get("/drift/boundaries").json()["boundaries"]
    [held] = model["held"]
    numbers = range(1, SUB_TASKS)
    return {
        "/drift": {**drift, "stream_samples": 100 * SUB_TASKS, "sub_task": SUB_TASKS - 1},
        "/drift/boundaries": {
            "boundaries": [
                {
                    **boundary,
                    "id": f"{number}-0",
                    "boundary": number,
                    "sub_task": number,
                    "estimated_start_sample": 100 * number,
                }
                for number in numbers
            ]
        },
        "/model": {
            **model,
            "held": [
                {
                    **held,
                    "sub_task": number,
                    "classes": [
                        {**held["classes"][0], "label": f"{number}-{one}"} for one in range(CLASSES)
                    ],
                }
                for number in range(SUB_TASKS)
            ],
        },
    }


def serve(page: Page, told: dict[str, Any]) -> list[str]:
    """Let the page have these answers, and samples; the labels that it asks for, as they come."""
    asked: list[str] = []

    def draw(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        asked.extend(query.get("classes", []))
        rows = io.BytesIO()
        np.save(rows, np.zeros((int(query["n"][0]), N_FEATURES), np.float32))
        route.fulfill(body=rows.getvalue())

    page.route("**/sample?**", draw)
    page.route(
        lambda url: urlsplit(url).path in told,
        lambda route: route.fulfill(json=told[urlsplit(route.request.url).path]),
    )
    return asked


def in_sight(page: Page) -> set[str]:
    """Classes whose cards somebody sees, or nearly."""
    cards = page.locator("#sub-tasks li").evaluate_all(
        """cards => cards.filter((card) => {
            const list = card.parentElement.getBoundingClientRect();
            const { top, bottom } = card.getBoundingClientRect();
            return top < Math.min(list.bottom, innerHeight) && bottom > Math.max(list.top, 0);
        }).map((card) => card.querySelector('h3').firstChild.data.split(' ')[1])"""
    )
    return {f"{number}-{one}" for number in cards for one in range(CLASSES)}


def test_pictures_of_many_classes_are_asked_for_where_somebody_sees_them_and_few_a_minute(
    browser: Browser, stream: httpx2.Client
) -> None:
    told = answers(stream)
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(LATER)
        asked = serve(page, told)
        page.reload()
        expect(page.locator("#sub-tasks li")).to_have_count(SUB_TASKS)
        page.locator("#sub-tasks li").first.evaluate("one => one.scrollIntoView()")
        assert 0 < len(in_sight(page)) < SUB_TASKS * CLASSES / 2
        expect(page.locator("#sub-tasks [role=img]")).not_to_have_count(0)
        for _ in range(PATIENCE_MS // 100):
            page.wait_for_timeout(100)
            if in_sight(page) <= set(asked):  # cards with pictures push others out of sight
                break
        assert 0 < len(in_sight(page)) <= len(set(asked))
        assert in_sight(page) <= set(asked)
        page.wait_for_timeout(1000)
        assert len(asked) == len(set(asked)) < SUB_TASKS * CLASSES / 2

        # Another version each second: what was shown is asked for again, and slowly.
        asked.clear()
        for _ in range(6):
            page.evaluate("later += 61_000")
            told["/model"]["model_version"] += 1
            page.wait_for_timeout(1000)
        assert 1 <= len(asked) <= 7

        # What has been kept longest goes, so that no label stays for ever.
        kept = page.evaluate("import('/static/timeline.js').then(({ looks }) => looks.kept.size)")
        assert kept <= 400


def test_pictures_are_told_by_the_class_that_was_drawn_while_others_are_still_to_come(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        serve(page, answers(stream))
        page.route("**/sample?**classes=0-0", lambda route: route.abort())
        page.reload()
        page.locator("#sub-tasks li").first.evaluate("one => one.scrollIntoView()")
        card = page.locator("#sub-tasks li").first
        expect(card.get_by_role("img")).to_have_count(2 * (CLASSES - 1))
        expect(card.get_by_role("img", name="of class 0-0")).to_have_count(0)
        expect(card.get_by_role("img", name=f"of class 0-{CLASSES - 1}")).to_have_count(2)
        visit.complaints.clear()  # that one was refused


def test_many_events_ask_for_one_answer_at_a_time(browser: Browser, stream: httpx2.Client) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(TOLD)
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        page.wait_for_timeout(500)  # what every page asks at first is answered
        asked: list[Route] = []

        def answer(route: Route) -> None:
            asked.append(route)
            route.continue_()

        page.route("**/drift/quarantine**", answer)
        for _ in range(10):
            page.evaluate(TELL, [{"kind": "outlier_burst_continued"}] * 100)
            page.wait_for_timeout(100)
        page.wait_for_timeout(1500)
        assert 1 < len(asked) <= 4


def test_entries_that_are_given_up_and_what_is_asked_for_are_told(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(TOLD)
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        for entries, told in ((1, "1 entry was given up"), (1200, "1,200 entries were given up")):
            page.evaluate(TELL, [{"kind": "entries_lost", "entries": entries}])
            expect(page.locator("#said")).to_contain_text(told)
        settings = {"max_classes": 7, "outlier_false_positive_rate": None}
        page.evaluate(TELL, [{"kind": "settings_changed", "settings": settings, "by": "ada"}])
        expect(page.locator("#said")).to_have_text(
            "From now on max_classes is 7, outlier_false_positive_rate is none, asked for by ada."
        )
        other = {"kind": "class_renamed", "label": "lynx", "label_before": "cat", "by": None}
        page.evaluate(TELL, [other])
        expect(page.locator("#said")).to_have_text("Class cat is called lynx from now on.")
        both = {"kind": "classes_merged", "label": "lynx", "label_before": "linx", "by": "ada"}
        page.evaluate(TELL, [both])
        expect(page.locator("#said")).to_have_text(
            "Class linx is part of class lynx from now on, asked for by ada."
        )


def test_what_is_usual_is_not_asked_for_again_at_once_where_that_failed(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(TOLD)
        asked: list[Route] = []

        def refuse(route: Route) -> None:
            asked.append(route)
            route.fulfill(status=422, json={"type": "/problems/out-of-range", "detail": "n"})

        # Samples of a square number of features would be images, of which nothing is usual.
        model = {**stream.get("/model").json(), "image_shape": None}
        page.route("**/model", lambda route: route.fulfill(json=model))
        page.route("**/sample?**noise=true**", refuse)
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        for index in range(30):
            page.evaluate(TELL, [history.event(index)])
            page.wait_for_timeout(100)
        assert 1 <= len(asked) <= 2


def used(session: CDPSession) -> dict[str, float]:
    """What the page holds, after all garbage is collected."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    rows = session.send("Performance.getMetrics")["metrics"]
    found = {row["name"]: row["value"] for row in rows}
    return {name: found[name] for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}


def test_a_page_holds_no_more_after_thousands_of_events_and_many_breaks(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(TOLD)
        page.add_init_script(LATER)
        page.reload()
        expect(page.locator("#chart-likelihood canvas")).to_be_visible()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        [boundary] = stream.get("/drift/boundaries").json()["boundaries"]
        others: list[dict[str, Any]] = [
            {"kind": "outlier_burst"},
            {"kind": "class_proposed"},
            {"kind": "features_drifting", "features": [{"feature": 1, "name": "x" * 100}]},
            {"kind": "samples_repeated", "estimated_start_sample": 3},
            {"kind": "missed"},
            {"kind": "model_restored"},
        ]

        def live(first: int, events: int = 1000) -> None:
            """A part of a life: batches, boundaries and what else happens, and a break."""
            for at in range(first, first + events, 500):
                batches = [history.event(index) for index in range(at, at + 500)]
                page.evaluate(TELL, [*batches, *others, {**boundary, "kind": "boundary"}])
                page.wait_for_timeout(300)  # it is drawn
            page.evaluate("later += 31_000")  # so that the next attempt is soon
            with page.expect_response("**/drift/curve**"):
                page.evaluate("source.onerror()")
            page.wait_for_timeout(1000)

        for turn in range(2):
            live(1000 * turn)
        before = used(session)
        for turn in range(2, 6):
            live(1000 * turn)
            page.locator("#version-rows button").first.click()
            page.get_by_role("button", name="Stay").click()
        most_listeners = before["JSEventListeners"] + 5
        after = used(session)
        for _ in range(PATIENCE_MS // 200):
            if after["JSEventListeners"] <= most_listeners:  # a closed connection is collected late
                break
            page.wait_for_timeout(200)
            after = used(session)
        assert after["Nodes"] < 1.1 * before["Nodes"]
        assert after["JSEventListeners"] <= most_listeners
        assert after["JSHeapUsedSize"] < before["JSHeapUsedSize"] + 1e6


def test_boundaries_are_not_sent_again_while_they_are_as_they_were(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        listed = page.locator("#boundaries li")
        expect(listed).to_have_count(1)
        [boundary] = stream.get("/drift/boundaries").json()["boundaries"]

        def asked_again() -> int:
            page.wait_for_timeout(1100)  # a question a second at most
            with page.expect_response("**/drift/boundaries") as answer:
                page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            return answer.value.status

        assert asked_again() == 304
        expect(listed).to_have_count(1)
        note = {"text": "The lens was cleaned."}
        stream.post(f"/drift/boundaries/{boundary['id']}/notes", json=note).raise_for_status()
        assert asked_again() == 200
        expect(listed).to_contain_text("1 note")
        assert asked_again() == 304
        expect(listed).to_contain_text("1 note")


def test_what_was_said_goes_after_a_while(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    with serving(settings()) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        page.clock.install()
        page.goto("/")
        page.evaluate("document.getElementById('said').textContent = 'Boundary 1'")
        page.clock.run_for(100_000)
        expect(page.locator("#said")).to_have_text("Boundary 1")
        page.clock.run_for(30_000)
        expect(page.locator("#said")).to_have_text("")


HIDES = """milliseconds => {
    let hidden = true;
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
    later += milliseconds;
    hidden = false;
    document.dispatchEvent(new Event('visibilitychange'));
}"""
"""The page is out of sight for so long."""


@pytest.mark.parametrize(("hours", "curves"), [(24, 1), (0.01, 0)])
def test_after_a_day_out_of_sight_the_history_is_asked_for_and_not_every_event(
    browser: Browser, stream: httpx2.Client, hours: float, curves: int
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.add_init_script(LATER)
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        page.evaluate(HIDES, hours * 3_600_000)
        for _ in range(PATIENCE_MS // 100):
            page.wait_for_timeout(100)
            if "/events" in asked:
                break
        assert asked.count("/drift/curve") == curves
        assert asked.count("/events") == 1
        expect(page.locator("#link")).to_have_text("live")
