"""Tests for the core.engine.explanation module: what a boundary says of the change behind it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import PRESETS, EngineConfig
from core.drift.detector import Level, Verdict
from core.engine import explanation as module
from core.engine.engine import Engine
from core.engine.explanation import (
    CLEAR_FALL,
    HEAVY,
    explain,
    prototypes,
    signed_roots,
    with_likelihood,
)
from core.engine.state import EngineState
from core.events import BoundaryDetected
from core.memory.course import Course
from tests.core.states import assert_identical, lived, lived_through, play
from tests.core.streams import N_FEATURES, batches, blob, centre

MADE = {"mfa": 60, "flat": 12, "paper": 9, "dcgmm": 9}


def learned(
    labels: tuple[int, ...] = (0, 1), preset: str = "flat", labelled: bool = True
) -> tuple[Engine, EngineState]:
    engine = Engine(
        EngineConfig(preset=preset, n_components=MADE[preset], detector="none", experts=False)
    )
    return engine, lived(engine, labels, 20, labelled=labelled)


def told(
    engine: Engine, state: EngineState, *new: Batch, verdict: Verdict | None = None
) -> dict[str, Any]:
    return explain(engine.learner.model(state.model.learner), state, new, verdict, engine.inliers)


@pytest.mark.parametrize("rate", [0.05, 0.3, None])
@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_inliers_are_those_of_the_outlier_scores(preset: str, rate: float | None) -> None:
    config = EngineConfig(preset=preset, n_components=MADE[preset], detector="none", experts=False)
    engine = Engine(replace(config, outlier_false_positive_rate=rate))
    # The rate says which are told apart, and nothing of what is learned.
    state = lived(Engine(config), (0, 1), 20)
    x = torch.cat([blob(0, 40, seed=9), blob(0, 40, seed=8, spread=0.13), blob(5, 20, seed=7)])
    scored = engine.snapshot(state).outliers(x)
    assert scored.score == ("log_likelihood" if rate is None else "p_value")
    assert told(engine, state, Batch(x))["inliers"] == float(scored.inliers.double().mean())


@pytest.mark.parametrize("preset", PRESETS)
def test_features_that_moved_are_named_with_what_was_expected_of_them(preset: str) -> None:
    engine, state = learned((0,), preset)
    x = blob(0, 300, seed=9)
    x[:, [5, 10]] = 1 - x[:, [5, 10]].round()
    answer = told(engine, state, Batch(x[:150]), Batch(x[150:]))
    named = answer["features"]
    assert {row["feature"] for row in named[:2]} == {5, 10}
    assert sum(row["share"] for row in named[:2]) > 0.5
    for row in named[:2]:
        assert row["mean"] == pytest.approx(float(x[:, row["feature"]].mean()), abs=1e-4)
        if preset != "dcgmm":  # there the patch is compared with the one that it fits best
            assert row["expected"] == pytest.approx(float(centre(0)[row["feature"]]), abs=0.15)
    assert len(answer["contributions"]) == N_FEATURES
    assert sum(answer["contributions"]) == pytest.approx(1, abs=1e-3)
    assert answer["feature_drop"] > 0
    assert answer["samples"] == answer["examined"] == 300


def sensors(n: int, seed: int) -> torch.Tensor:
    """Readings of ten sensors that depend on each other."""
    mixing = torch.randn(10, 10, generator=torch.Generator().manual_seed(7)) / 10**0.5
    return torch.randn(n, 10, generator=torch.Generator().manual_seed(seed)) @ mixing


def watched(seed: int = 0, preset: str = "flat") -> tuple[Engine, EngineState]:
    """After 2,000 readings in which nothing changes."""
    engine = Engine(
        EngineConfig(preset=preset, n_components=MADE[preset], detector="none", experts=False)
    )
    return engine, lived_through(engine, readings, 2000, seed)[0]


def readings(n: int, seed: int) -> list[Batch]:
    return [Batch(part) for part in sensors(n, seed).split(100)]


def named(answer: dict[str, Any]) -> list[int]:
    return [row["feature"] for row in answer["features"]]


@pytest.mark.parametrize("preset", ["flat", "mfa"])
@pytest.mark.parametrize("step", [0.5, 1.0, 3.0])
def test_only_what_has_changed_is_named(preset: str, step: float) -> None:
    """The others depend on it, and are as unlikely as it is, given it; they are as they were."""
    engine, state = watched(preset=preset)
    x = sensors(300, 9)
    x[:, 5] += step
    assert named(told(engine, state, Batch(x))) == [5]


def test_a_sensor_that_sticks_is_named_though_its_mean_is_as_ever() -> None:
    engine, state = watched()
    x = sensors(300, 9)
    x[:, 5] = 0.1
    (row,) = told(engine, state, Batch(x))["features"]
    before = sensors(2000, 0)[:, 5].double()
    assert row["feature"] == 5
    assert row["deviation_now"] == 0
    assert row["before"] == pytest.approx(float(before.mean()), abs=1e-6)
    assert row["deviation_before"] == pytest.approx(float(before.std()), rel=1e-3)
    unknown = told(engine, state.with_sub_task(course=Course()), Batch(x + 3))["features"]
    assert {(one["before"], one["deviation_before"]) for one in unknown} == {(None, None)}


def test_a_class_that_is_known_and_comes_back_is_told_by_all_that_it_changes() -> None:
    """The model finds its samples as likely as ever: that says nothing of what has changed."""

    def plant(n: int, seed: int, fault: float) -> torch.Tensor:
        x = sensors(n, seed)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.rand(n, generator=generator) < fault
        x[:, 9] = 3 + 0.4 * torch.randn(n, generator=generator)
        x[rows, 9] *= 2.5
        x[rows, 2] += 2.0
        return x

    engine = Engine(
        EngineConfig(preset="flat", n_components=MADE["flat"], detector="none", experts=False)
    )
    state = engine.start()
    for number, fault in enumerate((0.0, 0.3, 0.0)):
        parts = [Batch(part) for part in plant(1500, number, fault).split(100)]
        state, _ = play(engine, state, parts)
        state, _ = engine.declare_boundary(state) if number < 2 else (state, [])
    answer = told(engine, state, Batch(plant(300, 9, 0.3)))
    assert named(answer) == [9, 2]
    assert sum(row["share"] for row in answer["features"]) == pytest.approx(1, abs=1e-3)
    shown = {index for index, share in enumerate(answer["contributions"]) if share}
    assert shown == {2, 9}


def test_the_detectors_evidence_hides_nothing_that_has_changed() -> None:
    engine, state = watched()
    x = sensors(300, 9)
    x[:, 5] += 1000.0
    x[:, 1] += 1.0
    evidence = [0.0, 0.0, 0.3, 0.61, 0.0, 0.0, 0.0, 0.09, 0.0, 0.0]
    verdict = Verdict(Level.ALARM, ("a",), (2.0,), 1.0, True, 0.1, 0.9, 10, feature_shares=evidence)
    answer = told(engine, state, Batch(x), verdict=verdict)
    rows = {row["feature"]: row["share"] for row in answer["features"]}
    assert list(rows) == [3, 2, 5, 1]
    assert (rows[3], rows[2]) == (0.61, 0.3)
    assert rows[5] == pytest.approx(0.09, abs=1e-4)
    assert 0 < rows[1] < 1e-4


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_rare_category_that_is_absent_by_chance_is_not_named(known: bool) -> None:
    """Where nothing is known of the sub-task but the model, too."""

    def table(n: int, seed: int) -> torch.Tensor:
        x = sensors(n, seed)
        x[:, 9] = (torch.rand(n, generator=torch.Generator().manual_seed(seed)) < 0.05).float()
        return x

    engine = Engine(
        EngineConfig(preset="flat", n_components=MADE["flat"], detector="none", experts=False)
    )
    parts = [Batch(part) for part in table(2000, 0).split(100)]
    state, _ = play(engine, engine.start(), parts)
    if not known:
        state = state.with_sub_task(course=Course())
    absent = 0
    for seed in range(1, 21):
        x = table(12, seed)
        assert 9 not in named(told(engine, state, Batch(x)))
        x[:, 5] += 8
        absent += not bool(x[:, 9].any())
        assert 9 not in named(told(engine, state, Batch(x)))
        assert 5 in named(told(engine, state, Batch(x)))
    assert absent >= 5


def test_where_nothing_has_changed_no_feature_is_named() -> None:
    engine, state = watched()
    false = [named(told(engine, state, Batch(sensors(200, seed)))) for seed in range(100, 140)]
    # One in a hundred is asked for.
    assert sum(map(bool, false)) <= 2


def test_the_size_of_the_change_is_told_in_nats_and_in_deviations() -> None:
    engine, state = learned()
    same = told(engine, state, Batch(torch.cat([blob(0, 100, 7), blob(1, 100, 7)])))
    other = told(engine, state, Batch(blob(5, 200, 7)))
    assert same["log_likelihood_before"] == other["log_likelihood_before"]
    assert abs(same["effect"]) < 1
    assert same["inliers"] > 0.8
    assert other["effect"] < -5
    assert other["inliers"] < 0.1
    gap = other["log_likelihood_now"] - other["log_likelihood_before"]
    assert other["effect"] == pytest.approx(gap / other["log_likelihood_deviation"], rel=1e-3)


def test_what_fills_and_drains_is_told_of_components_and_classes() -> None:
    engine, state = learned((0, 1))
    answer = told(engine, state, Batch(blob(1, 200, seed=9)))
    classes = {row["label"]: row for row in answer["classes"]}
    assert classes[0]["before"] == pytest.approx(0.5, abs=0.05)
    assert classes[0]["now"] < 0.05
    assert classes[1]["now"] > 0.95
    components = answer["components"]
    assert 0 < len(components) <= 10
    sizes = [abs(row["change"]) for row in components]
    assert sizes == sorted(sizes, reverse=True)
    for row in components:
        assert (row["change"] > 0) == (row["now"] > row["before"])
    assert sum(row["now"] for row in components) <= 1.001


def test_only_the_sub_task_that_ends_is_what_was_there_before() -> None:
    engine, state = learned((0, 1))
    state, _ = engine.declare_boundary(state)
    state, _ = play(engine, state, batches((2, 3), 20, seed=4))
    answer = told(engine, state, Batch(blob(2, 200, seed=9)))
    before = {row["label"]: row["before"] for row in answer["classes"]}
    assert before[0] == before[1] == 0
    assert before[2] == pytest.approx(0.5, abs=0.06)
    # Components of classes that were not shown lately have not drained.
    assert all(row["now"] or row["before"] > 1e-6 for row in answer["components"])


def test_without_labels_the_weights_of_the_model_are_what_was_there_before() -> None:
    engine, state = learned((0, 1), labelled=False)
    answer = told(engine, state, Batch(blob(1, 200, seed=9)))
    assert answer["classes"] == []
    assert sum(row["before"] for row in answer["components"] if row["change"] < 0) > 0.4


def test_of_a_sub_task_without_labels_nobody_knows_which_classes_it_showed() -> None:
    engine, state = learned((0, 1))
    state, _ = engine.declare_boundary(state)
    state, _ = play(engine, state, batches((2, 3), 20, seed=4, labelled=False))
    answer = told(engine, state, Batch(blob(1, 200, seed=9)))
    assert [row["before"] for row in answer["classes"]] == [None, None]
    # The most of it first, all the same.
    assert [row["label"] for row in answer["classes"]] == [1, 0]
    assert answer["classes"][0]["now"] > 0.9


def test_a_likelihood_that_rises_is_explained_by_what_rose() -> None:
    engine, state = learned((0,))
    answer = told(engine, state, Batch(centre(0).repeat(50, 1)))
    assert answer["feature_drop"] < 0
    assert answer["effect"] > 0
    assert answer["features"]
    assert all(0 < row["share"] <= 1 for row in answer["features"])


def test_prototypes_are_the_groups_of_the_new_samples_in_the_senders_units() -> None:
    groups = [blob(label, n, seed=3) for label, n in ((4, 120), (5, 60))]
    x = torch.cat(groups)
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    found = prototypes(x, 1000 * x, torch.Generator().manual_seed(0))
    assert sum(group["samples"] for group in found) == 180
    sizes = [group["samples"] for group in found]
    assert sizes == sorted(sizes, reverse=True)
    assert 2 <= len(found) <= 4
    for group in found:
        features = torch.tensor(group["features"]) / 1000
        assert min(float((features - own.mean(0)).norm()) for own in groups) < 0.3


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 60), distinct=st.integers(1, 12), seed=st.integers(0, 999))
def test_no_prototype_stands_for_fewer_than_ten_samples(n: int, distinct: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few far-off strays among many copies: the hardest for k-means.
    places = 10.0 ** torch.randint(0, 4, (distinct, 1), generator=generator)
    centres = places * torch.randn(distinct, 3, generator=generator)
    x = centres[torch.randint(distinct, (n,), generator=generator) ** 2 % distinct]
    x = x + 0.01 * torch.randn(n, 3, generator=generator)
    found = prototypes(x, x, generator)
    assert len(found) <= 4
    assert all(group["samples"] >= 10 for group in found)
    assert sum(group["samples"] for group in found) == (n if n >= 10 else 0)
    total = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)
    for group in found:
        total += group["samples"] * torch.tensor(group["features"], dtype=torch.float64)
        apart = x.double() - torch.tensor(group["features"], dtype=torch.float64)
        assert float(apart.abs().amax(-1).min()) > 0
    if found:
        torch.testing.assert_close(total / n, x.double().mean(0), rtol=1e-3, atol=0.05)


def test_wide_samples_have_neither_prototypes_nor_a_contribution_of_every_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, state = learned()
    whole = told(engine, state, Batch(blob(5, 100, 1)))
    assert set(HEAVY) <= set(whole)
    monkeypatch.setattr(module, "MOST_FEATURES", N_FEATURES - 1)
    light = told(engine, state, Batch(blob(5, 100, 1)))
    assert light == {name: value for name, value in whole.items() if name not in HEAVY}


def test_the_cost_is_bounded_by_looking_at_a_part_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, state = learned()
    first, second = Batch(blob(5, 90, 1)), Batch(blob(6, 30, 1))
    monkeypatch.setattr(module, "MOST_SAMPLES", 40)
    answer = told(engine, state, first, second)
    assert (answer["samples"], answer["examined"]) == (120, 40)
    thinned = Batch(torch.cat([first.features, second.features])[::3])
    assert told(engine, state, thinned) == {**answer, "samples": 40}
    monkeypatch.setattr(module, "MOST_ENTRIES", 7 * N_FEATURES)
    assert told(engine, state, first, second) == answer


def test_where_there_is_nothing_to_tell_nothing_is_told() -> None:
    engine, state = learned()
    assert told(engine, state) == {}
    assert explain(None, state, [Batch(blob(5, 10, 1))], None, engine.inliers) == {}
    few = told(engine, state, Batch(blob(5, 3, 1)))
    assert few["prototypes"] == []
    assert few["samples"] == 3


def test_a_p_value_of_the_verdict_is_passed_on() -> None:
    engine, state = learned()
    verdict = Verdict(
        Level.ALARM, ("a",), (2.0,), 1.0, True, 0.1, 0.9, 10, statistic_highest=5, samples=20
    )
    answer = told(engine, state, Batch(blob(5, 20, 1)), verdict=verdict)
    assert answer["p_value"] == 20 * math.exp(-5)
    without = verdict._replace(statistic_highest=None)
    assert "p_value" not in told(engine, state, Batch(blob(5, 20, 1)), verdict=without)


def test_chi_square_roots_square_to_the_two_sample_statistic() -> None:
    now, before = torch.tensor([9.0, 1.0, 4.0]), torch.tensor([20.0, 20.0, 8.0])
    total = (now + before) / (now.sum() + before.sum())
    expected = sum(
        (counts - counts.sum() * total).square() / (counts.sum() * total)
        for counts in (now, before)
    )
    torch.testing.assert_close(signed_roots(now, before).square().sum(), expected.sum())


@settings(deadline=None, max_examples=20)
@given(scale=st.sampled_from([1e-20, 1.0, 1e20, 3e37]), seed=st.integers(0, 99))
def test_whatever_is_sent_the_answer_is_ready_for_json(scale: float, seed: int) -> None:
    engine = Engine(
        EngineConfig(preset="flat", n_components=4, detector="none", seed=seed, experts=False)
    )
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(80, 5, generator=generator)
    state, _ = engine.step(engine.start(), Batch.of(x[:40], ["a"] * 40))
    x[60:, 2] = torch.finfo(torch.float32).max / 2
    answer = told(engine, state, Batch(x[40:]))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_an_engine_explains_what_it_detects_and_what_is_declared() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False))
    state = lived(engine, [0, 1], 20)
    state, events = play(engine, state, list(batches([5], 6, seed=3)))
    (found,) = [event for event in events if isinstance(event, BoundaryDetected)]
    answer: Any = found.explanation
    assert answer["samples"] == found.set_aside_samples + 100
    assert answer["effect"] < -3
    assert answer["prototypes"]
    # Declared on a quiet stream there are no new samples to speak of.
    _, (declared, *_) = engine.declare_boundary(state)
    assert isinstance(declared, BoundaryDetected)
    assert declared.explanation == {}


def test_the_model_is_the_same_whether_or_not_it_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False))
    before, stream = lived(engine, [0, 1], 20), list(batches([5], 6, seed=3))
    one, events = play(engine, before, stream)
    assert any(isinstance(event, BoundaryDetected) for event in events)
    monkeypatch.setattr("core.engine.boundary.explain", lambda *_: {})
    other, _ = play(engine, before, stream)
    assert_identical(one, other)


def test_the_fall_of_the_likelihood_counts_as_far_as_it_is_clear() -> None:
    shares = torch.tensor([0.2, 0.8, 0.0], dtype=torch.float64)
    change = torch.tensor([9.0, -1.0, 5.0], dtype=torch.float64)
    spread = torch.linspace(-1, 1, 100, dtype=torch.float64)
    error = float(spread.std()) / 10
    for errors in (0.1, CLEAR_FALL, 1000.0):
        told = with_likelihood(shares, change, spread + errors * error)
        weight = errors**2 / (errors**2 + CLEAR_FALL**2)
        assert told.tolist() == pytest.approx([0.2 + 0.7 * weight, 0.8 - 0.7 * weight, 0.0])
    assert with_likelihood(shares, change, spread - 1000 * error) is shares


@pytest.mark.parametrize("seed", [0, 1])
def test_where_features_come_and_go_by_the_hour_one_that_has_moved_is_named(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hours = torch.arange(2600) * (2 * torch.pi / 144)
    rows = 3 * hours.sin()[:, None] + torch.randn(2600, 8, generator=generator)
    rows[2500:, 3] += 3
    engine = Engine(EngineConfig())
    state, found = engine.start(), list[BoundaryDetected]()
    for part in rows.split(20):
        state, events = engine.step(state, Batch(part))
        found += [event for event in events if isinstance(event, BoundaryDetected)]
    assert found
    assert [one["feature"] for one in found[-1].explanation["features"]] == [3]
