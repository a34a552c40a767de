"""Tests for the core.experts.gaussians module."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.experts import gaussians as module
from core.experts.gaussians import (
    HORIZONS,
    MOST_OWN,
    Gaussians,
    QuickAndLasting,
    SharedRules,
    rules_of,
    tensors_of,
)
from tests.core.experts.made import cut, even, samples, sizes, taught


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_gaussians_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    x, codes = samples(40, 3, seed)
    whole = Gaussians.start(3).grown(3).learned(x, codes)
    pieces = Gaussians.start(3).grown(3)
    for part in cut(40, parts):
        pieces = pieces.learned(x[part], codes[part])
    for one, other in zip(vars(whole).values(), vars(pieces).values(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_boundary_leaves_what_the_quickest_knows_of_many_classes() -> None:
    x, codes = samples(200, 3, 0, classes=10)
    # Of the last class two samples came, at the end.
    rare = torch.cat([codes[codes != 9], torch.tensor([9, 9])])
    before = Gaussians.start(3).grown(10).learned(x[: len(rare)], rare)
    after = before.without_few()
    quickest = before.mass[0] / before.mass[0].sum()
    assert float(quickest[:9].max()) < 0.2
    assert float(after.mass[0, :9].sum()) > 0.95 * float(before.mass[0, :9].sum())
    for part in (after.mass, after.mass_squares, after.sums, after.squares):
        assert not bool(part[:, 9].any())


def test_a_class_that_there_is_no_room_for_is_an_error_and_no_sample_no_question() -> None:
    x, codes = samples(40, 3, 0)
    gaussians = Gaussians.start(3).grown(3).learned(x, codes)
    with pytest.raises(IndexError):
        gaussians.learned(x, codes + 1)
    assert gaussians.rules.probabilities(x[:0]).shape == (len(HORIZONS), 0, 3)
    panel = taught()
    assert panel.rules.advice(x.new_zeros(0, 4), even(0, 3)).probabilities.shape == (0, 3)


def test_gaussians_are_the_moments_of_each_class() -> None:
    x, codes = samples(5000, 3, 0)
    rules = Gaussians.start(3).grown(3).learned(x, codes).rules
    forever = HORIZONS.index(math.inf)
    for code in range(3):
        mine = x[codes == code]
        torch.testing.assert_close(rules.means[forever, code], mine.mean(0))
        whitened = (mine - mine.mean(0)) @ rules.whiteners[forever, code].T
        torch.testing.assert_close(
            whitened.T.cov(), torch.eye(3, dtype=torch.float64), atol=0.05, rtol=0
        )


@given(
    st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    st.lists(st.floats(-50, 50), min_size=3, max_size=3),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_gaussians_follow_another_scale_exactly(
    factors: list[float], offsets: list[float], many: bool
) -> None:
    factor, offset = (torch.tensor(part, dtype=torch.float64) for part in (factors, offsets))
    x, codes = samples(60, 3, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_VALUES", 27 if many else 10**6)
        start = Gaussians.start(3).grown(4)
    assert start.shared is many
    moved = start.learned(x, codes).rescaled(factor, offset)
    afresh = start.learned(x * factor + offset, codes)
    for one, other in zip(vars(moved).values(), vars(afresh).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-6)


def test_many_classes_share_a_covariance_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 27)
    x, codes = samples(2000, 3, 0)
    few = Gaussians.start(3).grown(3).learned(x, codes)
    assert not few.shared
    many = few.grown(4)
    assert many.squares.shape[1] == 1
    assert many.learned(*samples(10, 3, 1)).squares.shape[1] == 1
    found = many.rules.probabilities(x)[:, :, :3].argmax(-1)
    assert float((found[-1] == codes).double().mean()) > 0.9


@pytest.mark.parametrize("horizons", [2, 3])
def test_of_one_covariance_classes_are_told_apart_by_distance_and_share(
    monkeypatch: pytest.MonkeyPatch, horizons: int
) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 0)
    x, codes = samples(400, 5, 0)
    gaussians = Gaussians.start(5, horizons).grown(3).learned(x, codes)
    rules = gaussians.rules
    assert isinstance(rules, SharedRules)
    assert rules.slopes.shape == (horizons, 3, 5)
    means = gaussians.sums[-1] / gaussians.mass[-1][:, None]
    within = torch.cat([x[codes == code] - means[code] for code in range(3)])
    pooled = within.T @ within / len(x)
    off = (x[:, None] - means) @ torch.linalg.inv(pooled)
    distances = (off * (x[:, None] - means)).sum(-1)
    shares = gaussians.mass[-1] / gaussians.mass[-1].sum()
    expected = (shares.log() - distances / 2).softmax(1)
    # What is believed beforehand is worth five samples of four hundred.
    torch.testing.assert_close(rules.probabilities(x)[-1], expected, atol=0.02, rtol=0)


def test_in_many_features_only_what_never_fades_has_a_covariance_for_each_class() -> None:
    d = MOST_OWN + 1
    x, codes = samples(600, d, 0)
    gaussians = Gaussians.start(d).grown(3).learned(x, codes)
    rules = gaussians.rules
    assert isinstance(rules, QuickAndLasting)
    assert rules.quick.slopes.shape == (len(HORIZONS) - 1, 3, d)
    assert rules.lasting.whiteners.shape == (1, 3, d, d)
    said = rules.probabilities(x)
    assert said.shape == (len(HORIZONS), 600, 3)
    torch.testing.assert_close(said.sum(-1), torch.ones_like(said[..., 0]))
    assert rules.known.shape == (len(HORIZONS), 3)
    assert float((said[-1].argmax(-1) == codes).double().mean()) > 0.9


@pytest.mark.parametrize("d", [4, MOST_OWN + 1])
@pytest.mark.parametrize("shared", [False, True])
def test_rules_are_read_as_they_were_written(
    monkeypatch: pytest.MonkeyPatch, d: int, shared: bool
) -> None:
    if shared:
        monkeypatch.setattr(module, "MOST_VALUES", 0)
    x, codes = samples(100, d, 0)
    rules = Gaussians.start(d).grown(3).learned(x, codes).rules
    again = rules_of(tensors_of(rules))
    assert type(again) is type(rules)
    torch.testing.assert_close(again.probabilities(x), rules.probabilities(x), rtol=0, atol=0)
    with pytest.raises(KeyError):
        rules_of({"known": x})


def test_a_feature_that_never_differs_and_rounding_break_no_shared_covariance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 0)
    x, codes = samples(200, 6, 0)
    x[:, 3], x[:, 5] = 1e6, x[:, 0]
    rules = Gaussians.start(6).grown(3).learned(x, codes).rules
    found = rules.probabilities(x)
    assert bool(found.isfinite().all())
    assert float((found[-1].argmax(-1) == codes).double().mean()) > 0.9


def test_few_samples_do_not_show_that_features_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 0)
    x, codes = samples(12, 4, 0)
    x[:, 1] += 3 * x[:, 2]
    gaussians = Gaussians.start(4).grown(3).learned(x, codes)
    mass, sums = gaussians.mass[-1], gaussians.sums[-1]
    means = sums / mass[:, None]
    total = float(mass.sum())
    eye = torch.eye(4, dtype=torch.float64)
    pooled = gaussians.squares[-1, 0] - means.T @ (means * mass[:, None])
    pooled = (pooled + module.RIDGE * eye) / (total + 1)
    shrunk = (total * pooled + 4 * pooled * eye) / (total + 4) + module.LEAST_VARIANCE * eye
    assert isinstance(gaussians.rules, SharedRules)
    expected = torch.linalg.solve(shrunk, means.T).T
    torch.testing.assert_close(gaussians.rules.slopes[-1], expected, rtol=1e-9, atol=1e-9)
