"""Tests for what the dashboard shows of a table: nothing overlaps, is cut, or is without a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from service.api.routes.drift import Proposals
from tests.service.api.stack import make_settings, serving, training
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.sensors import LONG, NAMES, SENSORS, Sensors
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible

PHONE = 375
WIDTHS = (PHONE, 700, 1000, 1280, 1600)

CUT = """room => {
    const scrolls = (one) => one.closest('.wide')?.scrollWidth > one.closest('.wide')?.clientWidth;
    const excused = (one) => one.closest('svg, .name, .classes b') || scrolls(one);
    const edge = Math.min(innerWidth, room.getBoundingClientRect().right) + 1;
    const end = (node) => {
        const range = document.createRange();
        range.selectNode(node);
        return range.getBoundingClientRect().right;
    };
    return [...room.querySelectorAll('*')]
        .filter((one) => one.checkVisibility() && one.clientWidth > 1 && !excused(one))
        .filter((one) => (one.matches('.name, .meter, button')
                && one.getBoundingClientRect().right > edge)
            || [...one.childNodes].some((node) => node.nodeType === 3 && end(node) > edge))
        .map((one) => one.outerHTML.slice(0, 200));
}"""
"""What lies beyond the edge of its room, and neither scrolls there nor has its text as a title."""

OVERLAPPING = """room => {
    const boxes = [...room.querySelectorAll('section')].map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        const [box, content] = [one.getBoundingClientRect(), range.getBoundingClientRect()];
        const scrolls = one.querySelector('.wide');
        return { left: box.left, top: box.top, bottom: box.bottom,
            right: scrolls ? box.right : Math.max(box.right, content.right) };
    });
    return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
    ));
}"""
"""Pairs of sections that lie on top of each other, with all that is in them."""

WITHIN_CARD = """name => name.getBoundingClientRect().right
    <= name.closest('.card').getBoundingClientRect().right"""

SIDEWAYS = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def watched(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that has learned two sub-tasks of a table."""
    settings = make_settings(
        redis_url,
        tmp_path_factory.mktemp("table"),
        preset="flat",
        n_components=20,
        warm_up=300,
        checkpoint_interval_s=0.1,
    )
    sensors = Sensors()
    with training(settings), serving(settings) as client:
        sensors.send(client, 1500)
        names = client.put("/model/feature-names", json={"feature_names": list(NAMES)})
        names.raise_for_status()
        sensors.send(client, 1000, p_out=3.5)
        yield client


def test_whoever_tries_a_sample_is_told_the_features_in_their_order(
    browser: Browser, watched: httpx2.Client
) -> None:
    with visiting(browser, url_of(watched)) as visit:
        wants = visit.page.locator("#sample-wants")
        expect(wants).to_have_text(f"12 numbers make a sample: {', '.join(NAMES)}.")
        expect(visit.page.locator("#sample-draw")).to_be_hidden()


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_a_boundary_lie_beside_or_below_each_other_at_any_width(
    browser: Browser, watched: httpx2.Client, width: int
) -> None:
    [boundary] = watched.get("/drift/boundaries").json()["boundaries"]
    assert boundary["explanation"]["features"]
    with visiting(browser, url_of(watched), width=width) as visit:
        page = visit.page
        page.goto(f"/#/boundary/{boundary['id']}")
        columns = page.locator(".columns")
        expect(columns.locator("table")).not_to_have_count(0)
        assert columns.evaluate(OVERLAPPING) == []
        assert columns.evaluate(CUT) == []
        assert page.evaluate(SIDEWAYS) == 0
        for box in columns.locator(".wide").all():
            name = box.locator(".name").first
            if name.count():
                expect(name).to_have_attribute("title", name.inner_text())
        check_accessible(page)


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_nothing_is_cut_off_of_what_is_held_of_versions_and_of_the_way_to_them(
    browser: Browser, watched: httpx2.Client, width: int
) -> None:
    with visiting(browser, url_of(watched), width=width) as visit:
        page = visit.page
        expect(page.locator("#retention-rows tr")).not_to_have_count(0)
        expect(page.locator("#version-rows button")).not_to_have_count(0)
        for room in map(page.locator, ("#retention", "#versions", "header nav")):
            assert room.evaluate(CUT) == []
            assert room.evaluate("room => room.scrollWidth - room.clientWidth") == 0
        assert page.evaluate(SIDEWAYS) == 0
        check_accessible(page)


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_the_name_of_a_class_stays_in_its_card_however_long_it_is(
    browser: Browser, watched: httpx2.Client, width: int
) -> None:
    with visiting(browser, url_of(watched), width=width) as visit:
        page = visit.page
        card = page.locator("#sub-tasks li").first
        expect(card).to_contain_text(LONG)
        expect(card.get_by_title(LONG)).to_be_visible()
        assert card.evaluate(CUT) == []
        assert card.get_by_title(LONG).evaluate(WITHIN_CARD)
        for place in ("#classes", "#shares", "#retention"):
            expect(page.locator(place).get_by_title(LONG).first).to_be_attached()
            assert page.locator(place).evaluate(CUT) == []
        assert page.evaluate(SIDEWAYS) == 0


BARS = """one => one.querySelector('path').getAttribute('d').match(/M[^Z]+/g).map((bar) => {
    const [, zero, level] = bar.match(/^M\\S+ (\\S+)V([^H]+)H/);
    return Math.abs(zero - level);
})"""
"""How high the bars of a profile are, of 100."""


def test_profiles_of_a_table_are_deviations_from_usual_with_the_names_of_what_stands_out(
    browser: Browser, watched: httpx2.Client
) -> None:
    [boundary] = watched.get("/drift/boundaries").json()["boundaries"]
    speed, p_out = NAMES.index("speed [rpm]"), NAMES.index("p_out [bar]")
    with visiting(browser, url_of(watched)) as visit:
        page = visit.page
        expect(page.locator("#sub-tasks-scale")).to_contain_text("in deviations from usual")
        card = page.locator("#sub-tasks li").first
        for profile in card.locator("svg.profile").all():
            bars = profile.evaluate(BARS)
            assert len(bars) == len(NAMES)
            assert bars[speed] < 30  # no tower, though its numbers are the largest
        strange = card.get_by_role("img", name=f"A sample drawn of class {LONG}").first
        expect(strange).to_have_attribute("aria-label", re.compile(r"; p_in \[bar\] \u2212\d\.\d"))
        page.goto(f"/#/boundary/{boundary['id']}")
        looks = page.locator(".prototypes li")
        expect(page.locator("#boundary-page")).to_contain_text("in deviations from usual")
        expect(looks.first).to_contain_text(re.compile(r"p_out \[bar\] \+\d\.\d"))
        assert looks.first.locator("svg").evaluate(BARS)[p_out] > 10
        expect(looks.last).to_contain_text("p_out [bar]")


def test_a_boundary_is_listed_with_the_name_of_what_has_changed(
    browser: Browser, watched: httpx2.Client
) -> None:
    with visiting(browser, url_of(watched)) as visit:
        page = visit.page
        said = re.compile(r": p_out \[bar\] 9\.\d, before 8\.4")
        cause = page.locator("#boundaries .cause")
        expect(cause).to_have_text(said)
        expect(page.locator("#sub-tasks li").last).to_contain_text("before 8.4")
        cause.click()
        expect(page.locator("#boundary-page .lead")).to_contain_text(said)


def test_a_proposal_names_the_features_in_which_it_is_unusual(
    browser: Browser, watched: httpx2.Client
) -> None:
    shaking = [mean for mean, _ in SENSORS.values()]
    shaking[NAMES.index("vibration [mm/s]")] = 6.6
    proposal = {
        "proposal": 1,
        "origin": "unknown",
        "samples": 40,
        "first_sample": 100,
        "last_sample": 900,
        "prototype": shaking,
        "nearest_classes": ["ok", LONG],
        "nearest_probabilities": [0.5, 0.5],
    }
    answer = Proposals.model_validate({"proposals": [proposal]}).model_dump()
    with visiting(browser, url_of(watched)) as visit:
        page = visit.page
        page.route("**/drift/proposals", lambda route: route.fulfill(json=answer))
        page.reload()
        card = page.locator("#proposals [data-proposal]")
        expect(card.locator(".unusual")).to_have_text(
            re.compile(r"^Unusual: vibration \[mm/s\] 6\.6, usually (1\.9|2)\b")
        )
        expect(card).to_contain_text("in deviations from usual")
        check_accessible(page)


def test_a_version_that_has_learned_more_is_gone_forward_to(
    browser: Browser, watched: httpx2.Client
) -> None:
    kept = watched.get("/model/versions").json()["versions"]
    newest, old = kept[0]["version"], kept[-1]["version"]
    watched.post("/model/rollback", json={"version": old}).raise_for_status()
    with visiting(browser, url_of(watched)) as visit:
        page = visit.page
        button = page.get_by_role("button", name=f"Go forward to version {newest}", exact=True)
        button.click()
        dialog = page.get_by_role("dialog", name=f"Go forward to version {newest}?")
        dialog.get_by_role("button", name="Go forward").click()
        expect(page.locator("#said")).to_have_text(re.compile(f"Version {newest} answers again"))
        name = f"Go back to version {old}"
        expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()


def test_beside_features_that_creep_the_page_does_not_say_that_nothing_changed(
    browser: Browser, watched: httpx2.Client
) -> None:
    drift = {**watched.get("/drift").json(), "phase": "armed", "armed": True}
    assert drift["feature_drift"] is not None
    with visiting(browser, url_of(watched)) as visit:
        visit.page.route("**/drift", lambda route: route.fulfill(json=drift))
        for creeping, said in [
            (0, "Armed, nothing has changed"),
            (1, "Armed, 1 feature creeps"),
            (3, "Armed, 3 features creep"),
        ]:
            drift["feature_drift"] = {**drift["feature_drift"], "drifting": creeping}
            drift["time"] += 60  # long after the boundary
            visit.page.reload()
            expect(visit.page.locator("#phase")).to_have_text(said)
