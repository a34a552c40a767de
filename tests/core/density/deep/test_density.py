"""Tests for core.density.deep: scoring, drawing and sharpening a stack of mixtures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from core.density.deep.density import DeepDensity, Layer
from core.density.deep.folding import Folding
from core.density.deep.sharpening import likelihood_gradient
from core.density.mixture import Mixture
from core.model.families import DENSITIES

relaxed = settings(deadline=None, max_examples=25)


def layer(folding: Folding, k: int, generator: torch.Generator) -> Layer:
    d = folding.patch_size
    normal = torch.randn(3, k, d, generator=generator, dtype=torch.float64)
    logits = torch.randn(k, generator=generator, dtype=torch.float64)
    mixture = Mixture(logits.log_softmax(-1), normal[0], (0.3 * normal[1]).exp())
    return Layer(folding, mixture, 0.1 * normal[2].abs())


def stack(seed: int = 0, depth: int = 2, sharpening: int = 0) -> DeepDensity:
    """Five by four pixels of two channels; with or without a layer in between."""
    generator = torch.Generator().manual_seed(seed)
    foldings = [Folding(5, 4, 2, 2, 2, 1)]
    if depth == 3:
        foldings.append(Folding(4, 3, 3, 2, 2, 1))
    last = foldings[-1]
    foldings.append(Folding(last.rows, last.columns, 3, last.rows, last.columns, 1))
    layers = tuple(layer(folding, 3, generator) for folding in foldings)
    return DeepDensity(layers, choices=2, sharpening=sharpening, volume=1.5)


def images(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 40, generator=generator, dtype=torch.float64)


def mixture_of(one: Layer) -> Any:
    logits, means, root = one.mixture
    return MixtureSameFamily(
        Categorical(logits=logits), Independent(Normal(means, 1 / root), 1), validate_args=False
    )


@pytest.mark.parametrize("depth", [2, 3])
def test_scores_are_those_of_mixtures_on_the_posteriors_of_mixtures(depth: int) -> None:
    density, x = stack(depth=depth), images(4)
    scored = density.score(x)
    expected = torch.zeros(4, dtype=torch.float64)
    for one in density.layers:
        patches = one.folding.patches(x)
        mixture = mixture_of(one)
        expected += mixture.log_prob(patches).reshape(4, -1).mean(-1)
        joint = mixture.component_distribution.log_prob(patches[:, None]) + one.mixture.log_weights
        x = joint.softmax(-1).reshape(4, -1)
    torch.testing.assert_close(scored.joint, joint)
    torch.testing.assert_close(scored.log_likelihood, expected - 1.5)


@relaxed
@given(seed=st.integers(0, 1000), depth=st.sampled_from([2, 3]), target=st.integers(1, 3))
def test_the_gradient_for_sharpening_is_what_autograd_finds(
    seed: int, depth: int, target: int
) -> None:
    layers = stack(seed, depth).layers[:target]
    density = stack(seed, depth)
    x = images(2, seed).requires_grad_()
    value = x
    for one in layers:
        patches = one.folding.patches(value)
        mixture = mixture_of(one)
        log_likelihood = mixture.log_prob(patches).reshape(2, -1).mean(-1)
        joint = mixture.component_distribution.log_prob(patches[:, None]) + one.mixture.log_weights
        value = joint.softmax(-1).reshape(2, -1)
    (expected,) = torch.autograd.grad(log_likelihood.sum(), x)
    found = likelihood_gradient(x.detach(), density.stack[:target])
    torch.testing.assert_close(found, expected)


def test_sharpening_makes_images_likelier_to_the_last_layer() -> None:
    components = torch.arange(3).repeat(10)
    means = []
    for steps in (0, 50):
        density = stack(sharpening=steps)
        x = density.sample(components, torch.Generator().manual_seed(3))
        joint = density.score(x).joint
        means.append(joint.logsumexp(-1).mean())
    assert means[1] > means[0] + 0.01


def test_the_same_seed_draws_the_same_images_and_another_does_not() -> None:
    density, components = stack(), torch.tensor([0, 1, 2, 2])
    one, again, other = (
        density.sample(components, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert one.shape == (4, 40)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_component_of_the_last_layer_says_where_each_patch_lies() -> None:
    # Two patches side by side; the first layer knows "dark" and "light".
    patches = Folding(1, 4, 1, 1, 2, 2)
    dark_light = Mixture(
        torch.zeros(2).log_softmax(-1),
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        torch.full((2, 2), 10.0),
    )
    orders = Mixture(
        torch.zeros(2).log_softmax(-1),
        torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]),  # dark light, light dark
        torch.full((2, 4), 4.0),
    )
    density = DeepDensity(
        (
            Layer(patches, dark_light, torch.zeros(2, 2)),
            Layer(Folding(1, 2, 2, 1, 2, 1), orders, torch.zeros(2, 4)),
        ),
        choices=2,
    )
    drawn = density.sample(torch.tensor([0, 1]), torch.Generator())
    expected = torch.tensor([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    assert torch.equal(drawn, expected)
    assert density.score(expected).joint.argmax(-1).tolist() == [0, 1]


def test_without_noise_patches_are_means_of_components() -> None:
    density = stack()
    first = density.layers[0]
    # As if one patch were the image, so that nothing is averaged away.
    alone = replace(first, folding=Folding(2, 2, 2, 2, 2, 1))
    last = Layer(
        Folding(1, 1, 3, 1, 1, 1),
        Mixture(
            density.log_weights,
            torch.eye(3, dtype=torch.float64),
            torch.ones(3, 3, dtype=torch.float64),
        ),
        torch.zeros(3, 3, dtype=torch.float64),
    )
    small = DeepDensity((alone, last), choices=1)
    components = torch.tensor([0, 1, 2])
    clean = small.sample(components, torch.Generator(), noise=False)
    assert torch.equal(clean, first.mixture.means)
    noisy = small.sample(components, torch.Generator())
    assert not torch.equal(noisy, clean)
    some = small.sample(components, torch.Generator(), noise=0.5)
    torch.testing.assert_close(some - clean, 0.5 * (noisy - clean))


def test_no_images_are_as_good_as_any() -> None:
    density = stack()
    assert density.sample(torch.zeros(0, dtype=torch.int64), torch.Generator()).shape == (0, 40)
    assert density.score(images(0)).joint.shape == (0, 3)


@pytest.mark.parametrize("depth", [2, 3])
def test_tensors_and_facts_are_all_it_takes_to_make_it_again(depth: int) -> None:
    density = stack(depth=depth, sharpening=2)
    facts = json.loads(json.dumps(density.facts()))
    again = DENSITIES["dcgmm"].of(density.tensors(), facts)
    assert (again.n_components, again.n_features) == (3, 40)
    x = images(3)
    assert torch.equal(again.score(x).log_likelihood, density.score(x).log_likelihood)
    components = torch.tensor([2, 0])
    ours, theirs = (
        one.sample(components, torch.Generator().manual_seed(5)) for one in (density, again)
    )
    assert torch.equal(ours, theirs)


def test_a_missing_part_is_a_key_error() -> None:
    density = stack()
    tensors = density.tensors()
    del tensors["layer1_means"]
    with pytest.raises(KeyError, match="layer1_means"):
        DeepDensity.of(tensors, density.facts())
