"""Tests for the core.density.diagonal.merging module: analytic replay."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.diagonal.merging import consolidate
from core.density.mixture import (
    Mixture,
    Moments,
    log_joint,
    log_sum_exp,
    means_and_variances,
    moments,
    responsibilities,
    sample,
)

FLOOR = 0.01


def atoms_of(mass: Tensor, means: Tensor, variances: Tensor) -> Moments:
    return Moments(mass, mass[:, None] * means, mass[:, None] * (means.square() + variances))


def random_atoms(k: int, d: int, seed: int, clusters: int = 4) -> Moments:
    """K components of unequal size around a few places."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(clusters, d, generator=generator) * 2
    means = places[torch.arange(k) % clusters] + 0.1 * torch.randn(k, d, generator=generator)
    variances = 0.02 * torch.rand(k, d, generator=generator) + 0.002
    mass = torch.rand(k, generator=generator) * 300 + 5
    return atoms_of(mass.double(), means.double(), variances.double())


def mixture_of(sums: Moments) -> Mixture:
    means, variances = means_and_variances(sums, FLOOR)
    return Mixture((sums.mass / sums.mass.sum()).log(), means, variances.rsqrt())


def expected_log_likelihood(model: Moments, atoms: Moments) -> float:
    """Mean over what the atoms stand for of the log density, in nats, by Monte Carlo."""
    generator = torch.Generator().manual_seed(7)
    means, variances = means_and_variances(atoms, 0.0)
    picks = torch.multinomial(atoms.mass, 20_000, replacement=True, generator=generator)
    x = sample(means, variances.sqrt(), picks, generator)
    return float(log_sum_exp(log_joint(mixture_of(model), x)).mean())


def expected_log_joint(model: Moments, atoms: Moments, shares: Tensor) -> float:
    """What one round of EM cannot lower: the mean expected log-joint, plus the entropy."""
    mean = atoms.first / atoms.mass[:, None]
    joint = log_joint(mixture_of(model), mean, atoms.second / atoms.mass[:, None])
    bound = torch.where(shares > 0, shares * (joint - shares.clamp_min(1e-300).log()), 0.0)
    return float((bound.sum(-1) * atoms.mass).sum() / atoms.mass.sum())


# What is kept -----------------------------------------------------------------------------


@given(
    n=st.integers(1, 40),
    k=st.integers(1, 12),
    d=st.sampled_from([1, 3, 20]),
    seed=st.integers(0, 1000),
    tiny=st.booleans(),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_mass_and_both_moments_are_those_of_before(
    n: int, k: int, d: int, seed: int, tiny: bool
) -> None:
    atoms = random_atoms(n, d, seed)
    if tiny:  # components that stand for next to nothing, as stepwise EM leaves them
        scale = torch.ones(n, dtype=torch.float64)
        scale[::2] = 1e-9
        atoms = atoms.scaled(scale)
    sums, shares = consolidate(atoms, k, FLOOR)
    assert len(sums.mass) <= min(n, k)
    assert (sums.mass > 0).all()
    assert float(sums.mass.sum()) == pytest.approx(float(atoms.mass.sum()), rel=1e-9)
    torch.testing.assert_close(sums.first.sum(0), atoms.first.sum(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sums.second.sum(0), atoms.second.sum(0), rtol=1e-9, atol=1e-9)
    # Shares say who took over what, so that votes can travel the same way.
    assert shares.shape == (n, len(sums.mass))
    torch.testing.assert_close(shares.sum(1), torch.ones(n, dtype=torch.float64))
    torch.testing.assert_close(shares.T @ atoms.mass, sums.mass)


def test_in_single_precision_a_hundred_rounds_lose_no_mass() -> None:
    atoms = Moments(*(part.float() for part in random_atoms(40, 5, 0)))
    total = float(atoms.mass.double().sum())
    for _ in range(100):
        atoms, _ = consolidate(atoms, len(atoms.mass) - 1 or 1, FLOOR)
    assert float(atoms.mass.double().sum()) == pytest.approx(total, rel=1e-5)


def test_few_enough_components_are_handed_back_untouched() -> None:
    atoms = random_atoms(5, 3, 1)
    for k in (5, 6, 100):
        sums, shares = consolidate(atoms, k, FLOOR)
        assert sums is atoms
        assert torch.equal(shares, torch.eye(5, dtype=torch.float64))


def test_down_to_one_component_it_is_the_mean_and_variance_of_everything() -> None:
    atoms = random_atoms(9, 2, 3)
    sums, shares = consolidate(atoms, 1, FLOOR)
    assert torch.equal(shares, torch.ones(9, 1, dtype=torch.float64))
    torch.testing.assert_close(sums.first[0], atoms.first.sum(0))


def test_what_was_given_is_not_changed() -> None:
    atoms = random_atoms(12, 3, 5)
    copies = [part.clone() for part in atoms]
    consolidate(atoms, 3, FLOOR)
    assert all(torch.equal(part, copy) for part, copy in zip(atoms, copies, strict=True))


# How good it is ---------------------------------------------------------------------------


def test_components_of_one_place_are_merged_and_those_of_different_places_are_not() -> None:
    atoms = random_atoms(20, 6, 0, clusters=4)
    sums, shares = consolidate(atoms, 4, FLOOR)
    place = torch.arange(20) % 4
    joined = shares.argmax(1)
    assert (shares.amax(1) > 0.999).all()
    for at in range(4):
        assert len(set(joined[place == at].tolist())) == 1
    expected = atoms.mass[place == 2].sum()
    assert float(sums.mass[joined[2]]) == pytest.approx(float(expected), rel=1e-3)


def test_em_on_the_atoms_improves_on_merging_alone() -> None:
    gains = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        means = torch.randn(60, 4, generator=generator).double()
        variances = 0.05 * torch.rand(60, 4, generator=generator).double() + 0.01
        mass = torch.rand(60, generator=generator).double() * 50 + 5
        atoms = atoms_of(mass, means, variances)
        merged, merged_shares = consolidate(atoms, 8, FLOOR, rounds=0)
        fitted, fitted_shares = consolidate(atoms, 8, FLOOR)
        assert set(merged_shares.flatten().tolist()) == {0.0, 1.0}
        # Always in the bound that EM climbs, and as a rule in the likelihood itself.
        bound = expected_log_joint(merged, atoms, merged_shares)
        assert expected_log_joint(fitted, atoms, fitted_shares) > bound
        gains.append(
            expected_log_likelihood(fitted, atoms) - expected_log_likelihood(merged, atoms)
        )
    assert sum(gain > 0 for gain in gains) >= 6
    assert sum(gains) / len(gains) > 0.01


def test_more_rounds_never_make_the_bound_worse() -> None:
    atoms = random_atoms(30, 4, 11, clusters=9)
    bounds = []
    for rounds in range(6):
        sums, shares = consolidate(atoms, 5, FLOOR, rounds=rounds)
        bounds.append(expected_log_joint(sums, atoms, shares))
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(bounds))
    assert bounds[-1] > bounds[0]


def test_atoms_of_points_are_samples() -> None:
    """An atom without variance is a weighted sample, so EM on atoms is then EM on samples."""
    generator = torch.Generator().manual_seed(3)
    x = torch.cat([torch.randn(30, 2, generator=generator) + 3 * side for side in (-1, 1)]).double()
    atoms = atoms_of(torch.ones(60).double(), x, torch.zeros(60, 2).double())
    sums, shares = consolidate(atoms, 2, FLOOR, rounds=1)
    start, _ = consolidate(atoms, 2, FLOOR, rounds=0)
    weights = responsibilities(log_joint(mixture_of(start), x))
    torch.testing.assert_close(shares, weights)
    expected = moments(weights, x)
    for part, other in zip(sums, expected, strict=True):
        torch.testing.assert_close(part, other)


def test_an_atom_counts_with_its_variance_not_as_a_point() -> None:
    """Its shares are those of its expected score, here by drawing 50,000 samples of each."""
    generator = torch.Generator().manual_seed(9)
    means = torch.tensor([[0.0, 0.0], [0.2, 0.0], [2.0, 0.0], [2.2, 0.3], [1.0, 0.1]]).double()
    variances = torch.tensor([0.01, 0.01, 0.6, 0.5, 0.3]).double()[:, None].expand(5, 2)
    atoms = atoms_of(torch.tensor([90.0, 80, 100, 70, 10]).double(), means, variances)
    start, _ = consolidate(atoms, 2, FLOOR, rounds=0)
    _, shares = consolidate(atoms, 2, FLOOR, rounds=1)
    for atom in range(5):
        picks = torch.full((50_000,), atom)
        x = sample(means, variances.sqrt(), picks, generator)
        expected = log_joint(mixture_of(start), x).mean(0)
        torch.testing.assert_close(shares[atom], expected.softmax(-1), atol=0.02, rtol=0)


def test_it_agrees_with_em_on_a_huge_sample_drawn_from_the_components() -> None:
    """Nothing drawn, and yet what drawing 400,000 samples would give, up to sampling noise."""
    generator = torch.Generator().manual_seed(5)
    # Narrow atoms, so that all samples of one have the same responsibilities.
    means = torch.tensor([[0.0, 0.0], [0.3, 0.1], [4.0, 4.0], [4.2, 3.8], [0.0, 4.0], [0.2, 4.1]])
    variances = torch.full((6, 2), 0.01)
    mass = torch.tensor([100.0, 300.0, 200.0, 100.0, 50.0, 150.0])
    atoms = atoms_of(mass.double(), means.double(), variances.double())
    analytic, _ = consolidate(atoms, 3, FLOOR)

    picks = torch.multinomial(mass, 400_000, replacement=True, generator=generator)
    x = sample(means, variances.sqrt(), picks, generator).double()
    drawn, _ = consolidate(atoms, 3, FLOOR, rounds=0)
    for _ in range(5):
        drawn = moments(responsibilities(log_joint(mixture_of(drawn), x)), x)
    order, drawn_order = analytic.mass.argsort(), drawn.mass.argsort()
    share = analytic.mass[order] / analytic.mass.sum()
    torch.testing.assert_close(share, drawn.mass[drawn_order] / 400_000, atol=3e-3, rtol=0)
    for ours, theirs in zip(
        means_and_variances(analytic, 0.0), means_and_variances(drawn, 0.0), strict=True
    ):
        torch.testing.assert_close(ours[order], theirs[drawn_order], atol=4e-3, rtol=0)


# Edges ------------------------------------------------------------------------------------


def test_components_that_are_all_the_same_can_be_merged() -> None:
    atoms = atoms_of(torch.ones(8).double(), torch.zeros(8, 3).double(), torch.zeros(8, 3).double())
    sums, _ = consolidate(atoms, 3, FLOOR)
    assert float(sums.mass.sum()) == pytest.approx(8)
    assert all(part.isfinite().all() for part in sums)


def test_a_component_that_is_emptied_leaves_its_samples_to_the_others() -> None:
    # So far away that merging the two large ones costs less than merging it with either.
    mass = torch.tensor([1e6, 1e6, 1e-3]).double()
    means = torch.tensor([[0.0], [0.4], [1e4]]).double()
    atoms = atoms_of(mass, means, torch.full((3, 1), 0.01).double())
    sums, shares = consolidate(atoms, 2, FLOOR)
    assert len(sums.mass) == 1
    assert math.isclose(float(sums.mass.sum()), 2e6 + 1e-3, rel_tol=1e-12)
    torch.testing.assert_close(sums.first.sum(0), atoms.first.sum(0))
    torch.testing.assert_close(shares.sum(1), torch.ones(3).double())
