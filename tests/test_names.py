"""Names that the pages set in backticks are in the code, on the wire or in a configuration."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"]
    if path.name != "CHANGELOG.md"  # it tells of what is gone
)
CODE = ("core", "service", "clients", "gmr", "benchmarks", "examples", "deploy")
OTHER = (".js", ".html", ".toml", ".yml", ".yaml", ".json", ".conf", ".css", ".sh")

OF_OTHERS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "BGREWRITEAOF",
    "CI",
    "GOOGLE_SERVICE_ACCOUNT",
    "Origin",
    "SSL_CERT_FILE",
    "httpx2.ASGITransport",
    "httpx2.MockTransport",
    "preprocessing.OneHotEncoder",
}
"""Names of libraries, services and protocols that are used as they are."""

NAME = r"[A-Za-z_]\w*"
WRITTEN = re.compile(rf"({NAME}(?:\.{NAME})*)(?:\(.*\))?")
COMMIT = re.compile(r"[0-9a-f]{7}")


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Names that a piece of code defines or uses, and what it imports."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield from value.split(".")


def texts(tree: ast.AST) -> Iterator[str]:
    """Constants that are text, but for docstrings, which may tell of what is gone."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            value = node.value
            if isinstance(value, str | bytes):
                yield value if isinstance(value, str) else value.decode("latin1")


def snake(name: str) -> str:
    """As reasons of dead letters are made from names of errors."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.fixture(scope="module")
def known() -> tuple[set[str], dict[str, set[str]]]:
    """All names there are, and of each class those within it."""
    names, within = set(dir(builtins)), dict[str, set[str]]()
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.suffix in OTHER]
    files += [ROOT / "Makefile", ROOT / "Dockerfile"]
    for path in files:
        names |= set(re.findall(NAME, path.stem))
        if path.suffix == ".py":
            tree = ast.parse(path.read_text("utf-8"))
            names |= set(identifiers(tree))
            names |= {name for text in texts(tree) for name in re.findall(NAME, text)}
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    within.setdefault(node.name, set()).update(identifiers(node))
                    names.add(snake(node.name))
        elif path.suffix in OTHER or path.name in ("Makefile", "Dockerfile"):
            names |= set(re.findall(NAME, path.read_text("utf-8")))
    names |= {part for path in files for part in path.relative_to(ROOT).parent.parts}
    return names, within


def written(text: str) -> set[str]:
    """Names in backticks outside of blocks; settings, commits and files are held elsewhere."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found = map(WRITTEN.fullmatch, re.findall(r"`([^`\n]+)`", text))
    names = {match[1] for match in found if match}
    return {one for one in names if not one.startswith("GMR_") and not COMMIT.fullmatch(one)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_on_a_page_are_there(page: Path, known: tuple[set[str], dict[str, set[str]]]) -> None:
    names, within = known
    gone = set()
    for one in written(page.read_text("utf-8")) - OF_OTHERS:
        parts = one.split(".")
        named = within.get(parts[0]) if len(parts) == 2 else None
        if named is not None:  # a class, whose bases may have it
            named = named.union(*(within.get(base, set()) for base in named))
        if not names.issuperset(parts) or (named is not None and parts[1] not in named):
            gone.add(one)
    assert not gone


def test_a_name_that_is_gone_is_found(known: tuple[set[str], dict[str, set[str]]]) -> None:
    names, within = known
    assert written("`gone_name(x)`, ```\n`block`\n```, `a b`, `GMR_X`, `1a2b3c4`") == {"gone_name"}
    assert "gone_name" not in names
    assert "step" in within["Engine"]
    assert "restart" not in within["Engine"]
