"""Tests for the core.density.diagonal.components module."""

from __future__ import annotations

import math

import pytest
import torch

from core.density.diagonal.components import Components
from core.density.mixture import Moments, log_joint, log_sum_exp
from core.density.owned import NO_CLASS

CPU = torch.device("cpu")


def two_components(owner: int = 1) -> Components:
    x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0], [5.0, 7.0], [5.0, 9.0]])
    weights = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    sums = Moments(weights.sum(0), weights.T @ x, weights.T @ x.square())
    return Components.of_owner(sums, owner, n_classes=3)


def test_the_components_of_a_class_have_the_moments_of_its_samples_and_its_votes() -> None:
    components = two_components()
    assert len(components) == 2
    assert components.mass.tolist() == [2, 3]
    assert components.means.tolist() == [[1, 1], [5, 7]]
    torch.testing.assert_close(components.variances, torch.tensor([[1.0, 0.0], [0.0, 8 / 3]]))
    assert components.owner.tolist() == [1, 1]
    assert components.votes.tolist() == [[0, 2, 0], [0, 3, 0]]


def test_components_without_a_class_have_no_votes() -> None:
    assert two_components(NO_CLASS).votes.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_moments_are_the_sums_over_samples_that_they_were_made_from() -> None:
    sums = two_components().moments()
    assert sums.mass.tolist() == [2, 3]
    torch.testing.assert_close(sums.first, torch.tensor([[2.0, 2.0], [15.0, 21.0]]))
    torch.testing.assert_close(sums.second, torch.tensor([[4.0, 2.0], [75.0, 155.0]]))


def test_variances_are_raw_and_only_the_mixture_has_a_floor() -> None:
    components = two_components()
    assert float(components.variances.min()) == 0
    mixture = components.mixture(floor=0.04)
    assert mixture.precision_root.square().reciprocal().amin().item() == pytest.approx(0.04)
    assert mixture.log_weights.exp().tolist() == pytest.approx([0.4, 0.6])
    # A density: the mass of a grid around it is one.
    axis = torch.linspace(-8, 16, 481)
    grid = torch.cartesian_prod(axis, axis)
    total = log_sum_exp(log_joint(mixture, grid)).exp().sum() * (24 / 480) ** 2
    assert total.item() == pytest.approx(1, abs=1e-3)


def test_selecting_and_joining_keep_every_part_in_step() -> None:
    one, other = two_components(0), two_components(2)
    both = Components.concatenated([one, other])
    assert both.owner.tolist() == [0, 0, 2, 2]
    by_mask, by_slice = both.select(both.owner == 2), both.select(slice(2, None))
    for components in (by_mask, by_slice):
        assert torch.equal(components.means, other.means)
        assert torch.equal(components.votes, other.votes)
        assert torch.equal(components.mass, other.mass)
    assert Components.concatenated([one]) is one


def test_nothing_at_all_can_be_joined_with_something() -> None:
    nothing = Components.none(2, 3, CPU)
    assert len(nothing) == 0
    both = Components.concatenated([nothing, two_components()])
    assert both.votes.shape == (2, 3)
    assert both.owner.tolist() == [1, 1]


def test_a_component_of_a_billion_samples_and_one_of_a_millionth_share_a_mixture() -> None:
    sums = Moments(torch.tensor([1e9, 1e-6]), torch.tensor([[1e9], [0.0]]), torch.ones(2, 1) * 2e9)
    log_weights = Components.of_owner(sums, 0, 1).mixture(0.05).log_weights
    assert log_weights.isfinite().all()
    assert log_weights[1].item() == pytest.approx(math.log(1e-15), rel=1e-3)
