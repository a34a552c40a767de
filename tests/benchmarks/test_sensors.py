"""Tests for benchmarks.sensors: it runs, and its readings are what they are said to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.sensors import CHANGES, ONE, readings
from clients.commands.bench import run


def test_a_sensor_that_fails_is_found_and_nothing_else(tmp_path: Path) -> None:
    assert run("sensors", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    values = json.loads((tmp_path / "sensors.json").read_text())["values"]
    for row in values["changes"]:
        if row["system"] in ("mfa", "flat"):
            assert len(row["delays"]) == row["seeds"] == 1
            assert row["delays"][0] <= 1000
            assert row["named"] == 1
            assert row["false"] == 0
    ours = [row["false"] for row in values["still"] if row["system"] in ("mfa", "flat")]
    assert ours == [0, 0]


@pytest.mark.parametrize("persistence", [0.0, 0.8])
def test_a_reading_is_a_part_of_the_one_before(persistence: float) -> None:
    x = readings(20_000, 3, 0, persistence)
    now, before = x[1:, 1], x[:-1, 1]
    assert float(np.corrcoef(now, before)[0, 1]) == pytest.approx(persistence, abs=0.05)
    assert float(x.std()) == pytest.approx(float(readings(20_000, 3, 1).std()), rel=0.1)


def test_one_sensor_changes_and_the_others_do_not() -> None:
    x = readings(100, 4, 0)
    for name, change in CHANGES.items():
        others = np.arange(4) != ONE
        assert np.array_equal(change(x)[:, others], x[:, others]) == name.startswith("one")
        assert not np.array_equal(change(x)[:, ONE], x[:, ONE])
        # Every system is shown the same.
        assert np.array_equal(change(x), change(x))
