"""Tests for core.model.model: what is served."""

from typing import Any

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Mixture
from core.model.model import Model
from core.model.readout import LinearReadout, PosteriorReadout


def four_points(readout: PosteriorReadout | LinearReadout) -> Model:
    """Four components on a line, at 0, 10, 20 and 30; the last two weigh most."""
    means = torch.tensor([[0.0], [10.0], [20.0], [30.0]])
    weights = torch.tensor([0.1, 0.1, 0.4, 0.4])
    mixture = Mixture(weights.log(), means, torch.ones(4, 1))
    return Model(DiagonalDensity(mixture, torch.full((4, 1), 0.5)), readout)


TWO_CLASSES = PosteriorReadout(torch.tensor([[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]]), 1.0)


def test_the_log_likelihood_is_the_mixture_density() -> None:
    model = four_points(TWO_CLASSES)
    mixture: Any = MixtureSameFamily(
        Categorical(probs=torch.tensor([0.1, 0.1, 0.4, 0.4])),
        Independent(Normal(torch.tensor([[0.0], [10.0], [20.0], [30.0]]), torch.ones(4, 1)), 1),
    )
    x = torch.linspace(-5, 35, 9)[:, None]
    torch.testing.assert_close(model.log_likelihood(x), mixture.log_prob(x), rtol=1e-4, atol=1e-4)


def test_unconditional_sampling_follows_the_weights() -> None:
    drawn = four_points(TWO_CLASSES).sample_components(None, 20_000, torch.Generator())
    shares = drawn.bincount(minlength=4) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.1, 0.4, 0.4]), atol=0.015, rtol=0)


def test_conditional_sampling_draws_components_of_the_wanted_class_by_their_weight() -> None:
    codes = torch.tensor([0, 1]).repeat(10_000)
    drawn = four_points(TWO_CLASSES).sample_components(codes, 20_000, torch.Generator())
    assert bool((drawn % 2 == codes).all())
    assert (drawn[codes == 0] == 2).float().mean().item() == pytest.approx(0.8, abs=0.02)


def test_a_linear_readout_steers_by_inversion() -> None:
    weight = torch.tensor([[2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [-2.0, 2.0]])
    model = four_points(LinearReadout(weight, torch.zeros(2), top=2))
    codes = torch.tensor([0, 1]).repeat(500)
    assert bool((model.sample_components(codes, 1000, torch.Generator()) % 2 == codes).all())


def test_samples_are_drawn_with_the_raw_deviations_not_with_the_floored_ones() -> None:
    model = four_points(TWO_CLASSES)
    drawn = model.sample(torch.full((20_000,), 2), torch.Generator())
    assert drawn.std().item() == pytest.approx(0.5, rel=0.03)
    assert drawn.mean().item() == pytest.approx(20.0, abs=0.02)


def test_a_share_of_the_noise_is_drawn_where_that_is_asked_for() -> None:
    drawn = four_points(TWO_CLASSES).sample(torch.full((20_000,), 2), torch.Generator(), 0.6)
    assert drawn.std().item() == pytest.approx(0.3, rel=0.03)


def test_counts_and_tensors_name_every_part() -> None:
    linear = four_points(LinearReadout(torch.zeros(4, 3), torch.zeros(3), top=2))
    assert (linear.n_components, linear.n_classes) == (4, 3)
    assert [tuple(tensor.shape) for tensor in linear.tensors] == [
        (4,), (4, 1), (4, 1), (4, 1), (4, 3), (3,),
    ]  # fmt: skip
    assert four_points(TWO_CLASSES).n_classes == 2
    assert four_points(TWO_CLASSES).tensors[-1].shape == (4, 2)
