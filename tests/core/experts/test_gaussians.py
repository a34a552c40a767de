"""Tests for the core.experts.gaussians module."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.experts import gaussians as module
from core.experts.gaussians import HORIZONS, Gaussians
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
    assert gaussians.rules().probabilities(x[:0]).shape == (len(HORIZONS), 0, 3)
    panel = taught()
    assert panel.rules.advice(x.new_zeros(0, 4), even(0, 3)).probabilities.shape == (0, 3)


def test_gaussians_are_the_moments_of_each_class() -> None:
    x, codes = samples(5000, 3, 0)
    rules = Gaussians.start(3).grown(3).learned(x, codes).rules()
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
    found = many.rules().probabilities(x)[:, :, :3].argmax(-1)
    assert float((found[-1] == codes).double().mean()) > 0.9
