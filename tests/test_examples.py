"""The examples that need no service run, and find what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_two_blobs_finds_its_boundary_and_forgets_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot = runpy.run_path(str(EXAMPLES / "two_blobs.py"))["main"]()
    printed = capsys.readouterr().out
    boundaries = [line for line in printed.splitlines() if ": boundary, " in line]
    assert len(boundaries) == 1
    assert int(boundaries[0].split(":")[0].removeprefix("batch ")) in range(40, 43)
    assert set(snapshot.classes) == {"left", "right", "top"}
    mean = snapshot.sample(500, ["left"]).features.mean(0)
    assert mean.tolist() == pytest.approx([-3.0, 0.0], abs=0.2)


def test_the_estimator_learns_both_halves_of_the_digits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = runpy.run_path(str(EXAMPLES / "estimator.py"))["main"]()
    accuracies = re.findall(r"accuracy (\S+)", capsys.readouterr().out)
    assert len(accuracies) == 2
    assert min(map(float, accuracies)) > 0.95
    assert len(model.boundaries_) == 1


def test_the_models_of_river_find_the_boundary_and_forget_nothing() -> None:
    example = runpy.run_path(str(EXAMPLES / "river_stream.py"))
    model, detector, accuracy = example["main"]()
    for boundaries in (model.boundaries, detector.boundaries):
        assert len(boundaries) == 1
        assert boundaries[0] == pytest.approx(example["SAMPLES_PER_SUB_TASK"], abs=100)
    assert accuracy > 0.97
