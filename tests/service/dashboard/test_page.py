"""Tests for the dashboard's parts: breaks, tables, keyboards, long histories, odd names."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Route, expect

from benchmarks import _history as history
from benchmarks._ports import free_port
from clients.http.client import GMRClient
from service.api.curve import Curve
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import learned, send, serving, training
from tests.service.api.test_curve import rows
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.digits import Digits
from tests.service.dashboard.test_story import check_accessible

MakeSettings = Callable[..., Settings]

CONTINUED = """async ([answer, events]) => {
    const { Curve } = await import('/static/curve.js');
    const curve = Curve.of(answer);
    for (const event of events) curve.add(event);
    return [curve.perPoint, curve.points];
}"""


def url_of(client: httpx2.Client) -> str:
    return str(client.base_url).rstrip("/")


def declare(client: httpx2.Client, digits: Digits, *classes: int) -> None:
    """A sub-task, and its end by hand."""
    digits.send(client, classes, 100)
    client.post("/drift/boundary").raise_for_status()
    learned(client)


def test_what_happened_while_no_api_answered_is_caught_up_with(
    browser: Browser, settings: MakeSettings
) -> None:
    quiet = settings(detector="none", port=free_port())
    digits = Digits()
    with training(quiet), serving(quiet) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        declare(client, digits, 0, 1)
        expect(page.locator("#boundaries li")).to_have_count(1)
        page.evaluate("window.untouched = true")
        context = page.context
        # This replica goes; another is there, and the stream goes on.
        with serving(quiet.model_copy(update={"port": free_port()})) as other:
            context.set_offline(True)
            declare(other, digits, 2, 3)
        context.set_offline(False)
        expect(page.locator("#boundaries li")).to_have_count(2)
        expect(page.locator("#link")).to_have_text("live")
        assert page.evaluate("window.untouched")
        visit.complaints.clear()  # that the network was away


CAUSE = """async (row) => (await import('/static/boundary.js')).cause(row, null)"""


def test_classes_are_listed_by_their_labels_in_whichever_order_they_came(
    browser: Browser, settings: MakeSettings
) -> None:
    quiet = settings(detector="none", preset="flat", checkpoint_interval_s=0.05)
    digits = Digits()
    with training(quiet), serving(quiet) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        for label in (7, 2, 5):
            digits.send(client, (label,), 100)
        expect(page.locator("#sub-tasks li")).to_contain_text("2, 5, 7")
        expect(page.locator("#classes b")).to_have_text(["2", "5", "7"])
        declare(client, digits, 1)
        expect(page.locator("#retention tbody th").first).to_contain_text("2, 5, 7")
        one, other = page.evaluate(
            """async () => {
                const { byLabel } = await import('/static/format.js');
                return [[10, 'b', 9, 'a'], ['pump 10', 'pump 9']].map((all) => all.sort(byLabel));
            }"""
        )
        assert (one, other) == ([9, 10, "a", "b"], ["pump 9", "pump 10"])


def test_the_cause_of_a_boundary_is_told_as_its_numbers_have_it(
    browser: Browser, settings: MakeSettings
) -> None:
    with serving(settings()) as client, visiting(browser, url_of(client)) as visit:

        def cause(signal: str, effect: float | None, **feature: float) -> str:
            named = [{"feature": 1, "name": "pressure", **feature}] if feature else []
            explanation = {"effect": effect, "features": named}
            row = {"detector": "sequential", "signal": signal, "explanation": explanation}
            told: str = visit.page.evaluate(CAUSE, row)
            return told

        assert cause("likelihood", 1.0) == "samples became more likely"
        assert cause("likelihood", None) == "samples became more likely"
        assert cause("inliers", -1.0) == "samples became less likely"
        both = "some samples became more likely, others less"
        assert cause("likelihood", -600.0) == cause("inliers", 0.1) == both
        moved = {"before": 1.7, "mean": -2.0, "deviation_before": 1.1}
        assert cause("inliers", -1.0, **moved, deviation_now=1.0).endswith(
            ": pressure \N{MINUS SIGN}2, before 2"
        )
        assert cause("inliers", -1.0, **moved, deviation_now=0.0).endswith(
            ": pressure stays at \N{MINUS SIGN}2, before it varied by 1.1"
        )


def test_after_a_rollback_no_tile_speaks_of_a_batch_that_is_gone(
    browser: Browser, settings: MakeSettings
) -> None:
    quiet = settings(detector="none", checkpoint_interval_s=0.05)
    digits = Digits()
    with training(quiet), serving(quiet) as client:
        declare(client, digits, 0, 1)
        digits.send(client, (2, 3), 100)
        with visiting(browser, url_of(client)) as visit:
            note = visit.page.locator("#tile-accuracy .note")
            expect(note).to_contain_text("newest batch")
            version = client.get("/model/versions").json()["versions"][-1]["version"]
            client.post("/model/rollback", json={"version": version}).raise_for_status()
            expect(note).to_have_text("no batch since the rollback or upload")
            expect(visit.page.locator("#tile-accuracy .value")).to_have_text(re.compile("%$"))


def test_tables_are_drawn_as_profiles_and_strange_names_are_text(
    browser: Browser, settings: MakeSettings
) -> None:
    strange = "<img src=x onerror=alert(1)>"
    quiet = settings(detector="none", preset="flat")
    random = np.random.default_rng(0)
    with training(quiet), serving(quiet) as client:
        for level, label in ((0.0, "calm"), (5.0, strange)):
            x = random.normal(level, 1, (300, 6)).astype("f4")
            send(client, RawBatch.of(x, [label] * 300)).raise_for_status()
            client.post("/drift/boundary").raise_for_status()
        learned(client)
        with visiting(browser, url_of(client)) as visit:
            page = visit.page
            expect(page.locator("#sub-tasks svg.profile").first).to_be_visible()
            expect(page.locator("#sub-tasks")).to_contain_text(strange)
            expect(page.locator("#sample-draw")).to_be_hidden()
            expect(page.locator("#phase")).to_have_text("Boundary 2 found")
            box = page.get_by_label("Paste the features")
            ask = page.get_by_role("button", name="Ask the model")
            box.fill("5, 5, 5, 5, 5, 5")
            ask.click()
            expect(page.locator("#answer-class")).to_have_text(strange)
            for text, said in (
                ("1 2 3", "These are 3 numbers; a sample has 6."),
                ("1 2 x 4 5 6", "“x” is no number."),
                ("", "There is nothing to ask about."),
            ):
                box.fill(text)
                ask.click()
                expect(page.locator("#answer")).to_contain_text(said)

            # What creeps is told by its name.
            expect(page.locator("#features-none")).to_be_visible()
            names = {"feature_names": [strange, *(f"sensor {i}" for i in range(1, 6))]}
            client.put("/model/feature-names", json=names).raise_for_status()
            for step in range(32):
                x = random.normal(5.0, 1, (100, 6)).astype("f4")
                x[:, 0] += 0.1 * step
                send(client, RawBatch.of(x, [strange] * 100)).raise_for_status()
            expect(page.locator("#said")).to_have_text(
                f"{strange} creeps: no boundary, and learned as it goes."
            )
            first = page.locator("#features li").first
            expect(first.locator("b")).to_have_text(strange)
            expect(first).to_contain_text("drifts; before: 6.11")  # once all is learned
            expect(first.locator("svg[data-level=near] path")).to_be_visible()
            expect(page.locator("#features li svg[data-level=plain]")).to_have_count(5)
            check_accessible(page)


def test_features_far_from_zero_are_named(browser: Browser, settings: MakeSettings) -> None:
    quiet = settings(detector="none")
    with training(quiet), serving(quiet) as client, visiting(browser, url_of(client)) as visit:
        told = visit.page.locator("#features-coarse")
        expect(told).to_be_hidden()
        x = np.random.default_rng(0).normal((0, 1.8e9, 0), size=(200, 3))
        send(client, RawBatch.of(x)).raise_for_status()
        expect(told).to_have_text(
            "float32 is too coarse for feature 1: what varies there is lost. "
            "Subtract an offset before sending, then reset."
        )


def test_everything_is_reached_by_keyboard(browser: Browser, settings: MakeSettings) -> None:
    quiet = settings(detector="none", checkpoint_interval_s=0.05)
    with training(quiet), serving(quiet) as client:
        declare(client, Digits(), 0, 1)
        with visiting(browser, url_of(client)) as visit:
            page, keys = visit.page, visit.page.keyboard
            expect(page.locator("#boundaries li")).to_have_count(1)
            keys.press("Tab")
            expect(page.get_by_text("Skip to what is going on")).to_be_focused()
            page.locator("#boundaries a").focus()
            keys.press("Enter")
            expect(page.locator("#boundary-page h2")).to_be_focused()
            expect(page.locator("#boundary-page")).to_contain_text("Declared by a person.")
            # A declared boundary has no new samples: what is not known is not made up.
            expect(page.locator("#boundary-page .facts")).to_contain_text("unknown")
            keys.press("Shift+Tab")
            keys.press("Enter")
            expect(page.locator("#overview")).to_be_visible()
            page.get_by_label("all", exact=True).focus()
            keys.press("ArrowLeft")
            expect(page.get_by_label("24 h")).to_be_checked()
            page.get_by_role("button", name="Go back").first.focus()
            keys.press("Enter")
            expect(page.get_by_role("button", name="Stay")).to_be_focused()
            keys.press("Escape")
            expect(page.locator("#rollback")).to_be_hidden()
            assert client.get("/drift").json()["boundaries"] == 1


def test_a_day_of_history_is_few_points_and_goes_on_as_the_service_would(
    browser: Browser, settings: MakeSettings
) -> None:
    with serving(settings()) as client, visiting(browser, url_of(client)) as visit:
        known, n = 1000, 1700
        begun = Curve(500)
        begun.add(rows(known))
        answer = {"batches_per_point": begun.batches_per_point, "points": begun.columns()}
        events = [history.event(index) for index in range(known, n)]
        per_point, points = visit.page.evaluate(CONTINUED, [answer, events])
        # The page keeps a few more points than it asks for, before it halves them.
        whole = Curve(600)
        whole.add(rows(n))
        assert per_point == whole.batches_per_point == 4
        columns = whole.columns()
        ratios = columns.pop("ratios")
        assert len(points) == len(columns["time"])
        for place, point in enumerate(points):
            same(point, {name: column[place] for name, column in columns.items()})
            same(point["ratios"], {name: column[place] for name, column in ratios.items()})


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if name in ("batch_index", "sample_index", "armed", "sub_task"):
            continue  # which no chart asks for
        got = found.get(name)
        if value is None or isinstance(value, str):
            assert got is value, name
        else:
            np.testing.assert_allclose(got, value, rtol=1e-9, err_msg=name)


def test_without_a_trainer_the_page_says_so(browser: Browser, settings: MakeSettings) -> None:
    with serving(settings()) as client, visiting(browser, url_of(client)) as visit:
        expect(visit.page.locator("#phase")).to_have_text("No news")
        expect(visit.page.locator("#phase-says")).to_contain_text("gmr trainer")
        check_accessible(visit.page)


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("flat", "Samples depend on each other, so that the detector needs more of them."),
        ("paper", "The model has yet to converge."),
    ],
)
def test_why_the_detector_waits_is_said(
    browser: Browser, settings: MakeSettings, preset: str, says: str
) -> None:
    waiting = settings(preset=preset, warm_up=200)
    counter = np.arange(400, dtype=np.float32)[:, None]
    with training(waiting), serving(waiting) as client, visiting(browser, url_of(client)) as visit:
        for part in np.split(counter, 8):
            send(client, RawBatch.of(part)).raise_for_status()
        sentence = visit.page.locator("#phase-says")
        expect(sentence).to_contain_text(f"{says} When the detector may speak is not known.")
        expect(visit.page.locator("#phase")).to_have_text("Learning")


def test_shadows_are_drawn_where_nothing_decides(browser: Browser, settings: MakeSettings) -> None:
    quiet = settings(detector="none", shadow_detectors="paper", preset="flat")
    with training(quiet), serving(quiet) as client, visiting(browser, url_of(client)) as visit:
        Digits().send(client, (0, 1), 500)
        chart = visit.page.locator("#chart-statistic")
        expect(chart.locator("canvas")).to_be_visible()
        expect(chart).to_contain_text("paper")
        expect(visit.page.locator("#detectors tr").first).to_contain_text("boundaries are declared")


def test_a_model_is_frozen_thawed_and_aimed_from_the_page(
    browser: Browser, settings: MakeSettings
) -> None:
    quiet = settings(warm_up=300)
    digits = Digits()
    with training(quiet), serving(quiet) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        digits.send(client, (0, 1), 200)
        mode = page.locator("#mode")
        expect(page.locator("#mode-name")).to_have_text("Learning")
        expect(mode.get_by_role("button", name="Thaw")).to_have_count(0)
        mode.get_by_label("Why").fill("a new lens")
        mode.get_by_role("button", name="Freeze").click()
        expect(page.locator("#mode-name")).to_have_text("Frozen")
        expect(page.locator("#phase")).to_have_text("Frozen")
        seen = learned(client)["samples_seen"]
        digits.send(client, (2, 3), 200)
        expect(page.locator("#mode-passed")).to_contain_text("200 samples in all")
        check_accessible(page)
        mode.get_by_role("button", name="Detect only").click()
        expect(page.locator("#phase")).to_have_text("Detecting only")
        mode.get_by_role("button", name="Thaw").click()
        expect(page.locator("#mode-name")).to_have_text("Learning")
        mode.get_by_label("Samples between two false alarms").fill("7000")
        mode.get_by_role("button", name="Ask for it").click()
        expect(page.locator("#ert-says")).to_have_text(
            "One false alarm in 7,000 samples is asked for, by a person."
        )
        mode.get_by_label("Samples between two false alarms").fill("3")
        mode.get_by_role("button", name="Ask for it").click()
        expect(page.locator("#said")).to_contain_text("Expected 1,000 samples or more")
        assert learned(client)["samples_seen"] == seen
        with GMRClient(url_of(client)) as other:
            changes = list(other.kept_events(kinds=["mode_changed"]))
        assert [one.data["mode"] for one in changes] == ["frozen", "detect_only", "learn"]
        assert changes[0].data["reason"] == "a new lens"


def test_what_is_written_while_an_answer_is_under_way_stays(
    browser: Browser, settings: MakeSettings
) -> None:
    made = settings(warm_up=300)
    digits = Digits()
    with training(made), serving(made) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        digits.send(client, (0, 1), 200)
        expect(page.locator("#mode-name")).to_have_text("Learning")
        held: list[Route] = []
        page.route("**/drift/ert", lambda route: held.append(route))
        ert = page.get_by_label("Samples between two false alarms")
        ert.fill("7000")
        page.get_by_role("button", name="Ask for it").click()
        ert.fill("8000")
        page.locator("#mode").get_by_label("Why").fill("a new lens")
        while not held:
            page.wait_for_timeout(10)
        held[0].continue_()
        expect(page.locator("#said")).to_contain_text("7,000")
        expect(ert).to_have_value("8000")
        expect(page.locator("#mode").get_by_label("Why")).to_have_value("a new lens")
        page.get_by_role("button", name="Ask for it").click()
        while len(held) < 2:
            page.wait_for_timeout(10)
        held[1].continue_()
        expect(ert).to_have_value("")


def test_a_picture_of_another_size_is_brought_to_the_models_and_the_page_says_so(
    browser: Browser, settings: MakeSettings
) -> None:
    made = settings(detector="none", preset="flat")
    x = np.random.default_rng(0).integers(0, 255, (300, 4, 8), dtype=np.uint8)
    with training(made), serving(made) as client:
        send(client, RawBatch.of(x, ["a"] * 300)).raise_for_status()
        learned(client)
        with visiting(browser, url_of(client)) as visit:
            page = visit.page
            expect(page.locator("#sample-wants")).to_contain_text("32 numbers")
            for size, said in (((8, 4), 0), ((20, 30), 1), ((8, 4), 0)):
                content = io.BytesIO()
                Image.new("L", size, 128).save(content, "PNG")
                page.evaluate("document.getElementById('answer').replaceChildren()")
                page.locator("#sample-file").set_input_files(
                    {"name": "one.png", "mimeType": "image/png", "buffer": content.getvalue()}
                )
                expect(page.locator("#answer-class")).to_have_text("a")
                expect(page.locator("#answer-brought")).to_have_count(said)
                if said:
                    expect(page.locator("#answer-brought")).to_have_text(
                        "The picture was brought from 20 \u00d7 30 to 8 \u00d7 4 pixels."
                    )
