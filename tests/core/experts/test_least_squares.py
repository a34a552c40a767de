"""Tests for the core.experts.least_squares module."""

from __future__ import annotations

import math

import torch

from core.experts.features import joint
from core.experts.least_squares import LeastSquares
from tests.core.experts.made import cut, samples


def test_least_squares_are_those_of_the_faded_sums() -> None:
    x, codes = samples(300, 2, 0)
    cosines, horizon = joint(2), 100.0
    found = LeastSquares.start(1, cosines.size).grown(3)
    for part in cut(300, [50]):
        found = found.learned(cosines, (horizon,), x[part], codes[part])
    features = cosines.of(x)
    weights = (-torch.arange(299, -1, -1) / horizon).exp().double()
    gram = features.T @ (features * weights[:, None])
    cross = features.T @ (torch.nn.functional.one_hot(codes, 3) * weights[:, None])
    expected = torch.linalg.solve(gram + torch.eye(cosines.size, dtype=torch.float64), cross)
    torch.testing.assert_close(found.solution[0], expected, rtol=1e-5, atol=1e-7)


def test_what_never_fades_is_solved_for_less_and_less_often() -> None:
    cosines, found, solved = joint(2), None, 0
    found = LeastSquares.start(1, cosines.size).grown(3)
    for index in range(40):
        found = found.learned(cosines, (math.inf,), *samples(50, 2, index))
        solved += int(found.unsolved[0] == 0)
        assert int(found.unsolved[0]) <= 0.1 * 50 * (index + 1)
    assert solved < 30
