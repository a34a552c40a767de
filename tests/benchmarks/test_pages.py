"""Tests for pages on benchmarks: each has its row, and every command with options can be read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import drift, paper, paper_preset, streams
from clients.commands.bench import names
from clients.http.errors import InputError
from tests.test_options import PAGES, code_of

ROOT = Path(__file__).parents[2]
LIST = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
MEASURED = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")

READERS: dict[str, Callable[[Sequence[str]], Any]] = {
    "drift": drift.plan_of,
    "paper": paper.plan_of,
    "paper_preset": paper_preset.options_of,
    "streams": streams.plan_of,
}
"""Benchmarks that are scripts with options."""

CALL = re.compile(r"(?:python -m benchmarks\.|gmr bench )(\w+)((?: [^#]*)?)")

NO_BENCHMARKS = "\n## Kills and fail-overs\n"
"""From here on options are those of other commands."""


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every call of such a script in a page, with its options; dots stand for the last one."""
    last = ""
    for line in "\n".join(code_of(text)).splitlines():
        for name, rest in CALL.findall(line.replace("... ", last)):
            last = f"python -m benchmarks.{name} "
            if name in READERS and rest.strip() != "--help":
                yield name, shlex.split(rest)


def can_read(name: str, options: list[str]) -> bool:
    """Whether a script understands its options."""
    try:
        READERS[name](options)
    except (InputError, SystemExit):
        return False
    return True


def test_every_benchmark_has_a_row() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|", LIST)
    assert sorted(rows) == sorted({*names(), "fleet"})  # which measures nothing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_benchmarks_can_be_read(page: Path) -> None:
    assert not [call for call in calls(page.read_text("utf-8")) if not can_read(*call)]


def test_options_by_themselves_are_those_of_a_benchmark() -> None:
    before, there, _ = MEASURED.partition(NO_BENCHMARKS)
    assert there
    found = [span for span in code_of(before) if span.startswith("--")]
    assert len(found) >= 15
    for span in found:
        assert any(can_read(name, shlex.split(span)) for name in READERS), span
