"""Tests for benchmarks.strays: it runs, and strays are what is told of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.strays import CODE, KINDS, SYSTEMS, with_strays
from clients.commands.bench import run
from clients.data.datasets import load_dataset
from clients.http.errors import InputError


@pytest.mark.parametrize("kind", KINDS)
def test_some_rows_are_strays_and_the_others_stay(kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(2000, 5)).astype(np.float32)
    found, astray = with_strays(x, kind, 0.1, seed=3)
    assert 100 < astray.sum() < 300
    assert np.array_equal(found[~astray], x[~astray])
    if kind == "codes":
        assert (found[astray] == CODE).all()
    else:
        assert np.median(np.abs(found[astray])) > 100
    again, _ = with_strays(x, kind, 0.1, seed=3)
    assert np.array_equal(again, found)


def test_strays_are_measured(tmp_path: Path) -> None:
    try:
        load_dataset("stream_sea")
    except InputError as error:
        pytest.skip(str(error))
    assert run("strays", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    found = json.loads((tmp_path / "strays.json").read_text())["values"]["results"]
    ours = [name for name, (opponent, _) in SYSTEMS.items() if opponent in ("mfa", "flat")]
    assert [(one["kind"], one["system"]) for one in found[::2]] == [
        (kind, name) for kind in KINDS for name in ours
    ]
    assert all(0.6 < one["accuracy"] < 0.95 for one in found)
