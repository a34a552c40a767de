"""Tests for benchmarks.systems.gan and benchmarks.systems.replay."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from benchmarks.systems.fine_tuning import FineTuning
from benchmarks.systems.gan import GAN
from benchmarks.systems.replay import GenerativeReplay
from benchmarks.systems.training import numbers_of
from clients.http.errors import InputError
from tests.benchmarks.images import N_CLASSES, SIZE, images, quietly

CPU = torch.device("cpu")


def count(network: nn.Module) -> int:
    return sum(tensor.numel() for tensor in numbers_of(network))


def test_sizes_are_those_of_the_paper_s_appendix():
    replay = GenerativeReplay((28, 28), 10)
    assert count(replay.gan.generator) == 2_092_801
    assert count(replay.gan.discriminator) == 1_038_593
    assert count(replay.solver.network) == 638_810
    assert replay.parameters == 3_770_204
    assert replay.bytes == 4 * 3_770_204


def test_layer_by_layer_the_generator_is_the_appendix_s_table():
    gan = GAN((28, 28), torch.Generator(), CPU)
    sizes = [size for layer in gan.generator if (size := count(layer))]
    assert sizes == [1_016_064, 50_176, 819_328, 512, 204_864, 256, 1_601]
    sizes = [size for layer in gan.discriminator if (size := count(layer))]
    assert sizes == [1_664, 204_928, 819_456, 12_545]


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (8, 12)])
def test_images_of_other_sizes_come_out_in_their_size_and_range(size: tuple[int, int]):
    gan = GAN(size, torch.Generator().manual_seed(0), CPU, channels=8)
    x = gan.sample(3, torch.Generator().manual_seed(0))
    assert x.shape == (3, size[0] * size[1])
    assert 0 <= float(x.min()) < float(x.max()) <= 1
    assert gan.discriminator(x).shape == (3, 1)


def test_sizes_that_two_doublings_do_not_reach_are_refused():
    with pytest.raises(InputError, match=r"30 x 28 .* multiples of 4"):
        GAN((30, 28), torch.Generator(), CPU)


def test_a_contest_moves_both_networks_each_by_its_own_loss():
    """The discriminator's step does not touch the generator, nor the other way round."""
    gan = GAN(SIZE, torch.Generator().manual_seed(0), CPU, channels=8)
    judged, forged = [], []
    step = gan.contest(1e-3)
    before = [weight.detach().clone() for weight in gan.discriminator.parameters()]
    x, y = images((0, 1), 64)
    with torch.no_grad():
        real_before = gan.discriminator.eval()(x).mean()
    gan.discriminator.train()
    for _ in range(30):
        step(x, y)
    after = list(gan.discriminator.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    with torch.no_grad():
        judged = gan.discriminator.eval()(x).mean()
        forged = gan.discriminator(gan.sample(64, torch.Generator().manual_seed(0))).mean()
    assert judged > real_before
    assert judged > forged


class Life(NamedTuple):
    """What a system replayed after its first sub-task, and what it knew after its second."""

    drawn: Tensor
    named: Tensor
    taken_for: Tensor
    told: list[int]
    replayed_then: int
    accuracy: tuple[float, float]


@pytest.fixture(scope="module")
def life() -> Life:
    """One class per sub-task: two tight clusters at once, and a GAN would draw only one."""
    replay = GenerativeReplay(SIZE, N_CLASSES, generator_epochs=15, solver_epochs=10, channels=64)
    replay.learn(*images((0,), 400), quietly)
    drawn, named = replay.replay()
    taken_for, told = replay.solver.predict(drawn), []
    replay.learn(*images((1,), 400), told.append)
    tests = images((0,), 100, seed=9), images((1,), 100, seed=9)
    right = tuple(float((replay.predict(x) == y).float().mean()) for x, y in tests)
    return Life(drawn, named, taken_for, told, len(replay.replay()[0]), right)


def test_as_many_samples_are_replayed_as_were_seen_with_the_solver_s_labels(life: Life):
    assert life.drawn.shape == (400, 64)
    assert torch.equal(life.named, life.taken_for)
    assert (life.named == 0).float().mean() > 0.9
    assert life.replayed_then == 800


def test_what_is_replayed_looks_like_what_was_seen(life: Life):
    x, _ = images((0,), 400)
    other, _ = images((1,), 400)
    assert (life.drawn.mean(0) - x.mean(0)).abs().mean() < 0.15
    assert (other.mean(0) - x.mean(0)).abs().mean() > 0.3


def test_replay_keeps_the_first_sub_task_while_the_second_is_learned(life: Life):
    assert sum(life.told) == 400
    assert min(life.accuracy) > 0.9
    # It is replay that does it: the same solver without it keeps nothing.
    alone = FineTuning(64, N_CLASSES, epochs=10)
    for code in (0, 1):
        alone.learn(*images((code,), 400), quietly)
    assert (alone.predict(images((0,), 100, seed=9)[0]) == 0).float().mean() < 0.1


def test_the_second_sub_task_has_minibatches_twice_as_large(monkeypatch):
    sizes: list[int] = []

    def noted(step, x, y, *, batch, **rest):
        sizes.append(batch)

    monkeypatch.setattr("benchmarks.systems.replay.train", noted)
    replay = GenerativeReplay(SIZE, N_CLASSES, channels=8)
    for first in (0, 2):
        replay.learn(*images((first, first + 1), 40), quietly)
    assert sizes == [100, 100, 200, 200]
