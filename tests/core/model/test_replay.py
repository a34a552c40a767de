"""Tests for core.model.replay: what is replayed from, and how much."""

import pytest
import torch

from core.density.mixture import Mixture, log_likelihood
from core.model.readout import LinearReadout
from core.model.replay import (
    FrozenGenerator,
    constant_amount,
    proportional_amount,
    typical_threshold,
    whole_amount,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_generator_is_a_model_with_a_threshold() -> None:
    mixture = Mixture(torch.zeros(1), torch.tensor([[2.0, 3.0]]), torch.ones(1, 2))
    threshold = typical_threshold(mean=-3.0, deviation=1.0, c=2.0)
    readout = LinearReadout(torch.zeros(1, 2), torch.zeros(2), top=1)
    frozen = FrozenGenerator(mixture, torch.ones(1, 2), readout, threshold)
    x = torch.randn(5, 2, generator=seeded())
    assert frozen.threshold == -5.0
    torch.testing.assert_close(frozen.model.log_likelihood(x), log_likelihood(mixture, x))
    assert frozen.model.n_classes == 2


def test_constant_replay_does_not_depend_on_the_past() -> None:
    assert constant_amount(100, 2.0) == 200


def test_proportional_replay_expects_a_sub_task_as_long_as_those_before_it() -> None:
    first = proportional_amount(100, earlier=60_000, sub_tasks=1, current=100)
    fourth = proportional_amount(100, earlier=60_000, sub_tasks=4, current=100)
    assert (first, fourth) == (100, 400)


def test_proportional_replay_falls_once_the_sub_task_is_longer_than_expected() -> None:
    amounts = [proportional_amount(10, 300, 3, current) for current in (10, 100, 200, 600)]
    assert amounts == [30, 30, 15, 5]


def test_a_sub_task_of_the_expected_length_gets_as_many_samples_as_all_before_it() -> None:
    total = sum(proportional_amount(10, 900, 3, current) for current in range(10, 301, 10))
    assert total == 900


def test_fractions_are_right_on_average() -> None:
    generator = seeded()
    amounts = [whole_amount(0.4, generator) for _ in range(5000)]
    assert set(amounts) == {0, 1}
    assert sum(amounts) / 5000 == pytest.approx(0.4, abs=0.03)


def test_a_whole_amount_uses_up_no_randomness() -> None:
    generator = seeded()
    before = generator.get_state()
    assert whole_amount(200.0, generator) == 200
    assert torch.equal(before, generator.get_state())
