"""Tests for core.density.diagonal.gradient: the closed form against autograd, in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal

from core.density.diagonal.annealing import neighbourhood
from core.density.diagonal.gradient import Parameters, Rates, ascend, gradient, winners
from core.density.mixture import log_joint

relaxed = settings(deadline=None, max_examples=40)


def random_case(k: int, d: int, n: int, seed: int) -> tuple[Parameters, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(2, k, d, generator=generator, dtype=torch.float64)
    logits = torch.randn(k, generator=generator, dtype=torch.float64)
    x = 2 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return Parameters(logits, normal[0], (0.3 * normal[1]).exp()), x


def objective(parameters: Parameters, x: Tensor, near: Tensor | None) -> Tensor:
    """The mean annealed max-component log-likelihood, from torch.distributions."""
    logits, means, precision_root = parameters
    components: Any = Independent(Normal(means, 1 / precision_root), 1)
    joint = logits.log_softmax(-1) + components.log_prob(x[:, None])
    smooth = joint if near is None else torch.einsum("kl,nl->nk", near, joint)
    return smooth.amax(-1).mean()


def derivative(parameters: Parameters, x: Tensor, near: Tensor | None) -> Parameters:
    joint = log_joint(parameters.mixture, x)
    _, winner = winners(joint, near)
    return gradient(parameters, x, winner, near)


@relaxed
@given(
    side=st.integers(1, 4),
    d=st.integers(1, 6),
    n=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
    radius=st.sampled_from([None, 0.1, 0.5, 1.0, 3.0]),
)
def test_the_closed_form_is_what_autograd_finds(
    side: int, d: int, n: int, seed: int, radius: float | None
) -> None:
    parameters, x = random_case(side**2, d, n, seed)
    near = None if radius is None else neighbourhood(side**2, radius)
    leaves = Parameters(*(value.clone().requires_grad_() for value in parameters))
    expected = torch.autograd.grad(objective(leaves, x, near), leaves)
    for ours, autograd in zip(derivative(parameters, x, near), expected, strict=True):
        torch.testing.assert_close(ours, autograd)


def test_the_objective_is_the_annealed_likelihood_of_the_winner() -> None:
    parameters, x = random_case(9, 4, 6, 0)
    for near in (None, neighbourhood(9, 0.8)):
        value, _ = winners(log_joint(parameters.mixture, x), near)
        torch.testing.assert_close(value.mean(), objective(parameters, x, near))


def test_squares_that_the_caller_has_change_nothing() -> None:
    parameters, x = random_case(4, 3, 5, 1)
    _, winner = winners(log_joint(parameters.mixture, x), None)
    plain = gradient(parameters, x, winner, None)
    given_squares = gradient(parameters, x, winner, None, x.square())
    for one, other in zip(plain, given_squares, strict=True):
        assert torch.equal(one, other)


def test_a_step_climbs() -> None:
    parameters, x = random_case(9, 4, 50, 2)
    limits = (0.01, torch.full((4,), 10.0).double())
    before = objective(parameters, x, None)
    for _ in range(200):
        step = derivative(parameters, x, None)
        parameters = ascend(parameters, step, Rates(1.0, 1.0, 1.0), 0.02, limits)
    assert objective(parameters, x, None) > before + 1.0


def test_precisions_stay_in_their_range_and_positive() -> None:
    parameters, x = random_case(4, 2, 10, 3)
    most = torch.tensor([1.5, 0.5]).double()
    for _ in range(50):
        step = derivative(parameters, x, None)
        parameters = ascend(parameters, step, Rates(0.0, 0.0, 1.0), 5.0, (0.1, most))
        assert bool((parameters.precision_root >= 0.1).all())
        assert bool((parameters.precision_root <= most).all())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_rate_of_zero_leaves_its_parameter_alone(position: int) -> None:
    parameters, x = random_case(4, 2, 10, 4)
    rates = [1.0, 1.0, 1.0]
    rates[position] = 0.0
    limits = (0.01, torch.full((2,), 100.0).double())
    stepped = ascend(parameters, derivative(parameters, x, None), Rates(*rates), 0.1, limits)
    same = [torch.equal(old, new) for old, new in zip(parameters, stepped, strict=True)]
    assert same == [place == position for place in range(3)]


def test_parameters_given_in_are_not_edited() -> None:
    parameters, x = random_case(4, 2, 10, 5)
    kept = [value.clone() for value in parameters]
    limits = (0.01, torch.full((2,), 0.5).double())
    ascend(parameters, derivative(parameters, x, None), Rates(1.0, 1.0, 1.0), 0.1, limits)
    assert all(torch.equal(a, b) for a, b in zip(kept, parameters, strict=True))


def test_the_weights_of_the_mixture_sum_to_one_whatever_the_logits() -> None:
    parameters, _ = random_case(5, 2, 1, 6)
    shifted = parameters._replace(logits=parameters.logits + 100)
    assert shifted.mixture.log_weights.exp().sum().item() == pytest.approx(1)
    torch.testing.assert_close(shifted.mixture.log_weights, parameters.mixture.log_weights)
