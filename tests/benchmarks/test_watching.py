"""Tests for benchmarks.watching: it runs, and what is timed says what the default says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import watching
from benchmarks.detection.cost import TimedFrozenModel
from benchmarks.watching import TimedDetector
from clients.commands.bench import run
from clients.data.tasks import SLT
from core.drift.sequential.detector import SequentialDetector
from tests.core.scripted_density import frozen_model
from tests.core.signals import Stretch, features, observations, verdicts


def test_it_tells_what_the_detector_costs_by_itself_and_in_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TASK", SLT.parse("0,1/2,3"))
    assert run("watching", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    values = json.loads((tmp_path / "watching.json").read_text())["values"]
    assert all(cost > 0 for costs in values["alone"].values() for cost in costs.values())
    assert values["bare_adwin"] > 0
    for turns in values["engines"].values():
        for turn in turns:
            assert 0 < turn["the detector"] < turn["with a detector"]
            assert turn["with none"] > 0


def test_a_detector_that_is_timed_says_the_same() -> None:
    stream = [Stretch(1500), Stretch(300, mean=-3)]
    timed = TimedDetector()
    said = verdicts(timed, observations(stream, 100))
    assert said == verdicts(SequentialDetector(), observations(stream, 100))
    assert len(timed.batches) == sum(verdict.armed for verdict in said) > 0
    assert min(timed.batches) > 0


def test_every_forward_pass_of_a_frozen_model_is_timed() -> None:
    plain, seconds, x = frozen_model(4), list[float](), features([Stretch(30)])
    timed = TimedFrozenModel(plain.model, plain.standardiser, plain.taken_at, seconds)
    assert np.array_equal(timed.score(x).scores, plain.score(x).scores)
    timed.score(x)
    assert len(seconds) == 2
    assert min(seconds) > 0
