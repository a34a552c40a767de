"""Tests for gmr.checks: detectors, learners and densities keep to their protocols, and who does not
is told how."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.density import Parts, Scored
from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Mixture
from core.drift.baselines.paper import PaperDetector, PaperState
from core.drift.detector import Arming, Detector, Level, Observation, Verdict
from core.engine.detectors import DETECTORS
from core.engine.learners import LEARNERS
from core.errors import InvalidSettings
from core.learners.learner import Learner, Replay
from core.learners.per_class.flat import FlatLearner, FlatState
from gmr.checks import BUDGET, check_density, check_detector, check_learner

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
assert kept.watch.detector == state.watch.detector
from service.settings import Settings
assert Settings(detector="ddm").engine_config().detector == "ddm"
try:
    EngineConfig(detector="dmm")
except InvalidSettings as error:
    print(error)
"""


DIGITS = """
from sklearn.datasets import load_digits
import torch
from core.engine.checkpoint import dump, load
from core.snapshot import Snapshot
from gmr import Batch, Engine, EngineConfig
from gmr.checks import check_learner
from service.settings import Settings
from spherical import SphericalLearner, SphericalState

check_learner(SphericalLearner)
assert Settings.load({"preset": "spherical"}).engine_config().preset == "spherical"
data = load_digits()
x, y = torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target)
held_out = torch.arange(len(x)) % 5 == 0
engine = Engine(EngineConfig(preset="spherical", image="8,8", warm_up=300))
assert engine.config.budget == 200
state, boundaries, random = engine.start(), 0, torch.Generator().manual_seed(0)
for sub_task in range(2):
    rows = (~held_out & (y // 5 == sub_task)).nonzero()[:, 0].repeat(2)
    for part in rows[torch.randperm(len(rows), generator=random)].split(50):
        state, events = engine.step(state, Batch.of(x[part], y[part].tolist()))
        boundaries += sum(event.kind == "boundary" for event in events)
kept, config, _ = load(dump(state, engine.config, {}))
assert config == engine.config
assert isinstance(kept.model.learner, SphericalState)
on, _ = Engine(config).step(kept, Batch.of(x[:50], y[:50].tolist()))
there, _ = engine.step(state, Batch.of(x[:50], y[:50].tolist()))
assert dump(on, config, {}) == dump(there, config, {})
snapshot, _ = Snapshot.from_bytes(engine.snapshot(on).to_bytes({}))
answers = snapshot.classify(x[held_out])
named = torch.tensor([snapshot.classes[code] for code in answers.codes.tolist()])
drawn = snapshot.sample(40, [3], seed=1)
again = snapshot.classify(drawn.features)
print(boundaries)
print(float((named == y[held_out]).double().mean()))
print(sum(snapshot.classes[code] == 3 for code in again.codes.tolist()))
print(type(snapshot.model.density).__name__, snapshot.info.components)
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
        return state, verdict._replace(level=Level.ALARM, armed=False)


@dataclass(frozen=True)
class Numberless(PaperDetector):
    """Tells no number."""

    def observe(
        self, state: PaperState, seen: Observation, settled: bool
    ) -> tuple[PaperState, Verdict]:
        state, verdict = super().observe(state, seen, settled)
        return state, verdict._replace(values=(float("nan"),))


class Silent(PaperDetector):
    """Waits and does not say why."""

    def arming(self, state: PaperState, since_boundary: int, converged: bool) -> Arming:
        return Arming(7, None)


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
        (lambda config: Silent(), "has a reason"),
    ],
)
def test_who_does_not_is_told_how(
    make: Callable[[EngineConfig], Detector[Any]], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_detector(make)


def run_beside(folder: Path, entry_points: str, script: str) -> list[str]:
    """The lines that a script prints where a package has these entry points.

    Arguments:
        folder: An empty one.
        entry_points: Whose objects are in the examples.
        script: Of Python.
    """
    offered = folder / "of_a_stranger-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-stranger\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text(entry_points)
    path = ":".join(map(str, (folder, ROOT / "examples", ROOT)))
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_detector_of_another_package_is_chosen_by_its_entry_point(tmp_path: Path) -> None:
    script = STREAM + "\nfrom ddm import make\nfrom gmr.checks import check_detector\n"
    entry_points = "[gmr.detectors]\nddm = ddm:make\n"
    found, refused = run_beside(tmp_path, entry_points, script + "check_detector(make)\n")
    assert found in ("25 ddm errors", "26 ddm errors")
    assert refused.startswith("detector is 'dmm', which does not exist.")
    assert "ddm" in refused


def test_without_that_package_it_does_not_exist() -> None:
    with pytest.raises(InvalidSettings, match="detector is 'ddm', which does not exist"):
        EngineConfig(detector="ddm")


def of_preset(name: str) -> Callable[[EngineConfig], Learner[Any]]:
    return lambda config: LEARNERS[name](replace(config, preset=name))


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_of_this_project_and_their_densities_keep_to_the_protocol(name: str) -> None:
    check_learner(of_preset(name))


class Greedy(FlatLearner):
    """Has more components than it may."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(replace(config, n_components=BUDGET + 1))


class Hoarder(FlatLearner):
    """Keeps samples when their sub-task is over."""

    def begin_sub_task(
        self, state: FlatState, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        return state, []


class Fickle(FlatLearner):
    """Learns something else each time."""

    def learn(self, state: FlatState, *rest: Any) -> tuple[FlatState, list[Replay]]:
        self.floor *= 1.01
        state, replays = super().learn(state, *rest)
        return replace(state, recent=state.recent + self.floor), replays


class Careless(FlatLearner):
    """Changes the state that it is given."""

    def learn(self, state: FlatState, *rest: Any) -> tuple[FlatState, list[Replay]]:
        learned = super().learn(state, *rest)
        state.recent.add_(1)
        return learned


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Greedy, "components, of 9 at most"),
        (Hoarder, "outlive their sub-task"),
        (Fickle, "another result"),
        (Careless, "another result|changed its state"),
    ],
)
def test_a_learner_that_does_not_is_told_how(
    make: Callable[[EngineConfig], Learner[Any]], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_learner(make)


def diagonal(kind: type[DiagonalDensity]) -> DiagonalDensity:
    generator = torch.Generator().manual_seed(0)
    means, variances = torch.randn(3, 4, generator=generator), torch.ones(3, 4)
    weights = torch.tensor([0.5, 0.3, 0.2]).log()
    return kind(Mixture(weights, means, variances.rsqrt()), variances.sqrt())


class Amnesiac(DiagonalDensity):
    """Comes back from a file as something else."""

    def tensors(self) -> dict[str, Tensor]:
        return dict(super().tensors(), means=torch.zeros_like(self.mixture.means))


class Displaced(DiagonalDensity):
    """Draws elsewhere than it says."""

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        return super().sample(components, generator, noise) + 1


class Partial(DiagonalDensity):
    """Has a likelihood that its components do not add up to."""

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        joint, log_likelihood = super().score(x, parts)
        return Scored(joint, log_likelihood + 1)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Amnesiac, "scores otherwise"),
        (Displaced, "not of their law"),
        (Partial, "expected a joint of the likelihood; off by 1"),
    ],
)
def test_a_density_that_does_not_is_told_how(kind: type[DiagonalDensity], complaint: str) -> None:
    check_density(diagonal(DiagonalDensity))
    with pytest.raises(AssertionError, match=complaint):
        check_density(diagonal(kind))


def test_a_family_of_another_package_is_learned_served_and_restored(tmp_path: Path) -> None:
    entry_points = """
[gmr.learners]
spherical = spherical:SphericalLearner
[gmr.densities]
spherical = spherical:SphericalDensity
"""
    boundaries, accuracy, own, density = run_beside(tmp_path, entry_points, DIGITS)
    assert int(boundaries) == 1
    assert float(accuracy) > 0.93
    assert int(own) >= 38
    assert density.split()[0] == "SphericalDensity"


def test_without_that_package_the_preset_does_not_exist() -> None:
    with pytest.raises(InvalidSettings, match="preset is 'spherical', which does not exist"):
        EngineConfig(preset="spherical")
