"""Tests for benchmarks.new_classes: it runs, and its numbers are kept."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from clients.commands.bench import run


def test_its_numbers_are_written_whatever_the_classes_are_called(tmp_path: Path) -> None:
    assert run("new_classes", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "new_classes.json").read_text())
    naming = kept["values"].pop("naming")
    ((name, found),) = kept["values"].items()
    assert name == "digits"
    assert [one["preset"] for one in naming] == ["mfa", "flat"]
    assert all(0 <= share <= 1 for one in naming for share in (*one["right"], one["wrong"]))
    assert list(found["classes"]) == ["0"]
    assert found["streams"] == 1
    assert len(found["none"]) == len(found["outliers"]) == 1
