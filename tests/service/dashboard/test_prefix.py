"""Tests for the dashboard below a path of a proxy: every address is relative."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks._ports import free_port
from service.settings import Settings
from tests.service.api.stack import plain_client, serving, teach, training, wait_until
from tests.service.dashboard.browser import visiting
from tests.service.dashboard.test_page import url_of

CONFIGURED = """
pid pid;
error_log error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        location /gmr/ {{ proxy_pass {service}/; proxy_set_header Host $http_host; }}
    }}
}}
"""
"""As docs/dashboard.md has it."""


@contextlib.contextmanager
def proxied(folder: Path, service: str) -> Iterator[str]:
    """The address of nginx before a service."""
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(CONFIGURED.format(port=port, service=service), "utf-8")
    command = ["nginx", "-p", str(folder), "-c", str(config), "-e", "error.log"]
    process = subprocess.Popen([*command, "-g", "daemon off;"])
    try:
        with plain_client(f"http://127.0.0.1:{port}") as client:

            def up() -> bool:
                with contextlib.suppress(httpx2.TransportError):
                    return client.get("/gmr/health/live").status_code == 200
                return False

            wait_until(up)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def tried_out(page: Page, operation: str) -> tuple[str, str]:
    """What the documentation asks when an operation is tried out, and the status of the answer."""
    block = page.locator(f"[id$='-{operation}'].opblock")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    asked = block.locator(".request-url pre").inner_text()
    return asked, block.locator(".live-responses-table .response-col_status").last.inner_text()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx on the PATH")
def test_page_events_requests_and_documentation_work_below_a_path(
    browser: Browser, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    own = settings(detector="none", preset="flat")
    with training(own), serving(own) as client, proxied(tmp_path, url_of(client)) as url:
        teach(client, 3)
        client.post("/drift/boundary").raise_for_status()
        teach(client, 3)
        client.put("/models/pump").raise_for_status()
        with visiting(browser, f"{url}/gmr/") as visit:
            page = visit.page
            page.goto(f"{url}/gmr/")
            expect(page.locator("#link")).to_have_text("live")
            expect(page.locator("#sub-tasks [role=img]")).not_to_have_count(0)
            page.locator("#mode").get_by_role("button", name="Freeze").click()
            expect(page.locator("#phase")).to_have_text("Frozen")
            page.locator("#boundaries a").click()
            expect(page.locator("#boundary-title")).to_contain_text("Boundary 1")
            page.get_by_role("link", name="gmr-stream").click()
            page.get_by_label("Model", exact=True).select_option("pump")
            page.wait_for_url(f"{url}/gmr/models/pump/")
            expect(page.locator("#link")).to_have_text("live")
            page.get_by_label("Model", exact=True).select_option("")
            page.wait_for_url(f"{url}/gmr/")
            for where in ("/gmr", "/gmr/models/pump"):
                page.goto(f"{url}{where}/docs")
                assert tried_out(page, "drift") == (f"{url}{where}/drift", "200")
            # `visiting` has begun at the root, where nobody answers.
            visit.addresses = {one for one in visit.addresses if one != f"{url}/"}
