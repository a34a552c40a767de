"""Tests for benchmarks.shifts: it runs, and its numbers are kept."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from clients.commands.bench import run


def test_learning_and_hearing_shifts_are_compared_one_by_one(tmp_path: Path) -> None:
    assert run("shifts", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    found = json.loads((tmp_path / "shifts.json").read_text())["values"]["results"]
    cells = [(one["preset"], one["shift"]) for one in found]
    assert cells == [("mfa", 0), ("mfa", 1), ("flat", 0), ("flat", 1)]
    assert all(90 < one[heard] < 100 for one in found for heard in ("plain", "heard"))
    # What flat learns is the same with and without shifts, what mfa learns is not.
    mfa, shifted, flat, heard = (one["plain"] for one in found)
    assert mfa != shifted
    assert flat == heard
