"""Options that pages, docstrings and messages name after a command are options of that command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from clients.commands.cli import COMMANDS, PASSES_ON, app, load

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"]
    if path.name != "CHANGELOG.md"  # it tells of what is gone
)
CODE = sorted(
    path
    for folder in ("core", "service", "clients", "gmr", "benchmarks", "examples", "deploy")
    for path in (ROOT / folder).rglob("*.py")
)
CLIENT = (ROOT / "docs" / "client.md").read_text("utf-8")

SHELLS = ("", "sh", "bash", "console")
BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```")
CALL = re.compile(r"(?<![\w.-])(?<!from )gmr((?: [a-z][a-z-]*)?)(?![\w.-])([^|;&#\n]*)")
OPTION = re.compile(r"(?<![^\s(\[])--?[a-z][a-z0-9-]*")


REFUSED = ("trainer", "--port")
"""Named in docs/operations.md as what is not there."""


class Use(NamedTuple):
    """A command as it is written somewhere, and the options behind it."""

    command: str
    words: str
    options: list[str]


def uses(code: str) -> Iterator[Use]:
    """Every call of `gmr` in a piece of code; lines that go on are one."""
    for name, rest in CALL.findall(code.replace("\\\n", " ")):
        yield Use(name.strip(), rest, OPTION.findall(rest))


def code_of(text: str) -> Iterator[str]:
    """What a page shows as code: blocks, and what is in backticks."""
    yield from (block for language, block in BLOCK.findall(text) if language in SHELLS)
    for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        yield " ".join(span.split())  # wherever lines end


def said(tree: ast.AST) -> Iterator[str]:
    """Commands in docstrings, helps and messages: in backticks, or an example of a whole line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):  # {...} stands for any text
            parts = (one.value if isinstance(one, ast.Constant) else "X" for one in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text))
        yield from re.findall(r"(?m)^\s*(?:Example: |\$ )(gmr .*)", text)


@cache
def options(command: str) -> set[str]:
    """What a command takes, by its parser; of `gmr` itself without a command."""
    found = load(command) if command else typer.main.get_command(app)
    return {"--help", "-h"}.union(*((*one.opts, *one.secondary_opts) for one in found.params))


def unknown(use: Use) -> list[str]:
    """Options of a use that its command does not have; the command itself if it is none."""
    if use.command and use.command not in COMMANDS:
        return [use.command]
    lacking = [
        one
        for one in use.options
        if one not in options(use.command) and (use.command, one) != REFUSED
    ]
    if lacking and use.command in PASSES_ON:
        name = use.words.split()[0]
        text = (ROOT / "benchmarks" / f"{name}.py").read_text("utf-8")
        lacking = [one for one in lacking if f'"{one}"' not in text]
    return lacking


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_that_a_page_names_are_there(page: Path) -> None:
    for code in code_of(page.read_text("utf-8")):
        for use in uses(code):
            assert unknown(use) == [], code


def test_options_that_docstrings_and_messages_name_are_there() -> None:
    found = [
        (path.name, use)
        for path in CODE
        for code in said(ast.parse(path.read_text("utf-8")))
        for use in uses(code)
    ]
    assert sum(bool(use.options) for _, use in found) > 50
    assert [row for row in found if unknown(row[1])] == []


SCRIPT = re.compile(r"python -m ((?:tests|benchmarks)\.[\w.]*\w)([^|;&#\n]*)")
STORM = re.compile(r"make soak ARGS=(.*)")
"""The same by make, whose options are those of `tests.chaos.soak`."""


def scripts(code: str) -> Iterator[tuple[str, list[str]]]:
    """Every call of a script of this repository in a piece of code, with its options."""
    calls = SCRIPT.findall(code) + [("tests.chaos.soak", rest) for rest in STORM.findall(code)]
    yield from ((module, OPTION.findall(rest.replace("'", " "))) for module, rest in calls)


def test_options_of_scripts_that_pages_name_are_there() -> None:
    found = [
        (page.name, module, option)
        for page in PAGES
        for code in code_of(page.read_text("utf-8"))
        for module, options in scripts(code)
        for option in options
        if option != "--help"
    ]
    assert len(found) > 50
    texts = {
        module: (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
        for _, module, _ in found
    }
    assert [row for row in found if f'"{row[2]}"' not in texts[row[1]]] == []


def test_an_option_by_itself_is_of_a_command_of_its_section() -> None:
    """On the page of commands, where a section is about the commands that it names."""
    count = 0
    for section in re.split(r"(?m)^## ", CLIENT):
        known = set[str]()
        alone = set[str]()
        for code in code_of(section):
            known = known.union(*(options(use.command) for use in uses(code)))
            if re.match(r"--\w", code):
                alone |= set(OPTION.findall(code))
        count += len(alone)
        assert alone - known == set(), section.splitlines()[0]
    assert count > 50


def test_what_is_not_there_is_found() -> None:
    page = """Say `gmr ingest a.csv --label-colum y` or `gmr
    status --jsn`.
```
.venv/bin/gmr serve --port 1 \\
    --prot 2  # not --this
tail a | gmr outliers - --live && gmr stauts
gmr bench streams --quick --sampels 3
```
"""
    found = [one for code in code_of(page) for use in uses(code) for one in unknown(use)]
    assert sorted(found) == ["--jsn", "--label-colum", "--prot", "--sampels", "stauts"]
    example = ast.parse('def f():\n    """Does.\n\n    Example: gmr top --intervall 3\n    """')
    assert [unknown(use) for code in said(example) for use in uses(code)] == [["--intervall"]]
    assert REFUSED[1] not in options(REFUSED[0])
