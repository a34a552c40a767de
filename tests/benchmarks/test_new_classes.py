"""Tests for benchmarks.new_classes: it runs, and its numbers are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.new_classes import NEW, name_proposals
from clients.commands.bench import run
from clients.data.datasets import load_dataset


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


@pytest.mark.parametrize(
    ("name", "preset", "seed", "sure"),
    [("fashion_mnist", "mfa", 0, (5,)), ("mnist", "flat", 1, (4, 5)), ("mnist", "mfa", 0, (4, 5))],
)
def test_a_name_covers_what_was_proposed_and_little_that_is_known(
    name: str, preset: str, seed: int, sure: tuple[int, ...]
) -> None:
    folder = Path(os.environ.get("GMR_DATASETS", Path(__file__).parents[3] / "shared/datasets"))
    if not (folder / f"{name}.npz").is_file():
        pytest.skip(f"no {name}: set GMR_DATASETS to a folder with {name}.npz")
    named = name_proposals(load_dataset(name), preset, seed)
    for one in sure:
        assert named.right[NEW.index(one)] > 0.85
    assert named.wrong < 0.03
