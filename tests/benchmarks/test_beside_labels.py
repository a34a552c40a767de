"""Tests for the benchmarks.beside_labels module."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.beside_labels import lived
from clients.commands.bench import run
from clients.data.datasets import load_dataset


def test_its_numbers_are_written(tmp_path: Path) -> None:
    assert run("beside_labels", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "beside_labels.json").read_text())
    assert [one["comes"] for one in kept["values"]["results"]] == ["new", "half", "none"]


@pytest.mark.parametrize("new", [5, 7])
def test_a_class_without_labels_is_proposed_and_counts_as_unseen_beside_others(new: int) -> None:
    folder = Path(os.environ.get("GMR_DATASETS", Path(__file__).parents[3] / "shared/datasets"))
    if not (folder / "mnist.npz").is_file():
        pytest.skip("no MNIST: set GMR_DATASETS to a folder with mnist.npz")
    found = lived(load_dataset("mnist"), new, "mfa", "new", 30)
    assert found.proposals > 0
    assert found.purity is not None
    assert found.purity > 0.9
    assert found.estimate == pytest.approx(found.accuracy, abs=0.05)
    assert found.accuracy < 0.71
