"""Tests for the files of the dashboard: small, cached by content, from nowhere else."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import httpx2
import pytest

from service.api.routes.events import KINDS
from service.api.routes.home import FILES, PAGE
from tests.service.api.stack import problem

MOST_BYTES = 200_000
"""Page, scripts, style and library together, compressed."""

STATIC = Path(__file__).parents[3] / "service" / "api" / "static"


def test_the_page_and_all_that_it_loads_are_small() -> None:
    packed = sum(len(file.packed) for file in FILES.values()) + len(gzip.compress(PAGE.encode()))
    assert packed < MOST_BYTES


def test_the_page_loads_every_script_and_no_other(blank: httpx2.Client) -> None:
    page = blank.get("/").text
    named = set(re.findall(r'(?:src|href)="static/([^"]+)"', page))
    assert named == FILES.keys()
    for name in named:
        answer = blank.get(f"/static/{name}")
        assert answer.status_code == 200
        assert answer.content == (STATIC / name).read_bytes()
    for script in FILES:
        if script.endswith(".js"):
            text = FILES[script].plain.decode()
            for imported in re.findall(r'from "\./([^"]+)"', text):
                assert imported in FILES


def test_the_page_hears_every_kind_of_event() -> None:
    script = FILES["line.js"].plain.decode()
    assert [kind for kind in KINDS if f'"{kind}"' not in script] == []


def test_a_file_that_the_browser_has_is_not_sent_again(blank: httpx2.Client) -> None:
    first = blank.get("/static/main.js")
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = blank.get("/static/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = blank.get("/static/main.js", headers={"If-None-Match": '"other"'})
    assert other.content == first.content
    plain = blank.get("/static/main.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content


@pytest.mark.parametrize("path", ["/", "/static/main.js"])
def test_a_file_comes_in_no_coding_that_the_client_excludes(
    blank: httpx2.Client, path: str
) -> None:
    plain = blank.get(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    packed = blank.get(path, headers={"Accept-Encoding": "identity;q=0, *;q=0.1"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    refused = blank.get(path, headers={"Accept-Encoding": "*;q=0"})
    assert problem(refused, 406, "not-acceptable")["offered"] == ["gzip", "identity"]


@pytest.mark.parametrize(
    "path", ["nothing.js", "", "../home.py", "%2e%2e/routes/home.py", "vendor", "index.html"]
)
def test_nothing_else_is_served(blank: httpx2.Client, path: str) -> None:
    problem(blank.get(f"/static/{path}"), 404, "not-found")


def test_the_page_says_of_what_its_inlier_rate_is(blank: httpx2.Client) -> None:
    tile = re.search(r'<div id="tile-inliers" title="([^"]+)">', blank.get("/").text)
    assert tile is not None
    assert "above the mean of the reference minus one deviation" in tile[1]


def test_no_script_and_no_style_is_written_into_the_page(blank: httpx2.Client) -> None:
    answer = blank.get("/")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", answer.text)


def test_vendored_files_are_those_that_their_makers_published() -> None:
    told = (STATIC / "vendor" / "VENDORED.md").read_text("utf-8")
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", told))
    there = {path.name: path for path in (STATIC / "vendor").iterdir() if path.suffix != ".md"}
    assert sums.keys() == there.keys()
    for name, path in there.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[name], name
