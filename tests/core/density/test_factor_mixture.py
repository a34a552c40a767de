"""Tests for core.density.factor_mixture: every kernel against dense Gaussians, in float64."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal

from core.density.blocks import ROWS
from core.density.factor_mixture import (
    NEGLIGIBLE,
    FactorMixture,
    FactorMoments,
    covariances,
    e_step,
    expected_moments,
    log_joint,
    log_likelihood,
    m_step,
    moments,
    n_factors_of,
    no_moments,
    sample,
    whitened,
    whitened_form,
)

pytestmark = pytest.mark.usefixtures("both_ways")

sizes = st.integers(1, 6)
ranks = st.integers(0, 4)
seeds = st.integers(0, 2**32 - 1)
relaxed = settings(deadline=None, max_examples=50, derandomize=True)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_mixture(k: int, d: int, n_factors: int, seed: int) -> FactorMixture:
    generator = seeded(seed)
    return FactorMixture(
        normal(k, generator=generator).log_softmax(0),
        2 * normal(k, d, generator=generator),
        normal(k, d, n_factors, generator=generator),
        (0.5 * normal(k, d, generator=generator)).exp(),
    )


def parameters_of(mixture: FactorMixture) -> tuple[Tensor, Tensor, Tensor]:
    return mixture.means, mixture.loadings, mixture.noise


def samples(n: int, d: int, seed: int) -> Tensor:
    return 3 * normal(n, d, generator=seeded(seed + 1))


def dense(mixture: FactorMixture, component: int) -> MultivariateNormal:
    """One component, its covariance written out."""
    return MultivariateNormal(mixture.means[component], covariances(mixture)[component])


def posterior(mixture: FactorMixture, component: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (N, L) and covariance (L, L) of z given x, by conditioning the joint Gaussian."""
    loadings, mean = mixture.loadings[component], mixture.means[component]
    gain = loadings.T @ torch.linalg.inv(covariances(mixture)[component])
    identity = torch.eye(loadings.shape[1], dtype=torch.float64)
    return (x - mean) @ gain.T, identity - gain @ loadings


# Density ----------------------------------------------------------------------------------


@relaxed
@given(k=sizes, d=sizes, n_factors=ranks, n=sizes, seed=seeds)
def test_log_joint_is_log_weight_plus_log_density(
    k: int, d: int, n_factors: int, n: int, seed: int
) -> None:
    mixture, x = random_mixture(k, d, n_factors, seed), samples(n, d, seed)
    parts = [dense(mixture, one).log_prob(x) for one in range(k)]
    expected = mixture.log_weights + torch.stack(parts, 1)
    form = whitened_form(mixture)
    assert (form.n_components, form.n_factors) == (k, n_factors)
    torch.testing.assert_close(log_joint(form, x), expected)
    torch.testing.assert_close(log_joint(form, x, x.square()), expected)
    torch.testing.assert_close(log_likelihood(mixture, x), expected.logsumexp(-1))


@pytest.mark.parametrize("n", [ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 7])
@pytest.mark.parametrize("n_factors", [1, 5])
def test_batches_of_any_length_are_scored_like_torch_distributions(n: int, n_factors: int) -> None:
    mixture, x = random_mixture(3, 40, n_factors, n), samples(n, 40, n)
    parts = [
        LowRankMultivariateNormal(mean, loadings, noise).log_prob(x)
        for mean, loadings, noise in zip(*parameters_of(mixture), strict=True)
    ]
    expected = mixture.log_weights + torch.stack(parts, 1)
    joint = log_joint(whitened_form(mixture), x)
    torch.testing.assert_close(joint, expected)


def test_what_is_said_of_rows_does_not_depend_on_those_that_follow() -> None:
    form = whitened_form(random_mixture(3, 40, 5, 0))
    x = samples(2 * ROWS + 7, 40, 0).float()
    form = type(form)(*(part.float() for part in form))
    joint = log_joint(form, x)
    for begin in range(0, len(x), ROWS):
        rows = slice(begin, begin + ROWS)
        assert torch.equal(joint[rows], log_joint(form, x[rows]))


def test_single_precision_is_enough_for_hundreds_of_features_of_little_noise() -> None:
    mixture = random_mixture(4, 600, 20, 0)._replace(noise=torch.full((4, 600), 0.05).double())
    generator = seeded(3)
    x = sample(mixture, torch.randint(4, (50,), generator=generator), generator, noise=True)
    single = FactorMixture(*(part.float() for part in mixture))
    joint = log_joint(whitened_form(single), x.float()).amax(-1).double()
    # Some 1,700 nats between the diagonal part alone and all of it.
    torch.testing.assert_close(joint, log_likelihood(mixture, x), rtol=0, atol=0.3)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_factors_that_all_but_coincide_can_be_scored(size: float) -> None:
    """What a broken sensor may leave behind: huge, and far from the noise."""
    for seed in range(20):
        generator = seeded(seed)
        direction = torch.randn(3, 40, 1, generator=generator)
        loadings = direction + 1e-4 * torch.randn(3, 40, 6, generator=generator)
        mixture = FactorMixture(
            torch.zeros(3) - 1, torch.zeros(3, 40), size * loadings, torch.full((3, 40), 0.05)
        )
        x = size * direction[0].T * torch.randn(5, 1, generator=generator)
        x = x + 0.2 * torch.randn(5, 40, generator=generator)
        ours = log_likelihood(mixture, x).double()
        exact = log_likelihood(FactorMixture(*(part.double() for part in mixture)), x.double())
        assert bool(ours.isfinite().all())
        # As good as the squares of such numbers are known in single precision.
        known = float(x.square().sum(1).max()) / 0.05 * torch.finfo(x.dtype).eps
        torch.testing.assert_close(ours, exact, rtol=1e-2, atol=1 + 30 * known)


def test_scoring_changes_neither_samples_nor_mixture() -> None:
    mixture, x = random_mixture(3, 4, 2, 0), samples(2 * ROWS, 4, 0)
    copies = [part.clone() for part in (*mixture, x)]
    form = whitened_form(mixture)
    first = log_joint(form, x)
    assert torch.equal(log_joint(form, x), first)
    assert all(torch.equal(one, copy) for one, copy in zip((*mixture, x), copies, strict=True))


@relaxed
@given(k=sizes, d=sizes, n_factors=ranks, seed=seeds)
def test_a_rotation_of_the_factors_changes_nothing(
    k: int, d: int, n_factors: int, seed: int
) -> None:
    mixture, x = random_mixture(k, d, n_factors, seed), samples(5, d, seed)
    rotation, _ = torch.linalg.qr(normal(k, n_factors, n_factors, generator=seeded(seed)))
    rotated = mixture._replace(loadings=mixture.loadings @ rotation)
    torch.testing.assert_close(log_likelihood(rotated, x), log_likelihood(mixture, x))


# Latent factors ---------------------------------------------------------------------------


@relaxed
@given(k=sizes, d=sizes, n_factors=st.integers(1, 4), seed=seeds)
def test_factors_given_a_sample_are_those_of_the_conditional_gaussian(
    k: int, d: int, n_factors: int, seed: int
) -> None:
    mixture, x = random_mixture(k, d, n_factors, seed), samples(6, d, seed)
    form = whitened_form(mixture)
    u = whitened(form, x)
    assert u.shape == (6, k, n_factors)
    for one in range(k):
        mean, covariance = posterior(mixture, one, x)
        torch.testing.assert_close(u[:, one] @ form.spread[one], mean)
        torch.testing.assert_close(form.spread[one].T @ form.spread[one], covariance)


def reference_moments(mixture: FactorMixture, shares: Tensor, x: Tensor) -> FactorMoments:
    """The sums written out for every sample and component at once."""
    k, n_factors = mixture.n_components, mixture.loadings.shape[-1]
    firsts, seconds = [], []
    for one in range(k):
        mean, covariance = posterior(mixture, one, x)
        extended = torch.cat([mean, torch.ones(len(x), 1).double()], 1)
        square = torch.einsum("nl,nm->nlm", extended, extended)
        square[:, :n_factors, :n_factors] += covariance
        firsts.append(extended)
        seconds.append(square)
    first, second = torch.stack(firsts, 1), torch.stack(seconds, 1)
    return FactorMoments(
        torch.einsum("nk->k", shares),
        torch.einsum("nk,nd->kd", shares, x.square()),
        torch.einsum("nk,nd,nkl->kdl", shares, x, first),
        torch.einsum("nk,nklm->klm", shares, second),
    )


@relaxed
@given(k=sizes, d=sizes, n_factors=ranks, n=st.integers(1, 30), seed=seeds)
def test_moments_are_the_sums_written_out(
    k: int, d: int, n_factors: int, n: int, seed: int
) -> None:
    mixture, x = random_mixture(k, d, n_factors, seed), samples(n, d, seed)
    shares = torch.rand(n, k, generator=seeded(seed), dtype=torch.float64)
    shares = torch.where(shares < 0.3, 0.0, shares)  # some samples of nobody, some of several
    sums = moments(whitened_form(mixture), shares, x, x.square())
    for ours, theirs in zip(sums, reference_moments(mixture, shares, x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_component_without_samples_has_empty_sums() -> None:
    mixture, x = random_mixture(3, 4, 2, 1), samples(5, 4, 1)
    shares = torch.tensor([[0.4, 0.0, 0.6]]).double().expand(5, 3)
    sums = moments(whitened_form(mixture), shares, x, x.square())
    assert all(float(part[1].abs().sum()) == 0 for part in sums)
    assert float(sums.mass.sum()) == pytest.approx(5)


@relaxed
@given(k=sizes, d=sizes, n_factors=ranks, n=st.integers(1, 60), seed=seeds)
def test_an_e_step_shares_every_sample_out_by_bayes_rule(
    k: int, d: int, n_factors: int, n: int, seed: int
) -> None:
    mixture, x = random_mixture(k, d, n_factors, seed), samples(n, d, seed)
    form = whitened_form(mixture)
    sums, shares = e_step(form, x)
    exact = torch.softmax(log_joint(form, x), -1)
    torch.testing.assert_close(shares, exact, rtol=0, atol=k * NEGLIGIBLE)
    assert bool(((shares == 0) | (shares >= NEGLIGIBLE)).all())
    torch.testing.assert_close(shares.sum(-1), torch.ones(n).double())
    assert float(sums.mass.sum()) == pytest.approx(n)
    for ours, theirs in zip(sums, moments(form, shares, x, x.square()), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_samples_that_belong_a_little_to_thousands_are_shared_out_too() -> None:
    k = 3000  # each gets less than what is negligible
    zero = torch.zeros
    mixture = FactorMixture(zero(k) - 8, zero(k, 2), zero(k, 2, 1), torch.ones(k, 2))
    sums, shares = e_step(whitened_form(mixture), torch.ones(4, 2))
    torch.testing.assert_close(shares.sum(-1), torch.ones(4))
    assert float(sums.mass.sum()) == pytest.approx(4, rel=1e-4)


# Estimation -------------------------------------------------------------------------------


@relaxed
@given(k=sizes, d=sizes, n_factors=ranks, seed=seeds, total=st.floats(1e3, 1e6))
def test_an_m_step_on_expected_moments_gives_the_parameters_back(
    k: int, d: int, n_factors: int, seed: int, total: float
) -> None:
    mixture = random_mixture(k, d, n_factors, seed)
    # Enough of them for the mean's ridge not to show.
    mass = total * (1 + torch.rand(k, generator=seeded(seed), dtype=torch.float64))
    sums = expected_moments(mass, parameters_of(mixture))
    prior = torch.full((d,), 1e9).double()  # of no weight
    found = m_step(sums, prior, ridge=0.0, shrink=0.0)
    for ours, theirs in zip(found, parameters_of(mixture), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_expected_moments_are_those_of_a_huge_sample() -> None:
    mixture = random_mixture(1, 3, 2, 4)
    generator = seeded(0)
    n = 200_000
    x = sample(mixture, torch.zeros(n, dtype=torch.int64), generator, noise=True)
    drawn, _ = e_step(whitened_form(mixture), x)
    expected = expected_moments(torch.tensor([float(n)]).double(), parameters_of(mixture))
    for ours, theirs in zip(expected, drawn, strict=True):
        torch.testing.assert_close(ours / n, theirs / n, rtol=0, atol=0.1)


@relaxed
@given(n=st.integers(40, 200), d=st.integers(2, 6), n_factors=ranks, seed=seeds)
def test_the_m_step_makes_the_best_of_its_moments(
    n: int, d: int, n_factors: int, seed: int
) -> None:
    """The expected complete log-likelihood has no gradient there, in any parameter."""
    mixture, x = random_mixture(1, d, n_factors, seed), samples(n, d, seed)
    sums, _ = e_step(whitened_form(mixture), x)
    means, loadings, noise = m_step(sums, torch.ones(d).double(), ridge=0.0, shrink=0.0)
    solved = torch.cat([loadings, means[..., None]], -1).requires_grad_()
    variance = noise.requires_grad_()
    fit = sums.second - 2 * (solved * sums.cross).sum(-1)
    fit = fit + torch.linalg.vecdot(solved, solved @ sums.latent)
    bound = -0.5 * (fit / variance + sums.mass[:, None] * variance.log()).sum()
    # Only the mean's ridge is left: a thousandth of a sample at zero.
    most = 0.02 * float(noise.detach().reciprocal().max())
    for gradient in torch.autograd.grad(bound, [solved, variance]):
        assert float(gradient.abs().max()) < most


@settings(deadline=None, max_examples=25, derandomize=True)
@given(k=st.integers(1, 3), n_factors=st.integers(0, 3), seed=seeds)
def test_em_never_lowers_the_likelihood(k: int, n_factors: int, seed: int) -> None:
    d, n = 6, 300
    truth = random_mixture(k, d, n_factors, seed)
    generator = seeded(seed)
    x = sample(truth, torch.randint(k, (n,), generator=generator), generator, noise=True)
    mixture = random_mixture(k, d, n_factors, seed + 1)
    log_likelihoods = []
    for _ in range(12):
        log_likelihoods.append(float(log_likelihood(mixture, x).sum()))
        sums, _ = e_step(whitened_form(mixture), x)
        if float(sums.mass.min()) < 20:  # too few to estimate a covariance from
            break
        mixture = FactorMixture(
            (sums.mass / n).log(), *m_step(sums, x.new_ones(d), ridge=0.0, shrink=0.0)
        )
    # In nats of all 300 samples; negligible shares and the mean's ridge may cost this much.
    assert all(later > earlier - 0.3 for earlier, later in pairwise(log_likelihoods))
    assert len(log_likelihoods) < 3 or log_likelihoods[-1] > log_likelihoods[0]


def test_em_finds_the_covariance_that_samples_were_drawn_from() -> None:
    truth = random_mixture(1, 8, 2, 11)
    x = sample(truth, torch.zeros(5000, dtype=torch.int64), seeded(1), noise=True)
    mixture = random_mixture(1, 8, 2, 12)
    for _ in range(200):
        sums, _ = e_step(whitened_form(mixture), x)
        mixture = FactorMixture(
            torch.zeros(1).double(), *m_step(sums, x.new_ones(8), ridge=0.0, shrink=0.0)
        )
    torch.testing.assert_close(mixture.means[0], x.mean(0), rtol=0, atol=1e-3)
    torch.testing.assert_close(covariances(mixture), covariances(truth), rtol=0.05, atol=0.2)


def test_a_component_of_little_mass_is_drawn_towards_the_prior() -> None:
    mixture = random_mixture(1, 3, 1, 5)
    prior = torch.tensor([1.0, 2.0, 3.0]).double()
    noises, lengths = [], []
    for mass in (1e-6, 10.0, 1e6):
        sums = expected_moments(torch.tensor([mass]).double(), parameters_of(mixture))
        _, loadings, noise = m_step(sums, prior, ridge=1.0, shrink=10.0)
        noises.append(noise[0])
        lengths.append(float(loadings.norm()))
    torch.testing.assert_close(noises[0], prior, rtol=1e-3, atol=1e-3)
    assert float((noises[1] - prior).abs().max()) > 0.01
    torch.testing.assert_close(noises[2], mixture.noise[0], rtol=1e-3, atol=1e-3)
    assert lengths[0] < 1e-3 * lengths[2]
    assert lengths[2] == pytest.approx(float(mixture.loadings.norm()), rel=1e-3)


def test_noise_is_never_negative_where_factors_explain_everything() -> None:
    generator = seeded(2)
    x = (torch.randn(200, 2, generator=generator) @ torch.randn(2, 5, generator=generator)) + 30
    mixture = FactorMixture(
        torch.zeros(1), x.mean(0)[None], torch.randn(1, 5, 2, generator=generator), x.var(0)[None]
    )
    for _ in range(20):
        form = whitened_form(mixture._replace(noise=mixture.noise.clamp_min(1e-3)))
        sums, _ = e_step(form, x)
        mixture = FactorMixture(torch.zeros(1), *m_step(sums, x.var(0), ridge=0.0, shrink=0.0))
    assert bool((mixture.noise >= 0).all())
    assert float(mixture.noise.max()) < 0.05


# Moments as values ------------------------------------------------------------------------


def test_moments_of_two_batches_add_up_to_those_of_both() -> None:
    mixture, x = random_mixture(3, 4, 2, 0), samples(9, 4, 0)
    form = whitened_form(mixture)
    whole, _ = e_step(form, x)
    halves = e_step(form, x[:4])[0] + e_step(form, x[4:])[0]
    assert isinstance(halves, FactorMoments)
    for one, other in zip(whole, halves, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(whole.scaled(0.25), whole, strict=True):
        torch.testing.assert_close(one, other / 4)
    picked = whole.select(torch.tensor([True, False, True]))
    torch.testing.assert_close(picked.cross, whole.cross[[0, 2]])
    torch.testing.assert_close(picked.mass, whole.mass[[0, 2]])


def test_sums_over_nothing_add_nothing() -> None:
    mixture, x = random_mixture(3, 4, 2, 0), samples(9, 4, 0)
    sums, _ = e_step(whitened_form(mixture), x)
    for one, other in zip(no_moments(3, 2, x) + sums, sums, strict=True):
        assert torch.equal(one, other)


def test_the_spread_of_all_is_the_variance_of_the_samples() -> None:
    mixture, x = random_mixture(4, 3, 2, 8), samples(500, 3, 8)
    sums, _ = e_step(whitened_form(mixture), x)
    torch.testing.assert_close(sums.spread_of_all, x.var(0, correction=0))


# Drawing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("n_factors", [0, 2])
def test_samples_have_the_mean_and_covariance_of_their_component(
    n_factors: int, noise: bool
) -> None:
    mixture, n = random_mixture(3, 4, n_factors, 2), 60_000
    components = torch.arange(3).repeat(n // 3)
    x = sample(mixture, components, seeded(0), noise=noise)
    expected = covariances(mixture if noise else mixture._replace(noise=0 * mixture.noise))
    for one in range(3):
        drawn = x[components == one]
        torch.testing.assert_close(drawn.mean(0), mixture.means[one], rtol=0, atol=0.08)
        torch.testing.assert_close(drawn.T.cov(correction=0), expected[one], rtol=0.05, atol=0.1)


def test_samples_are_likely_under_what_drew_them() -> None:
    mixture = random_mixture(1, 5, 2, 3)
    x = sample(mixture, torch.zeros(40_000, dtype=torch.int64), seeded(4), noise=True)
    entropy = dense(mixture, 0).entropy()
    torch.testing.assert_close(-log_likelihood(mixture, x).mean(), entropy, rtol=0, atol=0.03)


def test_the_same_generator_draws_the_same_samples_whatever_else_was_drawn() -> None:
    mixture, components = random_mixture(3, 4, 2, 3), torch.tensor([2, 0, 1, 0, 2])
    first = sample(mixture, components, seeded(7), noise=True)
    torch.manual_seed(99)
    torch.rand(5)
    again = sample(mixture, components, seeded(7), noise=True)
    other = sample(mixture, components, seeded(8), noise=True)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # The factors drawn do not depend on whether noise is added to what they explain.
    clean = sample(mixture, components, seeded(7), noise=False)
    residual = (first - clean) / mixture.noise[components].sqrt()
    assert float(residual.abs().max()) < 6


def test_nobody_asked_is_nothing_drawn() -> None:
    mixture = random_mixture(3, 4, 2, 3)
    drawn = sample(mixture, torch.zeros(0, dtype=torch.int64), seeded(0), noise=True)
    assert drawn.shape == (0, 4)


# Sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n_factors"), [(1, 0), (2, 1), (9, 4), (40, 20), (784, 20)])
def test_factors_leave_noise_something_to_explain(d: int, n_factors: int) -> None:
    assert n_factors_of(d, 20) == n_factors
    assert n_factors_of(d, 0) == 0
