"""Tests for the core.density.factors.components module."""

from __future__ import annotations

import math

import pytest
import torch

from core.density.factor_mixture import FactorMixture, covariances, log_likelihood
from core.density.factors.components import Analysers
from core.density.owned import NO_CLASS

CPU = torch.device("cpu")


def two_analysers(owner: int = 1) -> Analysers:
    generator = torch.Generator().manual_seed(0)
    parameters = (
        torch.randn(2, 2, generator=generator),
        torch.randn(2, 2, 1, generator=generator),
        torch.tensor([[0.5, 0.2], [0.1, 0.4]]),
    )
    return Analysers.of_owner(torch.tensor([2.0, 3.0]), parameters, owner, n_classes=3)


def test_the_components_of_a_class_stand_for_its_samples_and_vote_for_it() -> None:
    analysers = two_analysers()
    assert len(analysers) == 2
    assert analysers.mass.tolist() == [2, 3]
    assert analysers.owner.tolist() == [1, 1]
    assert analysers.votes.tolist() == [[0, 2, 0], [0, 3, 0]]


def test_components_without_a_class_have_no_votes() -> None:
    analysers = two_analysers(NO_CLASS)
    assert analysers.owner.tolist() == [NO_CLASS] * 2
    assert analysers.votes.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_mixture_is_a_density_whose_weights_are_shares_of_mass() -> None:
    analysers = two_analysers()
    mixture = analysers.mixture()
    assert mixture.log_weights.exp().tolist() == pytest.approx([0.4, 0.6])
    # The mass of a grid around it is one.
    axis = torch.linspace(-9, 9, 361)
    grid = torch.cartesian_prod(axis, axis)
    total = log_likelihood(mixture, grid).exp().sum() * (18 / 360) ** 2
    assert total.item() == pytest.approx(1, abs=1e-3)


def test_as_a_part_of_others_its_weights_are_shares_of_theirs() -> None:
    weights = two_analysers().mixture(total=20.0).log_weights.exp()
    assert weights.tolist() == pytest.approx([0.1, 0.15])
    same = two_analysers().mixture(total=torch.tensor(20.0)).log_weights.exp()
    torch.testing.assert_close(same, weights)


def test_noise_in_the_mixture_is_raw() -> None:
    analysers = two_analysers()
    silent = Analysers.of_owner(
        analysers.mass, (analysers.means, analysers.loadings, 0 * analysers.noise), 0, 1
    )
    expected = analysers.loadings @ analysers.loadings.transpose(1, 2)
    torch.testing.assert_close(covariances(silent.mixture()), expected)


def test_selecting_and_joining_keep_every_part_in_step() -> None:
    one, other = two_analysers(0), two_analysers(2)
    both = Analysers.concatenated([one, other])
    assert both.owner.tolist() == [0, 0, 2, 2]
    for rows in (both.owner == 2, torch.tensor([2, 3])):
        picked = both.select(rows)
        for name in ("mass", "means", "loadings", "noise", "owner", "votes"):
            assert torch.equal(getattr(picked, name), getattr(other, name)), name
    backwards = both.select(torch.tensor([3, 0]))
    assert backwards.mass.tolist() == [3, 2]
    assert backwards.owner.tolist() == [2, 0]
    assert torch.equal(backwards.loadings[1], one.loadings[0])


def test_nothing_at_all_can_be_joined_with_something() -> None:
    nothing = Analysers.none(2, 1, 3, CPU)
    assert len(nothing) == 0
    assert isinstance(nothing.mixture(1.0), FactorMixture)
    one = two_analysers()
    assert Analysers.concatenated([nothing, one]) is one
    assert Analysers.concatenated([nothing, nothing]) is nothing
    assert len(Analysers.concatenated([one, nothing, one])) == 4


def test_a_component_of_a_billion_samples_and_one_of_a_millionth_share_a_mixture() -> None:
    parameters = (torch.zeros(2, 1), torch.zeros(2, 1, 0), torch.ones(2, 1))
    analysers = Analysers.of_owner(torch.tensor([1e9, 1e-6]), parameters, 0, 1)
    log_weights = analysers.mixture().log_weights
    assert log_weights[1].item() == pytest.approx(math.log(1e-15), rel=1e-3)
