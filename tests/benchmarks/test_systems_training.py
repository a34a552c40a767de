"""Tests for benchmarks.systems.training: the loop that every network goes through."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks import systems
from benchmarks.systems.training import Progress, glorot, seeded, train

CPU = torch.device("cpu")


def seen(
    n: int, batch: int, epochs: int, seed: int = 0
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Samples and codes of every minibatch, as numbered, and what was told of progress."""
    xs: list[list[int]] = []
    ys: list[list[int]] = []
    told: list[int] = []

    def step(x: Tensor, y: Tensor) -> None:
        xs.append(x[:, 0].int().tolist())
        ys.append(y.tolist())

    train(
        step,
        torch.arange(n, dtype=torch.float32)[:, None],
        torch.arange(n),
        epochs=epochs,
        batch=batch,
        device=CPU,
        generator=torch.Generator().manual_seed(seed),
        progress=told.append,
    )
    return xs, ys, told


@given(n=st.integers(1, 60), batch=st.integers(1, 20), epochs=st.integers(1, 4))
def test_every_epoch_shows_every_sample_once_with_its_own_code(n, batch, epochs):
    xs, ys, told = seen(n, batch, epochs)
    assert xs == ys
    assert [len(x) for x in xs] == told
    per_epoch = len(xs) // epochs
    for epoch in range(epochs):
        shown = [i for x in xs[epoch * per_epoch : (epoch + 1) * per_epoch] for i in x]
        assert sorted(shown) == list(range(n))


@given(n=st.integers(2, 500), batch=st.integers(2, 50))
def test_minibatches_are_equally_large_so_that_none_is_left_with_one_sample(n, batch):
    sizes = {len(x) for x in seen(n, batch, epochs=1)[0]}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 2 or batch <= 2
    assert max(sizes) <= 1.5 * batch + 1


def test_epochs_are_shuffled_differently_and_by_the_seed():
    first, again, other = seen(50, 10, 2), seen(50, 10, 2), seen(50, 10, 2, seed=1)
    assert first == again
    assert first != other
    assert first[0][:5] != first[0][5:]


@given(
    samples=st.integers(1, 100),
    work=st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_progress_adds_up_to_the_samples_whatever_the_work(samples, work):
    told: list[int] = []
    progress = Progress(samples, sum(work), told.append)
    for done in work:
        progress(done)
    assert sum(told) == samples
    assert min(told) >= 0


def test_layers_follow_the_generator_and_leave_the_random_numbers_of_others_alone():
    def drawn(seed: int) -> Tensor:
        with seeded(torch.Generator().manual_seed(seed), CPU):
            return nn.Dropout(0.5)(torch.ones(64))

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = drawn(0)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, drawn(0))
    assert not torch.equal(first, drawn(1))


def test_weights_start_as_in_keras():
    layer = nn.Linear(200, 300)
    with seeded(torch.Generator().manual_seed(0), CPU):
        glorot(nn.Sequential(layer))
    limit = (6 / 500) ** 0.5
    assert float(layer.weight.detach().abs().max()) == pytest.approx(limit, rel=1e-3)
    assert float(layer.weight.detach().var()) == pytest.approx(limit**2 / 3, rel=0.02)
    assert not layer.bias.detach().any()


def test_there_is_one_loop_over_minibatches_for_all_networks():
    """Whoever makes an optimiser leaves epochs and minibatches to `train`."""
    folder = Path(systems.__file__).parent
    for path in folder.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        if path.name in ("ewc.py", "fine_tuning.py", "replay.py"):
            assert "train" in names, path.name
        if "optim" in source:
            assert path.name in ("perceptron.py", "gan.py")
            assert "epochs" not in source
