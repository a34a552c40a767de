"""Tests for core.density.mixture: every kernel against torch.distributions, in float64."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from core.density.mixture import (
    Mixture,
    Moments,
    log_joint,
    log_likelihood,
    log_sum_exp,
    means_and_variances,
    moments,
    natural_form,
    responsibilities,
    sample,
)

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)
relaxed = settings(deadline=None, max_examples=60)


def random_mixture(k: int, d: int, seed: int) -> tuple[Mixture, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(2, k, d, generator=generator, dtype=torch.float64)
    log_weights = torch.randn(k, generator=generator, dtype=torch.float64).log_softmax(0)
    return Mixture(log_weights, 2 * normal[0], (0.5 * normal[1]).exp()), generator


def samples(n: int, d: int, generator: torch.Generator) -> Tensor:
    return 3 * torch.randn(n, d, generator=generator, dtype=torch.float64)


def reference(mixture: Mixture) -> Any:  # torch.distributions carries no types
    normal = Normal(mixture.means, 1 / mixture.precision_root)
    return MixtureSameFamily(Categorical(logits=mixture.log_weights), Independent(normal, 1))


@relaxed
@given(k=sizes, d=sizes, n=sizes, seed=seeds)
def test_log_likelihood_is_that_of_torch_distributions(k: int, d: int, n: int, seed: int) -> None:
    mixture, generator = random_mixture(k, d, seed)
    x = samples(n, d, generator)
    expected = reference(mixture).log_prob(x)
    torch.testing.assert_close(log_likelihood(mixture, x), expected)
    torch.testing.assert_close(log_likelihood(natural_form(mixture), x), expected)


@relaxed
@given(k=sizes, d=sizes, seed=seeds)
def test_log_joint_is_log_weight_plus_log_density(k: int, d: int, seed: int) -> None:
    mixture, generator = random_mixture(k, d, seed)
    x = samples(5, d, generator)
    components: Any = Independent(Normal(mixture.means, 1 / mixture.precision_root), 1)
    density = components.log_prob(x[:, None])
    torch.testing.assert_close(log_joint(mixture, x), mixture.log_weights + density)
    torch.testing.assert_close(log_joint(mixture, x, x.square()), mixture.log_weights + density)


def test_expected_squares_give_the_expected_log_joint_of_an_uncertain_sample() -> None:
    mixture, generator = random_mixture(4, 3, 0)
    mean, deviation = samples(1, 3, generator), torch.tensor([[0.1, 0.5, 2.0]]).double()
    expected = log_joint(mixture, mean, mean.square() + deviation.square())
    # A uniform distribution with these moments over two points per feature, all 8 of them.
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 3)
    torch.testing.assert_close(
        expected, log_joint(mixture, mean + signs * deviation).mean(0, keepdim=True)
    )


@relaxed
@given(k=sizes, n=sizes, seed=seeds, size=st.floats(-1e4, 1e4))
def test_log_sum_exp_is_that_of_torch_at_any_size(k: int, n: int, seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = size * torch.randn(n, k, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(log_sum_exp(values), values.logsumexp(-1))


@relaxed
@given(k=sizes, d=sizes, seed=seeds, temperature=st.floats(0.5, 100))
def test_responsibilities_sum_to_one(k: int, d: int, seed: int, temperature: float) -> None:
    mixture, generator = random_mixture(k, d, seed)
    posterior = responsibilities(log_joint(mixture, samples(7, d, generator)), temperature)
    assert bool((posterior >= 0).all())
    torch.testing.assert_close(posterior.sum(-1), torch.ones(7).double())


def test_responsibilities_are_the_normalised_products_of_weight_and_density() -> None:
    mixture, generator = random_mixture(3, 2, 1)
    joint = log_joint(mixture, samples(4, 2, generator))
    products = joint.exp()
    torch.testing.assert_close(responsibilities(joint), products / products.sum(-1, keepdim=True))


@relaxed
@given(k=sizes, d=sizes, seed=seeds, shift=st.floats(-100, 100), stretch=st.floats(0.01, 100))
def test_a_change_of_units_costs_the_logarithm_of_the_volume_and_nothing_else(
    k: int, d: int, seed: int, shift: float, stretch: float
) -> None:
    mixture, generator = random_mixture(k, d, seed)
    x = samples(5, d, generator)
    moved = Mixture(
        mixture.log_weights, stretch * mixture.means + shift, mixture.precision_root / stretch
    )
    volume = d * torch.tensor(stretch).double().log()
    torch.testing.assert_close(
        log_joint(moved, stretch * x + shift), log_joint(mixture, x) - volume, rtol=1e-6, atol=1e-5
    )


@relaxed
@given(n=st.integers(1, 20), k=sizes, d=sizes, seed=seeds)
def test_the_m_step_recovers_weighted_means_and_variances(
    n: int, k: int, d: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = samples(n, d, generator)
    weights = torch.rand(n, k, generator=generator, dtype=torch.float64) + 0.01
    sums = moments(weights, x)
    means, variances = means_and_variances(sums, floor=0.0)
    share = (weights / weights.sum(0)).T[:, :, None]  # (K, N, 1)
    expected = (share * x).sum(1)
    torch.testing.assert_close(sums.mass, weights.sum(0))
    torch.testing.assert_close(means, expected)
    torch.testing.assert_close(
        variances, (share * (x - expected[:, None]).square()).sum(1), rtol=1e-6, atol=1e-9
    )


def test_the_floor_holds_where_a_feature_never_varies() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 4.0]]).double()
    _, variances = means_and_variances(moments(torch.ones(2, 1).double(), x), floor=0.25)
    assert variances.tolist() == [[0.25, 4.0]]


def test_moments_of_two_batches_add_up_to_those_of_both() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weights = samples(6, 3, generator), torch.rand(6, 2, generator=generator).double()
    whole = moments(weights, x)
    halves = moments(weights[:2], x[:2]) + moments(weights[2:], x[2:])
    for one, other in zip(whole, halves, strict=True):
        torch.testing.assert_close(one, other)
    per_component = torch.tensor([2.0, 0.5]).double()
    scaled = whole.scaled(per_component)
    assert isinstance(scaled, Moments)
    torch.testing.assert_close(scaled.first, whole.first * per_component[:, None])
    torch.testing.assert_close(whole.scaled(3.0).mass, 3 * whole.mass)


def test_samples_have_the_moments_of_their_component() -> None:
    mixture, generator = random_mixture(3, 4, 2)
    deviations = 1 / mixture.precision_root
    n = 40_000
    for k in range(3):
        components = torch.full((n,), k)
        x = sample(mixture.means, deviations, components, generator)
        error = deviations[k] / n**0.5
        assert bool(((x.mean(0) - mixture.means[k]).abs() < 5 * error).all())
        torch.testing.assert_close(x.std(0), deviations[k], rtol=0.03, atol=0.0)


def test_a_component_without_deviation_emits_its_mean() -> None:
    means = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    drawn = sample(means, torch.zeros(2, 2), torch.tensor([1, 0]), torch.Generator())
    assert torch.equal(drawn, means[[1, 0]])


def test_the_same_generator_draws_the_same_samples() -> None:
    mixture, _ = random_mixture(3, 4, 3)
    components = torch.tensor([0, 1, 2, 0])
    draws = [
        sample(mixture.means, mixture.means.abs(), components, torch.Generator().manual_seed(seed))
        for seed in (7, 7, 8)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
