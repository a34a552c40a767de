"""What a result depends on, as plain values that can be compared.

Rules: everything that decides a number is named (settings, versions, the source that
computes it, the data); nothing that does not is (time, machine, comments), so that a
result is thrown away when it must be and kept when it may.
"""

from __future__ import annotations

import ast
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from clients.data.datasets import Dataset

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("core", "clients", "benchmarks")


def digest(values: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits that stand for JSON-ready values.

    Example:
        >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1})
        True
    """
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Of the libraries that compute."""
    return {package: metadata.version(package) for package in ("torch", "numpy")}


def checksum(dataset: Dataset) -> int:
    """CRC-32 of every sample and label."""
    total = 0
    for array in (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y):
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


@cache
def source_digest(whole: tuple[str, ...], alone: tuple[str, ...] = ()) -> str:
    """Stands for the code of some modules of ours. Comments, docstrings and layout do not count.

    Arguments:
        whole: Dotted names of modules that count with all that they import of ours.
        alone: Of modules that count by themselves.

    Example:
        >>> source_digest(("clients.data.tasks",)) == source_digest((), ("clients.data.tasks",))
        False
    """
    files = _closure(whole)
    files.update((name, path) for name in alone if (path := _file(name)) is not None)
    return digest({name: _read(path).code for name, path in files.items()})


def _closure(modules: tuple[str, ...]) -> dict[str, Path]:
    """The modules and all that they import of ours, wherever the import stands."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += _read(path).imported
    return found


@dataclass(frozen=True)
class _Module:
    """What is read of a module.

    Attributes:
        imported: Every dotted name in it that could be a module.
        code: The syntax tree as text, without docstrings.
    """

    imported: tuple[str, ...]
    code: str


def _read(path: Path) -> _Module:
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> _Module:
    """Done once for each text: closures of several modules have most files in common."""
    tree = ast.parse(text)
    return _Module(tuple(_imported(tree)), _code(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    """Every dotted name that could be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file(module: str) -> Path | None:
    """Where a module of ours stands; None for anything else."""
    parts = module.split(".")
    if parts[0] not in _OURS:
        return None
    place = ROOT.joinpath(*parts)
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _code(tree: ast.Module) -> str:
    """The syntax tree as text; its docstrings are taken out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(tree)
