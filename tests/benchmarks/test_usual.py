"""Tests for benchmarks.usual: it runs, and its numbers are kept."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from benchmarks.usual import KINDS, SUB_TASKS
from clients.commands.bench import run


def test_shares_are_written_for_every_boundary(tmp_path: Path) -> None:
    assert run("usual", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "usual.json").read_text())["values"]["digits"]
    assert len(kept["200"]) == len(SUB_TASKS) - 1
    for shares in kept["200"]:
        new, _, never = shares
        assert len(shares) == len(KINDS)
        assert 0 <= new < 0.3 < never <= 1
