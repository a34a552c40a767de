"""Tests for a page of many sub-tasks and classes with long names: on small screens, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.api.stack import make_settings, serving, teach, training
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_long_life import SUB_TASKS, answers, serve
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible
from tests.service.dashboard.test_table import CUT, SIDEWAYS

LONG = "W" * 60
CLASSES = 300

WHOLE = """list => {
    const box = list.getBoundingClientRect();
    return [...list.children].map((one) => one.getBoundingClientRect())
        .every((one) => one.width > 0 && one.left >= box.left && one.right <= box.right + 0.5);
}"""
"""Whether all children lie within the list."""

CUT_NUMBERS = """list => [...list.querySelectorAll('b')]
    .filter((one) => one.checkVisibility())
    .filter((one) => one.offsetWidth > one.parentElement.clientWidth).length"""
"""How many numbers are wider than their stretches."""

SCROLLING = """() => [...document.querySelectorAll('main *')].filter((one) => one.checkVisibility()
    && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(one).overflowY)
    && !one.matches('.strip, .stretch, .meter, .name, svg')
    && one.scrollHeight > one.clientHeight + 1).map((one) => one.outerHTML.slice(0, 100))"""
"""What shows a part of itself only."""

BRIGHTNESS = """() => {
    const canvas = document.querySelector('#chart-likelihood canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let [sum, n] = [0, 0];
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 255) continue;
        sum += data[at] + data[at + 1] + data[at + 2];
        n += 3;
    }
    return sum / n;
}"""
"""Of what the chart has drawn, 0 to 255; it has no ground of its own."""


@pytest.fixture(scope="module")
def stream(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service of two sub-tasks, under a long name."""
    data_dir = tmp_path_factory.mktemp("crowded")
    settings = make_settings(redis_url, data_dir, preset="flat", detector="none", model="m" * 60)
    with training(settings), serving(settings) as client:
        teach(client, 3)
        client.post("/drift/boundary").raise_for_status()
        teach(client, 3)
        yield client


def crowd(page: Page, stream: httpx2.Client) -> None:
    """Show sixty sub-tasks, three hundred classes and ten features, all with long names."""
    told: dict[str, Any] = answers(stream)
    for row in told["/model"]["held"]:
        for one in row["classes"]:
            one["label"] = f"{one['label']}-{LONG}"
    shares = [
        {
            "label": f"{number}-{LONG}",
            "samples": 3,
            "share": 0.01,
            "labelled_share": None,
            "reference_share": 0.01,
            "share_change": 0.1,
            "share_p_value": 1.0,
            "likelihood_change": None,
            "likelihood_p_value": None,
            "drifts": False,
        }
        for number in range(CLASSES)
    ]
    told["/drift"] |= {
        "class_accuracies": [
            {"label": one["label"], "samples": 1000, "accuracy": 0.5} for one in shares
        ],
        "class_shares": {
            "samples": 1000,
            "reference_samples": 1000,
            "classes": shares,
            "other": None,
            "drifting": [],
        },
    }
    serve(page, told)
    page.reload()
    expect(page.locator("#sub-tasks li")).to_have_count(SUB_TASKS)
    expect(page.locator("#classes li")).to_have_count(CLASSES)


@pytest.mark.parametrize("width", [320, 640, 1280])  # 640 is half: a zoom of 200 %
def test_nothing_overflows_and_all_is_reached_however_much_there_is(
    browser: Browser, stream: httpx2.Client, width: int
) -> None:
    with visiting(browser, url_of(stream), width=width) as visit:
        page = visit.page
        crowd(page, stream)
        assert page.evaluate(SIDEWAYS) == 0
        strip = page.locator("#strip")
        assert strip.evaluate(WHOLE)
        assert strip.evaluate(CUT_NUMBERS) == 0
        for room in ("#sub-tasks li:first-child", "#classes", "#shares", "#retention", "#range"):
            assert page.locator(room).evaluate(CUT) == []
        for meter in page.locator("#classes .meter").all()[:3]:
            box = meter.bounding_box()
            assert box is not None
            assert box["width"] > 50  # not a dot
        heights = page.locator("#range label").evaluate_all(
            "all => all.map((one) => one.offsetHeight)"
        )
        assert max(heights) < 40  # one line
        for table in ("#retention", "#classes", "#boundaries"):
            box = page.locator(table).bounding_box()
            assert box is not None
            assert box["height"] < 700
        expect(page.locator("header .model")).to_have_attribute("title", "m" * 60)
        if width == 320:  # where most is folded away; it takes long with so much on the page
            check_accessible(page)


def test_columns_of_what_is_held_are_in_sight_beside_long_names(
    browser: Browser, stream: httpx2.Client
) -> None:
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        crowd(page, stream)
        room = page.locator("#retention")
        assert room.evaluate("room => room.scrollWidth - room.clientWidth") == 0
        first = room.locator("tbody tr").first
        expect(first).to_contain_text("and 2 more")
        expect(first.get_by_title(f"{SUB_TASKS - 1}-0-{LONG}")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_paper_the_page_is_light_whole_and_without_buttons(
    browser: Browser, stream: httpx2.Client, dark: bool
) -> None:
    with visiting(browser, url_of(stream), dark=dark, width=900) as visit:
        page = visit.page
        crowd(page, stream)
        expect(page.locator("#chart-likelihood canvas")).to_be_visible()
        page.locator("#key-other").evaluate("button => { button.hidden = false; }")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 but for its margins
        page.wait_for_timeout(500)
        assert page.evaluate(SIDEWAYS) == 0
        assert page.evaluate(SCROLLING) == []
        assert page.locator("main").evaluate(CUT) == []
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert ink == "rgb(27, 31, 39)"
        assert page.evaluate(BRIGHTNESS) < 215  # of dark lines; those for a dark ground are light
        for pressed in ("button", "input", "textarea", "nav", "footer", "#said"):
            for one in page.locator(pressed).all():
                expect(one).to_be_hidden()
        assert len(page.pdf(format="A4")) > 10_000


def test_a_point_that_no_line_leads_to_is_drawn(browser: Browser, stream: httpx2.Client) -> None:
    told = stream.get("/drift/curve").json()
    points = told["points"]
    n = len(points["time"])
    points["log_likelihood"] = [None if place % 2 else 3.0 for place in range(n)]
    inked = """() => {
        const canvas = document.querySelector('#chart-likelihood canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let n = 0;  // of violet
        for (let at = 0; at < data.length; at += 4) {
            n += data[at + 3] === 255 && data[at + 2] - data[at + 1] > 80;
        }
        return n;
    }"""
    with visiting(browser, url_of(stream)) as visit:
        page = visit.page
        page.route("**/drift/curve**", lambda route: route.fulfill(json=told))
        page.reload()
        expect(page.locator("#chart-likelihood canvas")).to_be_visible()
        page.wait_for_timeout(300)
        assert page.evaluate(inked) > 10
