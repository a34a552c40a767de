"""Tests for the documentation site and for the programs of its how-to pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2
import orjson
import pytest

from clients.commands.cli import COMMANDS
from gmr import GMRClient
from tests.service.api.stack import make_settings, redis_server, serving, training

ROOT = Path(__file__).parents[1]
PROGRAMS = {
    page.stem: programs
    for page in (ROOT / "docs/start.md", *sorted((ROOT / "docs/howto").glob("*.md")))
    if (programs := re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text("utf-8")))
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    directory = tmp_path_factory.mktemp("howto")
    with redis_server(directory / "redis") as redis:
        settings = make_settings(
            redis.url, directory / "data", n_components=60, warm_up=500, experts=True
        )
        with training(settings), serving(settings) as client:
            yield client


PRINTED = {
    "start": r"\['low' 'high'\]\n\[ True False\](?s:.*)sub-task began about sample (1[89]|20)",
    "images": r"\[0 1 2 3\]",
    "embeddings": r"\[(None ){4}None\]\n\['weather'( 'weather'){4}\]\n\['sport' 'politics'\]",
    "sensors": r"sensor 3: ",
    "tables": r"\['(fine|fraud)'",
    "unlabelled": r"\[ True False\]",
    "late-labels": r"(?=.*\[1 1 1 0\])\['paid' 'paid' 'paid' 'open'\]",
    "alerts": r"changed: ",
}
"""Page -> what its programs print, as far as the page says it."""


def test_every_page_with_a_program_is_tried() -> None:
    assert PRINTED.keys() == PROGRAMS.keys()


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_programs_of_a_page_do_what_it_says(
    service: httpx2.Client,
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = str(service.base_url).rstrip("/")
    with GMRClient(url) as client:
        client.make_model(page)  # a fresh one for each page
    if page == "alerts":
        with GMRClient(url, model=page) as client:
            client.ingest([[float(i)] for i in range(20)])
            client.declare_boundary()
            client.wait_until_learned()
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS[page]:
        assert 'GMRClient("http://127.0.0.1:8000")' in program
        own = f'GMRClient("{url}", model="{page}")'
        text = program.replace('GMRClient("http://127.0.0.1:8000")', own)
        exec(compile(text, f"{page}.md", "exec"), {})  # as a reader would
    assert re.match(PRINTED[page], capsys.readouterr().out)
    with GMRClient(url) as client:
        client.take_down_model(page)


class Links(HTMLParser):
    """What a page refers to, and what in it can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if values.get("id"):
            self.ids.add(str(values["id"]))
        self.targets += [str(values[name]) for name in ("href", "src") if values.get(name)]
        loads = tag in ("script", "img", "source") or values.get("rel") in ("stylesheet", "preload")
        if loads:
            self.loaded += [str(values[name]) for name in ("href", "src") if values.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed (pip install 'gmr-stream[docs]')")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(directory)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "GMR_PORT": "1", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return directory


def test_no_link_of_the_site_is_dead_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: Links(page.read_text("utf-8")) for page in site.rglob("*.html")}
    assert len(pages) > 30
    dead = []
    for page, links in pages.items():
        if page.name == "404.html":  # whose links begin at the root of a server
            continue
        assert not [one for one in links.loaded if urlsplit(one).scheme.startswith("http")], page
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = there / "index.html" if there.is_dir() else there
            known = there in pages and parts.fragment not in {"", *pages[there].ids}
            if not there.exists() or (known and not parts.fragment.startswith("__")):
                dead.append((page.name, target))
    assert dead == []


def test_the_references_have_every_route_and_every_command(site: Path) -> None:
    routes = (site / "reference" / "http.html").read_text("utf-8")
    document = orjson.loads((ROOT / "docs" / "openapi.json").read_bytes())
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in routes
    commands = (site / "reference" / "commands.html").read_text("utf-8")
    for name in COMMANDS:
        assert f"<code>gmr {name}</code>" in commands
    assert "<code>--label-column</code>" in commands
    assert "<code>--redis-url</code>" in commands
    examples = (site / "reference" / "examples.html").read_text("utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f">{path.name}<" in examples
