"""Tests for gmr.checks: every detector keeps to the protocol, and who does not is told how."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from core.config import EngineConfig
from core.drift.baselines.paper import PaperDetector, PaperState
from core.drift.detector import Detector, Level, Observation, Verdict
from core.engine.detectors import DETECTORS
from core.errors import InvalidSettings
from gmr.checks import check_detector

ROOT = Path(__file__).parents[2]

STREAM = """
import torch
from core.errors import InvalidSettings
from gmr import Batch, Engine, EngineConfig

engine = Engine(EngineConfig(preset="flat", n_components=10, detector="ddm", warm_up=300))
random = torch.Generator().manual_seed(0)
state = engine.start()
for index in range(40):
    codes = torch.randint(2, (50,), generator=random)
    x = torch.randn(50, 2, generator=random) + 3.0 * codes[:, None]
    labels = (codes if index < 25 else 1 - codes).tolist()
    state, events = engine.step(state, Batch.of(x, labels))
    for event in events:
        if event.kind == "boundary":
            print(index, event.detector, event.signal)
from core.engine.checkpoint import dump, load
kept, _, _ = load(dump(state, engine.config, {}))
assert kept.detector == state.detector
from service.settings import Settings
assert Settings(detector="ddm").engine_config().detector == "ddm"
try:
    EngineConfig(detector="dmm")
except InvalidSettings as error:
    print(error)
"""


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_of_this_project_keep_to_the_protocol(name: str) -> None:
    if name in ("adwin", "page_hinkley", "kswin"):
        pytest.importorskip("river")
    check_detector(DETECTORS[name])


@dataclass(frozen=True)
class Rash(PaperDetector):
    """Speaks before it is armed."""

    def observe(
        self, state: PaperState, seen: Observation, settled: bool
    ) -> tuple[PaperState, Verdict]:
        state, verdict = super().observe(state, seen, settled)
        return state, verdict._replace(level=Level.BOUNDARY, armed=False)


@dataclass(frozen=True)
class Numberless(PaperDetector):
    """Tells no number."""

    def observe(
        self, state: PaperState, seen: Observation, settled: bool
    ) -> tuple[PaperState, Verdict]:
        state, verdict = super().observe(state, seen, settled)
        return state, verdict._replace(values=(float("nan"),))


class Moody(PaperDetector):
    """Says something else each time."""

    def observe(
        self, state: PaperState, seen: Observation, settled: bool
    ) -> tuple[PaperState, Verdict]:
        object.__setattr__(self, "drop", self.drop + 0.001)
        state, verdict = super().observe(state, seen, settled)
        return replace(state, mean=state.mean + self.drop), verdict


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda config: Rash(), "not armed"),
        (lambda config: Numberless(), "no number"),
        (lambda config: Moody(), "another verdict"),
    ],
)
def test_who_does_not_is_told_how(
    make: Callable[[EngineConfig], Detector[Any]], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_detector(make)


def test_a_detector_of_another_package_is_chosen_by_its_entry_point(tmp_path: Path) -> None:
    offered = tmp_path / "of_a_stranger-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-stranger\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text("[gmr.detectors]\nddm = ddm:make\n")
    path = ":".join(map(str, (tmp_path, ROOT / "examples", ROOT)))
    script = STREAM + "\nfrom ddm import make\nfrom gmr.checks import check_detector\n"
    ran = subprocess.run(
        [sys.executable, "-c", script + "check_detector(make)\n"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    found, refused = ran.stdout.splitlines()
    assert found in ("25 ddm errors", "26 ddm errors")
    assert refused.startswith("detector is 'dmm', which does not exist.")
    assert "ddm" in refused


def test_without_that_package_it_does_not_exist() -> None:
    with pytest.raises(InvalidSettings, match="detector is 'ddm', which does not exist"):
        EngineConfig(detector="ddm")
