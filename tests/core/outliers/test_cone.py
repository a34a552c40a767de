"""Tests for the core.outliers.cone module: distances from what lies in given directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from core.outliers.cone import Cone


def test_without_edges_or_length_it_is_the_origin() -> None:
    points = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    for cone in (Cone.of(points[:0]), Cone.of(points[:1], 0.0)):
        assert cone.squared_distances(points).tolist() == [25.0, 0.0]


@pytest.mark.parametrize(
    ("longest", "distances"),
    [(math.inf, [0.0, 1.0, 9.0, 25.0]), (2.0, [1.0, 2.0, 9.0, 25.0])],
)
def test_what_lies_along_an_edge_is_near_and_behind_it_far(
    longest: float, distances: list[float]
) -> None:
    points = torch.tensor([[3.0, 0.0], [3.0, 1.0], [-3.0, 0.0], [-3.0, 4.0]], dtype=torch.float64)
    cone = Cone.of(torch.tensor([[1.0, 0.0]], dtype=torch.float64), longest)
    assert cone.squared_distances(points).tolist() == distances


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3),
    size=st.integers(3, 5),
    longest=st.sampled_from([math.inf, 0.3, 2.0]),
    seed=st.integers(0, 10_000),
)
def test_distances_are_those_of_bounded_least_squares(
    n: int, size: int, longest: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    edges, points = rng.normal(size=(n, size)), 2 * rng.normal(size=(20, size))
    found = Cone.of(torch.from_numpy(edges), longest).squared_distances(torch.from_numpy(points))
    # What is minimised there is half of it.
    best = [2 * lsq_linear(edges.T, point, (0, longest), method="bvls").cost for point in points]
    assert found.numpy() == pytest.approx(best, rel=1e-6, abs=1e-9)
