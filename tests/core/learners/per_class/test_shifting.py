"""Tests for core.learners.per_class.shifting: images that may be shifted, learned and named."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.density.factors.seeding import seed_analysers
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.errors import InvalidSettings, ShapeMismatch
from core.events import BoundaryDetected
from core.learners.per_class.budget import Budget
from core.learners.per_class.mfa import MfaLearner
from core.learners.per_class.mfa.windows import MfaWindows
from core.model.readout import PosteriorReadout
from core.snapshot import FORMAT as SNAPSHOT
from core.snapshot import Snapshot
from core.tensors import pack, unpack
from tests.core.states import assert_identical, lived, play
from tests.core.streams import N_FEATURES, batches, blob

CONFIG = EngineConfig(n_components=40, n_factors=5, shift=1)


def digits() -> tuple[Tensor, Tensor]:
    """Scikit-learn's small digits: 1,797 images of 8 x 8 pixels in [0, 1], and their classes."""
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target)


def taught(config: EngineConfig, n: int = 1200) -> Snapshot:
    """What is served after the first digits."""
    x, y = digits()
    engine = Engine(config)
    stream = [Batch.of(x[rows], y[rows]) for rows in torch.arange(n).split(100)]
    state, _ = play(engine, engine.start(), list(stream))
    return engine.snapshot(state)


def share_named(snapshot: Snapshot, x: Tensor, y: Tensor) -> float:
    labels = torch.tensor(snapshot.classes)
    return float((labels[snapshot.classify(x).codes] == y).double().mean())


# What is asked for ------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_features_that_are_no_such_images_are_refused_at_the_start(preset: str) -> None:
    with pytest.raises(InvalidSettings, match="15 features, which is no square"):
        Engine(EngineConfig(preset=preset, shift=1, n_features=15))
    with pytest.raises(InvalidSettings, match="image is 4,4,1, which has 16"):
        Engine(EngineConfig(preset=preset, shift=1, n_features=15, image="4,4"))
    Engine(EngineConfig(preset=preset, shift=1, n_features=15, image="3,5"))
    Engine(EngineConfig(preset=preset, n_features=15))


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_first_batch_that_is_no_such_images_is_refused(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, shift=1))
    state = engine.start()
    with pytest.raises(ShapeMismatch, match="shift to 0"):
        engine.step(state, Batch.of(torch.rand(20, 15), [0] * 20))
    state, _ = engine.step(state, Batch.of(torch.rand(20, 16), [0] * 20))
    assert state.model.samples_seen == 20


# Learning ---------------------------------------------------------------------------------


def test_learning_under_shifts_is_em_on_all_of_them_that_count_as_one_sample() -> None:
    x = blob(0, 120, 1).double()
    shifts = Shifts(1)
    mass, parameters = seed_analysers(x, 3, 2, torch.Generator().manual_seed(0))
    windows = MfaWindows(Budget(9), 0.05, 4096, shifts)
    fit = windows.fitted(x, None, mass, parameters, 1)
    everything = torch.cat([x, *shifts.of_samples(x)])
    plain = MfaWindows(Budget(9), 0.05, 4096)
    expected = plain.fitted(everything, None, mass, parameters, 1)
    for got, sums in zip(fit.sums, expected.sums.scaled(1 / 9), strict=True):
        torch.testing.assert_close(got, sums, rtol=1e-9, atol=1e-9)
    assert float(fit.sums.mass.sum()) == pytest.approx(120)
    torch.testing.assert_close(fit.shares, expected.shares[:120])


@pytest.mark.parametrize("pixels", [0, 1])
def test_copies_of_one_sample_stay_copies_under_shifts(pixels: int) -> None:
    copies, others = blob(0, 1, 1).expand(20, -1), blob(1, 60, 2)
    shifts = Shifts(pixels)
    windows = MfaWindows(Budget(9), 0.05, 4096, shifts)
    for x, expected in ((copies, True), (others, False)):
        mass = torch.tensor([float(len(x))])
        parameters = (x.mean(0)[None], torch.zeros(1, N_FEATURES, 2), torch.ones(1, N_FEATURES))
        fit = windows.fitted(x, None, mass, parameters, 1)
        assert fit.copies.tolist() == [expected]


def test_shifts_are_neither_held_nor_counted() -> None:
    engine = Engine(dataclasses.replace(CONFIG, window=128))
    x, y = digits()
    state = engine.start()
    for rows in torch.arange(900).split(100):
        state, _ = engine.step(state, Batch.of(x[rows], y[rows]))
        assert engine.learner.raw_samples(state.model.learner) <= 128
    assert state.model.samples_seen == sum(state.model.class_counts) == 900
    learner, _ = engine.learner.begin_sub_task(state.model.learner, torch.Generator())
    assert learner.mass_of(None) == pytest.approx(900, rel=1e-4)


def test_no_mean_is_a_training_image_nor_a_shift_of_one() -> None:
    x, y = digits()
    engine = Engine(dataclasses.replace(CONFIG, n_components=100))
    stream = [Batch.of(x[rows], y[rows]) for rows in torch.arange(1200).repeat(3).split(100)]
    state, _ = play(engine, engine.start(), [*stream, "boundary"])
    means, seen = state.model.learner.components.means, x[:1200]
    assert len(means) >= 40
    usual = float(torch.cdist(seen, seen).fill_diagonal_(torch.inf).amin(1).median())
    for moved in (seen, *Shifts(1).of_samples(seen)):
        assert float(torch.cdist(means, moved).min()) > 0.3 * usual


def test_one_pass_with_shifts_is_the_same_bit_for_bit_and_goes_on_from_a_checkpoint() -> None:
    engine = Engine(CONFIG)
    script = list(batches([0, 1], 24))
    whole, _ = play(engine, engine.start(), list(script))
    half, _ = play(engine, engine.start(), script[:17])
    restored, config, _ = load(dump(half, CONFIG, {}))
    assert config == CONFIG
    assert_identical(restored, half)
    rest, _ = play(Engine(config), restored, script[17:])
    assert_identical(rest, whole)


def test_a_checkpoint_of_a_release_without_shifts_still_loads() -> None:
    config = dataclasses.replace(CONFIG, shift=0)
    engine = Engine(config)
    state = lived(engine, [0, 1], 12)
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    assert '"shifts"' in text["state"]  # of the detector's version of the model
    tree, settings = json.loads(text["state"]), json.loads(text["config"])
    del settings["shift"]
    text["state"] = json.dumps(_without(tree, "shifts"))
    text["config"] = json.dumps(settings)
    restored, loaded, _ = load(pack(FORMAT, tensors, text))
    assert loaded == config
    assert_identical(restored, state)


def _without(tree: object, name: str) -> object:
    """A tree of plain values without the fields of a name."""
    if isinstance(tree, dict):
        return {key: _without(value, name) for key, value in tree.items() if key != name}
    return [_without(one, name) for one in tree] if isinstance(tree, list) else tree


# Naming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_all_shifts_of_a_sample_are_heard_alike(preset: str) -> None:
    engine = Engine(dataclasses.replace(CONFIG, preset=preset))
    state = lived(engine, [0, 1, 2], 8)
    model = engine.snapshot(state).model
    readout = model.readout
    assert isinstance(readout, PosteriorReadout)
    x = torch.cat([blob(label, 400, 9) for label in (0, 1, 2)])
    versions = (x, *model.shifts.of_samples(x))
    joint = torch.stack([model.density.score(one).joint for one in versions]) / readout.temperature
    heard = (joint.double() - joint.amax().double()).exp().sum(
        0
    ) @ readout.component_classes.double()
    expected = heard / heard.sum(-1, keepdim=True)
    got = model.class_probabilities(x, model.density.score(x).joint)
    torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-4)


def test_shifts_change_the_class_that_is_named_and_nothing_else_that_is_said() -> None:
    snapshot = taught(CONFIG)
    plain = dataclasses.replace(
        snapshot, model=dataclasses.replace(snapshot.model, shifts=NO_SHIFTS)
    )
    x, _ = digits()
    heard, deaf = (one.classify(x[1200:], p_values=True) for one in (snapshot, plain))
    assert not torch.equal(heard.probabilities, deaf.probabilities)
    for name in ("log_likelihoods", "inliers", "p_values"):
        assert torch.equal(getattr(heard, name), getattr(deaf, name))
    for one, other in zip(snapshot.outliers(x[1200:]), plain.outliers(x[1200:]), strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_digit_that_lies_elsewhere_is_named_as_well(preset: str) -> None:
    x, y = digits()
    config = dataclasses.replace(CONFIG, preset=preset)
    moved = next(Shifts(1).of_samples(x[1200:]))
    without, with_ = (
        share_named(taught(dataclasses.replace(config, shift=pixels)), moved, y[1200:])
        for pixels in (0, 1)
    )
    assert with_ > without + 0.05


def test_a_snapshot_remembers_its_shifts_and_one_of_an_earlier_release_has_none() -> None:
    snapshot = taught(dataclasses.replace(CONFIG, image="8,8"), 300)
    x, _ = digits()
    data = snapshot.to_bytes({})
    copy, _ = Snapshot.from_bytes(data)
    assert copy.model.shifts == snapshot.model.shifts == Shifts(1, (8, 8, 1))
    assert torch.equal(copy.classify(x).probabilities, snapshot.classify(x).probabilities)
    tensors, text = unpack(SNAPSHOT, data)
    facts = json.loads(text["snapshot"])
    del facts["shifts"]
    text["snapshot"] = json.dumps(facts)
    old, _ = Snapshot.from_bytes(pack(SNAPSHOT, tensors, text))
    assert old.model.shifts == NO_SHIFTS


# The stream -------------------------------------------------------------------------------


def test_boundaries_are_found_and_none_is_false() -> None:
    engine = Engine(CONFIG)
    script = [*batches([0, 1], 25), *batches([2, 3], 25, seed=1), *batches([4, 5], 25, seed=2)]
    state, events = play(engine, engine.start(), script)
    found = [event for event in events if isinstance(event, BoundaryDetected)]
    assert len(found) == 2
    assert state.sub_task.number == 2


def test_a_quiet_stream_makes_no_difference_to_what_is_learned() -> None:
    x = blob(0, 1400, 1)
    learner, lives = MfaLearner(dataclasses.replace(CONFIG, window=512)), []
    for pauses in (False, True):
        generator = torch.Generator().manual_seed(3)
        state = learner.grow(learner.start(N_FEATURES, torch.device("cpu")), 1)
        for part in x.split(100):
            codes = torch.zeros(len(part), dtype=torch.int64)
            state, _ = learner.learn(state, part, codes, None, generator)
            if pauses and learner.waiting(state):
                state = learner.settle(state, torch.Generator().manual_seed(5))
        lives.append(learner.begin_sub_task(state, generator)[0].components)
    assert_identical(*lives)
