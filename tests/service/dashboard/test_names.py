"""Tests for giving a class another name on the dashboard, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
from playwright.sync_api import Browser, expect

from service.settings import Settings
from tests.service.api.stack import serving, teach, training, wait_until
from tests.service.api.test_merge_classes import mistype
from tests.service.api.test_rename_class import classes
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_page import url_of
from tests.service.dashboard.test_story import check_accessible


def test_a_class_is_called_otherwise_and_one_that_was_mistyped_is_the_other(
    browser: Browser, settings: Callable[..., Settings]
) -> None:
    own = settings()
    with training(own), serving(own) as client, visiting(browser, url_of(client)) as visit:
        page = visit.page
        expect(page.locator("#names")).to_be_hidden()  # nothing has a name yet
        teach(client, batches=3)
        mistype(client)
        page.get_by_text("A class has the wrong name").click()
        form = page.locator("#names-form")
        button = form.get_by_role("button")
        form.get_by_label("Class").fill("3")
        form.get_by_label("is called").fill("lynx")
        expect(button).to_have_text("Call it so")
        check_accessible(page)
        button.click()
        expect(page.locator("#said")).to_contain_text("Class 3 is called lynx from now on")
        wait_until(lambda: set(classes(client)) == {"cat", "cta", "lynx"})

        form.get_by_label("Class").fill("cta")
        form.get_by_label("is called").fill("cat")
        form.get_by_label("Why").fill("a typing error")
        expect(button).to_have_text("Let both be one")
        expect(page.locator("#names-says")).to_contain_text("All that was learned as cta is of it")
        check_accessible(page)
        button.click()
        expect(page.locator("#said")).to_contain_text("Class cta is part of class cat from now on")
        wait_until(lambda: set(classes(client)) == {"cat", "lynx"})
        expect(form.get_by_label("Why")).to_have_value("")
        assert reasons(client) == ["a typing error"]

        form.get_by_label("Class").fill("dog")
        form.get_by_label("is called").fill("cow")
        button.click()
        expect(page.locator("#said")).to_contain_text("never seen the class 'dog'")
        expect(form.get_by_label("Class")).to_have_value("dog")


def reasons(client: httpx2.Client) -> list[str | None]:
    """Why two classes became one, each time."""
    actions = client.get("/audit").json()["actions"]
    return [one["asked"]["reason"] for one in actions if one["path"] == "/model/merge-classes"]
