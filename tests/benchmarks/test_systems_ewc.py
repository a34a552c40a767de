"""Tests for benchmarks.systems.ewc and benchmarks.systems.fisher."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.systems.ewc import EWC
from benchmarks.systems.fisher import diagonal_fisher
from benchmarks.systems.perceptron import Perceptron
from tests.benchmarks.images import N_CLASSES, D, images, quietly

CPU = torch.device("cpu")


def tiny(seed: int = 0) -> Perceptron:
    """Double precision, so that a difference is a wrong formula."""
    perceptron = Perceptron(5, (4, 3), 3, torch.Generator().manual_seed(seed), CPU)
    perceptron.network.double()
    return perceptron


def sample_by_sample(
    perceptron: Perceptron, x: Tensor, label: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Mean of squared gradients by automatic differentiation, weighted by `label` (C,)."""
    total = [torch.zeros_like(weight) for weight in perceptron.weights]
    for row in x:
        log_p = perceptron.network(row[None]).log_softmax(-1)[0]
        for code, weight in enumerate(label(log_p.detach().exp())):
            gradients = torch.autograd.grad(log_p[code], perceptron.weights, retain_graph=True)
            for sum_, gradient in zip(total, gradients, strict=True):
                sum_ += weight * gradient.square() / len(x)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_fisher_information_is_that_of_automatic_differentiation(seed: int, generator):
    perceptron = tiny(seed)
    x = torch.rand(17, 5, generator=generator, dtype=torch.float64)
    found = diagonal_fisher(perceptron, x)
    expected = sample_by_sample(perceptron, x, lambda p: p)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    # It is neither the empirical one nor that of a squared sum: the test can tell.
    empirical = sample_by_sample(perceptron, x, lambda p: torch.eye(3, dtype=p.dtype)[0])
    assert not torch.allclose(found[0], empirical[0], rtol=0.1)


def test_it_does_not_depend_on_how_many_samples_go_at_once(generator, monkeypatch):
    perceptron = tiny()
    x = torch.rand(17, 5, generator=generator, dtype=torch.float64)
    whole = diagonal_fisher(perceptron, x)
    monkeypatch.setattr("benchmarks.systems.fisher.ROWS", 4)
    for one, other in zip(diagonal_fisher(perceptron, x), whole, strict=True):
        torch.testing.assert_close(one, other)


def small(**settings) -> EWC:
    given = {"epochs": 5, "epsilon": 1e-2, "hidden": (16, 16), **settings}
    return EWC(D, N_CLASSES, **given)


def test_the_kept_parabola_has_the_gradient_of_the_sum_over_sub_tasks(generator):
    ewc = small(epsilon=1e-3)
    fishers, anchors = [], []
    for first in (0, 2, 4):
        x, y = images((first, first + 1), 50)
        ewc.learn(x, y, quietly)
        fishers.append(diagonal_fisher(ewc.perceptron, x))
        anchors.append([weight.detach().clone() for weight in ewc.perceptron.weights])
    weights = ewc.perceptron.weights
    with torch.no_grad():
        for weight in weights:
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    strength = 1000.0
    terms = [
        (f * (weight - anchor).square()).sum()
        for task_f, task_anchors in zip(fishers, anchors, strict=True)
        for f, weight, anchor in zip(task_f, weights, task_anchors, strict=True)
    ]
    expected = torch.autograd.grad(strength / 2 * torch.stack(terms).sum(), weights)
    found = torch.autograd.grad(ewc.penalty(), weights)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_a_strong_penalty_holds_what_matters_and_without_it_all_is_forgotten():
    x, y = images((0, 1), 200)
    later_x, later_y = images((2, 3), 200, seed=1)
    kept, lost = small(strength=1e9, epochs=10), small(strength=0.0, epochs=10)
    moved = {}
    for ewc in (kept, lost):
        ewc.learn(x, y, quietly)
        assert (ewc.predict(x) == y).float().mean() > 0.98
        before = [weight.detach().clone() for weight in ewc.perceptron.weights]
        fisher = [f.clone() for f in ewc.importances]
        ewc.learn(later_x, later_y, quietly)
        after = ewc.perceptron.weights
        moved[ewc] = sum(
            float((f * (new.detach() - old).square()).sum())
            for f, new, old in zip(fisher, after, before, strict=True)
        )
    assert (kept.predict(x) == y).float().mean() > 0.98
    assert (lost.predict(x) == y).float().mean() < 0.5
    assert (lost.predict(later_x) == later_y).float().mean() > 0.98
    assert moved[kept] < 0.01 * moved[lost]


def test_the_paper_s_network_and_what_is_kept_with_it():
    ewc = EWC(784, 10, epochs=1)
    network = 784 * 800 + 800 + 2 * (800 * 800 + 800) + 800 * 10 + 10
    assert ewc.parameters == network
    x = torch.rand(20, 784, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # no more after the second: one parabola for all
        ewc.learn(x, torch.arange(20) % 2, quietly)
        assert ewc.parameters == 3 * network
        assert ewc.bytes == 4 * ewc.parameters


def test_lambda_is_the_reciprocal_of_the_step_size_unless_given():
    x, y = images((0, 1), 20)
    values = {}
    for name, ewc in (
        ("implied", small(epsilon=1e-2)),
        ("given", small(epsilon=1e-2, strength=100.0)),
        ("double", small(epsilon=1e-2, strength=200.0)),
    ):
        ewc.learn(x, y, quietly)
        with torch.no_grad():
            for weight in ewc.perceptron.weights:
                weight += 0.1
        values[name] = float(ewc.penalty().detach())
    assert values["implied"] == values["given"] > 0
    assert values["double"] == pytest.approx(2 * values["given"])
