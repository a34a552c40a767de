"""Tests for the core.outliers.scales module: what p-values of a table's samples are made from."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import PRESETS, EngineConfig
from core.density.reach import SHARES, reaches
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory.class_shares import ClassShares
from core.memory.fingerprints import Fingerprints
from core.memory.reliability import Reliability
from core.model.readout import LinearReadout, PosteriorReadout
from core.outliers.calibration import Calibration
from core.outliers.scales import N_SCALES, WHOLE, masses, of_inliers, scales_of
from tests.core.states import assert_identical, lived, play
from tests.core.streams import batches, blob

WEIGHTS = torch.tensor([0.5, 0.25, 0.15, 0.1])
UNNAMED = PosteriorReadout(torch.zeros(4, 0), 1.0)
JOINT = torch.tensor([[-1.0, -5.0, -9.0, -2.0], [-60.0, -70.0, -4.0, -80.0]])
TRAITS = torch.arange(10.0).reshape(2, 5)


def test_a_tables_traits_are_likelihood_reaches_size_and_rest() -> None:
    found, n_scales = of_inliers(TRAITS, UNNAMED, JOINT, WEIGHTS.log(), 2.5, 6, table=True)
    assert n_scales == N_SCALES
    assert torch.equal(found[:, 0], TRAITS[:, 1])
    expected = reaches(JOINT - WEIGHTS.log(), WEIGHTS) - 2.5
    torch.testing.assert_close(found[:, 1 : 1 + N_SCALES], expected)
    assert torch.equal(found[:, 1 + N_SCALES :], TRAITS[:, [2, 4]])


@pytest.mark.parametrize(("table", "weights"), [(False, WEIGHTS.log()), (True, None)])
def test_images_and_what_is_not_of_features_are_asked_by_their_traits(
    table: bool, weights: Tensor | None
) -> None:
    found, n_scales = of_inliers(TRAITS, UNNAMED, JOINT, weights, 2.5, 6, table=table)
    assert n_scales == 0
    assert torch.equal(found, TRAITS)


def test_margins_between_classes_count_in_nats() -> None:
    readout = PosteriorReadout(torch.eye(4)[:, :2].where(torch.eye(4)[:, :2] > 0, 0.0), 1.0)
    plain, _ = of_inliers(TRAITS, UNNAMED, JOINT, WEIGHTS.log(), 0.0, 6, table=True)
    found, _ = of_inliers(TRAITS, readout, JOINT, WEIGHTS.log(), 0.0, 6, table=True)
    gained = found[:, 0] - plain[:, 0]
    torch.testing.assert_close(gained, readout.margins(JOINT, 1.0).clamp_max(1.5))


def test_components_have_masses_within_their_class() -> None:
    assert masses(WEIGHTS.log(), UNNAMED).tolist() == pytest.approx(WEIGHTS.tolist())
    linear = LinearReadout(torch.zeros(4, 2), torch.zeros(2), 1)
    assert masses(WEIGHTS.log(), linear).tolist() == pytest.approx(WEIGHTS.tolist())
    one = PosteriorReadout(torch.ones(4, 1), 1.0)
    assert masses(WEIGHTS.log(), one).tolist() == pytest.approx(WEIGHTS.tolist())
    # Two components of one class, one of another, one that no label fell on, and a class of none.
    shares = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [1 / 3, 1 / 3, 1 / 3]])
    found = masses(WEIGHTS.log(), PosteriorReadout(shares, 1.0))
    assert found.tolist() == pytest.approx([2 / 3, 1 / 3, 1.0, 0.1])


def test_the_scale_is_the_share_that_is_looked_at() -> None:
    which = torch.tensor([0, 1, 2, 3, 4])
    assert scales_of(which, N_SCALES).tolist() == [WHOLE, *SHARES, WHOLE]
    assert scales_of(torch.tensor([0, 1]), 0).tolist() == [WHOLE, WHOLE]


# Through an engine ------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_them_but_for_mixtures_of_patches(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=4, detector="none", experts=False))
    state = lived(engine, [0, 1], 12)
    assert state.model.calibration.n_scales == (0 if preset == "dcgmm" else N_SCALES)
    again, _, _ = load(dump(state, engine.config, {}))
    assert_identical(again.model.calibration, state.model.calibration)
    more = list(batches([0, 1], 8, seed=3))
    one, _ = play(engine, state, more)
    other, _ = play(engine, again, more)
    assert_identical(one.model.calibration, other.model.calibration)
    assert one.model.calibration.n_scales == state.model.calibration.n_scales


def test_what_is_left_of_a_sub_task_that_ended_has_them() -> None:
    rows = torch.randn(300, 6)
    ended = Calibration().observed(rows, 300, 0, N_SCALES).crossed(rows[:10])
    assert ended.n_scales == N_SCALES
    assert ended.typicality({}).n_scales == N_SCALES


def grouped(seed: int) -> tuple[Tensor, Tensor]:
    """Three wide clusters, a tighter group of outliers, one sample in sixteen; which are these."""
    generator = torch.Generator().manual_seed(seed)
    centres = 1.2 * torch.randn(3, 16, generator=generator)
    usual = centres[torch.arange(2400) % 3] + torch.randn(2400, 16, generator=generator)
    away = 1.56 * torch.randn(1, 16, generator=generator)
    strange = away + 0.5 * torch.randn(160, 16, generator=generator)
    x = torch.cat([usual, strange])
    order = torch.randperm(len(x), generator=generator)
    return x[order], (torch.arange(len(x)) >= len(usual))[order]


def learned(x: Tensor) -> tuple[Engine, EngineState]:
    engine = Engine(EngineConfig(detector="none", experts=False))
    state = engine.start()
    for batch in torch.split(x, 100):
        state, _ = engine.step(state, Batch(batch))
    return engine, engine.settle(state)[0]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_group_of_outliers_that_was_learned_is_strange_from_further_away(seed: int) -> None:
    x, strange = grouped(seed)
    engine, state = learned(x)
    answer = engine.snapshot(state).outliers(x)
    assert answer.typicality is not None
    assert answer.scales is not None

    def beaten(scores: Tensor) -> float:
        return float((scores[~strange][:, None] > scores[strange]).double().mean())

    assert beaten(answer.log_likelihoods) < 0.8  # components of its own make it dense
    assert beaten(answer.typicality) > 0.94
    assert set(answer.scales.tolist()) <= {WHOLE, *SHARES}
    assert float((answer.scales[strange] < WHOLE).double().mean()) > 0.25


def test_a_rare_class_that_is_labelled_is_no_group_of_outliers() -> None:
    x, rare = grouped(0)
    found = []
    for labels in (rare.long().tolist(), None):
        engine = Engine(EngineConfig(detector="none", experts=False))
        parts = zip(torch.split(x, 100), range(0, len(x), 100), strict=True)
        stream = [Batch.of(a, None if labels is None else labels[b : b + 100]) for a, b in parts]
        state, _ = play(engine, engine.start(), stream)
        p_values = engine.snapshot(engine.settle(state)[0]).outliers(x).p_values
        assert p_values is not None
        found.append(float((p_values[rare] <= 0.1).double().mean()))
    named, unnamed = found
    assert named < 0.5 < unnamed


def test_images_are_asked_by_all_components_alone() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, image="4,4"))
    state = lived(engine, [0, 1], 12)
    assert state.model.calibration.n_scales == 0
    answer = engine.snapshot(state).outliers(blob(0, 50, 9))
    assert answer.scales is not None
    assert answer.scales.unique().tolist() == [WHOLE]


def test_traits_of_an_earlier_release_are_not_mixed_with_those_of_today() -> None:
    """Its checkpoints of tables have coarser mixtures beside rows of other conformity scores."""
    from core.engine import checkpoint

    engine = Engine(EngineConfig(n_components=4, detector="none", experts=False))
    state = lived(engine, [0], 12)
    assert asdict(state.model.calibration)["current"]
    tensors, text = checkpoint.unpack(checkpoint.FORMAT, dump(state, engine.config, {}))
    tree = checkpoint.json.loads(text["state"])
    flat = tree.pop("model")
    for part, names in checkpoint.EARLIER.items():
        flat |= {was: tree[part][now] for now, was in names.items()}
    del flat["calibration"]["n_scales"]
    flat["scales"] = {"sizes": [4, 4, 1]}
    text["state"] = checkpoint.json.dumps(flat)
    old, _, _ = load(checkpoint.pack(checkpoint.FORMAT, tensors, text))
    # Nor did an earlier release know how reliable answers are, or the shares of classes.
    known = state.with_stream(reliability=Reliability()).with_sub_task(
        class_shares=ClassShares(), fingerprints=Fingerprints()
    )
    assert_identical(old, known.with_model(calibration=Calibration()))
