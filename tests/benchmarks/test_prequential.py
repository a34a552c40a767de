"""Tests for benchmarks.prequential: it runs, and learners are told from guesses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import prequential
from clients.commands.bench import run
from clients.http.errors import InputError


def test_classes_that_change_places_are_followed(tmp_path: Path) -> None:
    assert run("prequential", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    rows = json.loads((tmp_path / "prequential.json").read_text())["values"]["results"]
    by_system = {row["system"]: row for row in rows}
    for preset in ("mfa", "flat"):
        assert by_system[preset]["boundaries"] == [1500]
        assert by_system[preset]["accuracy"] > 93
    assert by_system["last-label"]["accuracy"] == pytest.approx(50, abs=5)
    assert by_system["mfa"]["changes"] == [1500]


def test_a_stream_that_is_not_there_is_left_out_and_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise InputError(f"no {name}")

    said: list[str] = []
    monkeypatch.setattr(prequential, "load_dataset", missing)
    assert prequential.measure(False, said.append).values == {"results": []}
    assert len(said) == len(prequential.STREAMS)
    assert all("is left out: no stream_" in line for line in said)
