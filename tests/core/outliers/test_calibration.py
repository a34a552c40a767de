"""Tests for core.outliers.calibration: rows of held-out inliers, bounded, through an engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.calibration import categories
from core.batch import Batch
from core.config import PRESETS, EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.engine.step import FIRST_UNCALIBRATED_SAMPLES
from core.outliers.calibration import (
    CURRENT,
    FEWEST,
    FEWEST_OF_FIRST,
    FULL,
    MOST_GROUPS,
    PAST,
    PER_BATCH,
    RECENT,
    Calibration,
    Rescored,
    chosen,
)
from core.outliers.p_values import FEWEST_ROWS
from tests.core.states import assert_identical, lived, play
from tests.core.streams import batches, blob


def numbered(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[:, None]


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 7, 50, "end"]), max_size=200))
def test_rows_stay_bounded_and_samples_are_counted(life: list[int | str]) -> None:
    calibration, samples = Calibration(), 0
    for part in life:
        if isinstance(part, str):
            calibration = calibration.crossed(torch.zeros(3, 2))
        else:
            calibration = calibration.observed(torch.zeros(min(part, PER_BATCH), 2), part, 0)
            samples += part
    assert sum(len(group) for group in calibration.past) <= PAST
    assert sum(len(group) for group in calibration.current) <= RECENT
    assert len(calibration.past) <= MOST_GROUPS
    assert sum(group.samples for group in (*calibration.past, *calibration.current)) == samples
    weights = calibration.typicality({}).weights
    of_past = sum(len(group) for group in calibration.past)
    past = sum(group.samples for group in calibration.past)
    assert float(weights[:of_past].sum()) == pytest.approx(past)
    assert samples - past <= float(weights[of_past:].sum()) + 1e-3


def test_many_sub_tasks_stay_bounded() -> None:
    calibration = Calibration()
    for index in range(MOST_GROUPS + 10):
        calibration = calibration.observed(torch.zeros(PER_BATCH, 2), 100, index)
        calibration = calibration.crossed(torch.zeros(3, 2))
    assert len(calibration.past) == MOST_GROUPS
    assert sum(group.samples for group in calibration.past) == 100 * (MOST_GROUPS + 10)


def test_the_last_rows_are_kept_and_early_ones_let_go() -> None:
    calibration = Calibration()
    for begin in range(0, 3000, 10):
        calibration = calibration.observed(numbered(*range(begin, begin + 10)), 10, 0)
    rows = calibration.current[0].rows[:, 0]
    assert rows.tolist() == list(range(3000 - 750, 3000))
    assert calibration.current[0].samples == 3000
    few = Calibration().observed(numbered(*range(1000)), 1000, 0)
    assert len(few.current[0]) == FEWEST_OF_FIRST
    few = Calibration().observed(numbered(*range(500)), 500, 1)
    assert len(few.current[0]) == FEWEST


@given(st.integers(1, 10**6), st.integers(1, 400), st.integers(1, 10**6))
def test_the_current_sub_task_counts_for_half_however_many_came_before(
    before: int, n_rows: int, since: int
) -> None:
    calibration = Calibration().observed(torch.zeros(PER_BATCH, 2), before, 0)
    calibration = calibration.crossed(torch.zeros(3, 2))
    calibration = calibration.observed(torch.ones(n_rows, 2), since, 1)
    usual = calibration.typicality({})
    share = float(usual.weights[usual.rows[:, 0] == 1].sum() / usual.weights.sum())
    assert share >= since / (before + since) - 1e-5
    assert share <= max(CURRENT, since / (before + since)) + 1e-5
    if min(n_rows, FEWEST) >= FULL:
        assert share >= CURRENT - 1e-5


@given(st.integers(1, 5000))
def test_rows_of_a_batch_are_spread_over_it(n: int) -> None:
    places = chosen(n)
    assert len(places) == min(n, PER_BATCH)
    assert places[-1] == n - 1
    assert int(places[0]) <= n // PER_BATCH
    assert len(set(places.tolist())) == len(places)


# Through an engine ------------------------------------------------------------------------


def achieved(engine: Engine, state: EngineState, x: torch.Tensor, rate: float) -> float:
    scores = engine.snapshot(state).outliers(x, false_positive_rate=rate)
    assert scores.calibration > 0
    return float((~scores.inliers).double().mean())


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_inliers_are_called_outliers_as_often_as_asked_on_both_sides_of_a_boundary(
    preset: str,
) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, detector="none", experts=False))
    state = lived(engine, [0, 1], 60)
    old = torch.cat([blob(label, 1000, seed=91) for label in (0, 1)])
    new = torch.cat([blob(label, 1000, seed=92) for label in (2, 3)])
    for rate in (0.05, 0.2):
        assert achieved(engine, state, old, rate) == pytest.approx(rate, abs=0.4 * rate)
    assert achieved(engine, state, new, 0.05) > 0.95
    state, _ = play(engine, state, ["boundary", *batches([2, 3], 60, seed=1)])
    for rate in (0.05, 0.2):
        both = [achieved(engine, state, x, rate) for x in (old, new)]
        # A model that still improves finds its samples less strange than they were when scored.
        assert 0.35 * rate < sum(both) / 2 < 1.4 * rate
    # One threshold for all: no sub-task pays for the others.
    assert all(0.2 * 0.2 < achieved(engine, state, x, 0.2) < 2.2 * 0.2 for x in (old, new))


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_new_sub_task_is_usual_after_two_hundred_samples(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=12, detector="none", experts=False))
    state = lived(engine, [0, 1], 60)
    new = torch.cat([blob(label, 1000, seed=92) for label in (2, 3)])
    assert achieved(engine, state, new, 0.05) > 0.95
    state, _ = play(engine, state, ["boundary", *batches([2, 3], 3, seed=1)])
    assert achieved(engine, state, new, 0.05) < 0.15
    unseen = torch.cat([blob(label, 1000, seed=93) for label in (5, 7)])
    assert achieved(engine, state, unseen, 0.05) > 0.9


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_calibrated_and_goes_through_a_checkpoint(preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, n_components=4, detector="none", experts=False))
    state, rest = lived(engine, [0, 1], 12), list(batches([0, 1], 14))[12:]
    again, _, _ = load(dump(state, engine.config, {}))
    assert_identical(again.model.calibration, state.model.calibration)
    one, _ = play(engine, state, rest)
    other, _ = play(engine, again, rest)
    assert_identical(one.model.calibration, other.model.calibration)
    scores = engine.snapshot(one).outliers(blob(0, 20, seed=5))
    assert scores.calibration >= FEWEST_ROWS
    assert bool(((scores.p_values > 0) & (scores.p_values <= 1)).all())


def test_the_learner_and_what_is_served_agree_on_traits() -> None:
    for preset in PRESETS:
        engine = Engine(EngineConfig(preset=preset, n_components=4, detector="none", experts=False))
        state, _ = play(engine, engine.start(), [*batches([0, 1], 8), "boundary", *batches([2], 8)])
        assert state.standardiser is not None
        x = state.standardiser.apply(blob(0, 10, seed=3))
        scores = engine.learner.score(state.model.learner, x)
        model = engine.learner.model(state.model.learner)
        assert scores is not None
        assert model is not None
        learned = engine.learner.conformity(state.model.learner, scores)
        served = model.density.conformity(x, model.density.score(x))
        torch.testing.assert_close(learned, served, rtol=1e-3, atol=1e-2)


def test_nothing_is_calibrated_by_the_first_samples_nor_by_what_looks_like_a_change() -> None:
    engine = Engine(EngineConfig(n_components=12, experts=False))
    state = lived(engine, [0], FIRST_UNCALIBRATED_SAMPLES // 100)
    assert not state.model.calibration.current
    state, _ = play(engine, state, list(batches([0], 20, seed=1)))
    before = state.model.calibration.current[0].samples
    after, events = engine.step(state, Batch(blob(7, 100, seed=1)))
    assert events[-1].kind != "batch_learned" or any(e.kind == "boundary" for e in events)
    assert (
        sum(g.samples for g in (*after.model.calibration.past, *after.model.calibration.current))
        == before
    )


def test_checkpoints_of_before_have_no_scores_and_gain_them() -> None:
    engine = Engine(EngineConfig(n_components=4, experts=False))
    state = lived(engine, [0], 10)
    old = state.with_model(calibration=Calibration())
    assert engine.snapshot(old).outliers(blob(0, 3, seed=1)).calibration == 0
    later, _ = play(engine, old, list(batches([0], 4, seed=2)))
    assert engine.snapshot(later).outliers(blob(0, 3, seed=1)).calibration > 0


def test_a_far_row_does_not_carry_the_others_with_it_when_a_fit_widens_scores() -> None:
    """One -999 among inliers is a million nats away, and is no centre of what is usual."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 2, generator=generator)
    rows[7] = -1e6
    before = torch.randn(128, 2, generator=generator)
    one = Rescored(before, 1.5 * before + 0.4)
    calibration = Calibration().observed(rows, 300, 0).refitted(one, one)
    usual = torch.arange(300) != 7
    now = calibration.current[0].rows[usual]
    assert not torch.equal(now, rows[usual])
    assert now.median(0).values == pytest.approx(rows[usual].median(0).values + 0.4, abs=0.15)
    assert now.std(0) == pytest.approx(1.5 * rows[usual].std(0), abs=0.1)
    assert calibration.current[0].rows[7].max() < -1e6


def test_rows_do_not_become_one_value_where_a_score_no_longer_varies() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, drawn = (torch.randn(n, 1, generator=generator) for n in (300, 128))
    one = Rescored(drawn, torch.full_like(drawn, 0.5))
    calibration = Calibration().observed(rows, 300, 0).refitted(one, one)
    assert calibration.current[0].rows.std() == pytest.approx(float(rows.std()), rel=1e-4)
    assert calibration.current[0].rows.mean() != rows.mean()


def test_rows_of_what_goes_its_own_way_go_it_too() -> None:
    """A rare category goes far away by a fit that changes nothing for all others."""
    generator = torch.Generator().manual_seed(0)

    def drawn(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, rare = torch.randn(n, 2, generator=generator), torch.arange(n) % 10 == 0
        x[rare, 1] -= 80
        return x, rare

    rows, rare = drawn(400)
    before, of_drawn = drawn(128)
    now = before + torch.where(of_drawn, -60.0, 0.0)[:, None] * torch.tensor([0.0, 1.0])
    one = Rescored(before, now)
    followed = Calibration().observed(rows, 400, 0).refitted(one, one).current[0].rows
    assert torch.equal(followed[~rare], rows[~rare])
    moved = (followed - rows)[rare].mean(0)
    assert moved == pytest.approx(torch.tensor([0.0, -60.0]), abs=0.5)


def test_rows_that_lie_elsewhere_than_drawn_samples_go_their_way_no_more_often() -> None:
    """Data of many features fit worse than what a model draws: next to them lie its extremes."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 2, generator=generator) - 8
    before = torch.randn(128, 2, generator=generator)
    before[::12] -= 5
    now = before + torch.where(torch.arange(128) % 12 == 0, 60.0, 0.0)[:, None]
    one = Rescored(before, now)
    followed = Calibration().observed(rows, 400, 0).refitted(one, one).current[0].rows
    assert (followed - rows).abs().max() < 1


@pytest.mark.parametrize(("seed", "labelled"), [(1, 0.0), (3, 0.0), (1, 0.3)])
def test_a_rare_category_is_no_outlier_after_a_pause(seed: int, labelled: float) -> None:
    """Labels that come for some samples are not of the categories."""
    random = np.random.default_rng(seed)
    x, _ = categories(random, 6000)
    engine = Engine(EngineConfig(detector="none", experts=False))
    state = engine.start()
    for part in torch.from_numpy(x[:3000]).split(100):
        named = random.random(len(part)) < labelled
        labels = [
            ("low", "high")[row[-1] > 1] if known else None
            for row, known in zip(part, named, strict=True)
        ]
        state, _ = engine.step(state, Batch.of(part, labels))
    settled, _ = engine.settle(state)
    for one in (state, settled):
        p_values = engine.snapshot(one).outliers(torch.from_numpy(x[3000:])).p_values
        assert p_values is not None
        assert float((p_values <= 0.05).double().mean()) <= 0.08
        assert float((p_values <= 0.01).double().mean()) <= 0.03
