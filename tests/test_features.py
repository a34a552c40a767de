"""docs/features.md: every row says how far it goes, and what it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import orjson
import pytest

from clients.commands.cli import COMMANDS, load
from tests.test_docs import PAGES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "features.md").read_text("utf-8")
ROWS = {
    int(cells[0]): cells[1:]
    for line in TEXT.splitlines()
    if line.startswith("| ")
    and (cells := [cell.strip() for cell in line.strip("|").split(" | ")])[0].isdigit()
}
"""Number of a row -> what is asked for, what one does, how far it goes, its test."""


def test_every_row_is_there_once_and_counted() -> None:
    numbers = re.findall(r"(?m)^\| (\d+) \|", TEXT)
    assert [int(number) for number in numbers] == list(range(1, 72))
    verdicts = [row[2].partition(":")[0] for row in ROWS.values()]
    counts = [verdicts.count(verdict) for verdict in ("WORKS", "PARTLY", "NO")]
    assert sum(counts) == len(ROWS) == 71
    told = re.search(r"Of (\d+) rows, (\d+) are WORKS, (\d+) PARTLY and (\d+) NO\.", TEXT)
    assert told
    assert [int(number) for number in told.groups()] == [71, *counts]


def test_what_does_not_work_is_said_in_the_row_and_below() -> None:
    missing = {
        number for number, row in ROWS.items() if row[2].partition(":")[0] in ("PARTLY", "NO")
    }
    assert all(len(ROWS[number][2].partition(":")[2]) > 20 for number in missing)
    below = re.findall(r"(?m)^\* \*\*(\d+)\*\* ", TEXT.partition("## What is missing")[2])
    assert {int(number) for number in below} == missing


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in tree.body if isinstance(node, functions)}


@pytest.mark.parametrize("number", ROWS)
def test_the_test_of_a_row_is_there(number: int) -> None:
    found = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", ROWS[number][3])
    assert found, ROWS[number][3]
    assert found[2] in names_in(found[1])


def test_every_route_is_there() -> None:
    paths = orjson.loads((ROOT / "docs" / "openapi.json").read_bytes())["paths"]
    known = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    known |= {f"GET {path}" for path in PAGES}
    named = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`\s]*)`", TEXT))
    assert len(named) > 30
    assert named - known == set()


def test_every_command_is_there_with_its_options() -> None:
    named = set(re.findall(r"`(?:GMR_\w+=\w+ )?gmr ([a-z][^`]*)`", TEXT))
    assert len(named) > 20
    for line in named:
        name, *rest = line.split()
        if name == "bench":  # whose names are files: tests/test_docs.py
            continue
        assert name in COMMANDS, line
        options = {option for one in load(name).params for option in one.opts}
        actions = {
            action.value
            for one in load(name).params
            if one.name == "action"
            for action in one.type_descriptor.annotation  # type: ignore[attr-defined]
        }
        assert set(rest) <= options | actions, line


def test_every_field_is_one_of_the_service() -> None:
    told = "".join(
        (ROOT / "docs" / page).read_text("utf-8") for page in ("http.md", "operations.md")
    )
    cells = " ".join(row[1] for row in ROWS.values())
    named = set(re.findall(r"`([a-z_]+)`", cells)) - {"page_hinkley", "kswin", "river"}
    assert len(named) > 20
    assert {name for name in named if not re.search(rf"`{name}`", told)} == set()


def test_the_licence_is_apache_2() -> None:
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert licence.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text("utf-8")
