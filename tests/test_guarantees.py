"""docs/guarantees.md names the test of every promise; these tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "guarantees.md").read_text("utf-8")


def test_every_promise_names_a_test_that_is_there() -> None:
    promised = TEXT.partition("## What is not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("|") and "::" in line]
    promises = re.findall(
        r"^\| (?!promise|deployment|-)(.+?) \| `(tests/\S+?)::(\w+)` \|$", promised, re.M
    )
    assert len(promises) == len(rows) > 10
    for promise, file, name in promises:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        found = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in found, promise
