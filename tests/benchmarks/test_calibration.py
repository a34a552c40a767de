"""Tests for benchmarks.calibration: it runs, and its numbers are kept."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from benchmarks.calibration import FIRST, KINDS, MOMENTS, PRESETS, QUICK_SAMPLES
from clients.commands.bench import run


def test_what_p_values_call_strange_is_told_by_kind(tmp_path: Path) -> None:
    assert run("calibration", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "calibration.json").read_text())["values"]
    assert len(kept) == len(PRESETS) * 2 * 2
    for name, found in kept.items():
        assert name.split(", ", 1)[1].rsplit(", ", 1)[0] in KINDS
        assert [one["samples"] for one in found] == list(range(FIRST, QUICK_SAMPLES + 1, 400))
        assert all(0 <= one[moment] < 0.4 for one in found for moment in MOMENTS)
