"""Tests for core.replay: typical samples from a frozen generator."""

import math

import pytest
import torch

from core.density.diagonal import Mixture, log_likelihood
from core.readout import LinearReadout
from core.replay import (
    FrozenGenerator,
    constant_amount,
    draw,
    proportional_amount,
    typical_threshold,
    whole_amount,
)


def source(
    *, threshold: float = -math.inf, deviation: float = 1.0, classes: int = 2
) -> FrozenGenerator:
    """Two components in two dimensions, at (-5, -5) and (5, 5), of class 0 and 1."""
    means = torch.tensor([[-5.0, -5.0], [5.0, 5.0]])
    mixture = Mixture(torch.full((2,), 0.5).log(), means, torch.ones(2, 2))
    weight = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])[:, :classes]
    readout = LinearReadout(weight, torch.zeros(classes), top=1)
    return FrozenGenerator(mixture, torch.full((2, 2), deviation), readout, threshold)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_untypical_samples_are_drawn_again_until_they_are_typical() -> None:
    plain = draw(source(), 2000, seeded())
    # About 39 % of a two-dimensional Gaussian lie within one deviation of its mean.
    threshold = -0.5 - math.log(2 * math.pi) - math.log(2)
    picky = draw(source(threshold=threshold), 2000, seeded(), max_draws=40)
    assert (plain.log_likelihood < threshold).float().mean().item() == pytest.approx(0.61, abs=0.03)
    assert bool((picky.log_likelihood >= threshold).all())
    assert picky.rejected == pytest.approx(2000 * 0.61 / 0.39, rel=0.1)
    assert plain.rejected == 0


def test_an_outlier_component_disappears_from_replay() -> None:
    # The generator's second component emits what the whole mixture finds untypical.
    broad = source()
    deviations = torch.tensor([[0.1, 0.1], [50.0, 50.0]])
    threshold = typical_threshold(mean=-3.0, deviation=1.0, c=2.0)
    broad = FrozenGenerator(broad.mixture, deviations, broad.readout, threshold)
    far = (log_likelihood(broad.mixture, draw(broad, 1000, seeded(), max_draws=1).x) < -5).sum()
    assert far > 400
    assert (
        log_likelihood(broad.mixture, draw(broad, 1000, seeded(), max_draws=20).x) < -5
    ).sum() == 0


def test_an_impossible_threshold_costs_a_bounded_number_of_draws_and_keeps_the_best() -> None:
    best = draw(source(threshold=math.inf), 500, seeded(), max_draws=8)
    once = draw(source(), 500, seeded(), max_draws=1)
    assert best.rejected == 8 * 500
    assert best.x.shape == (500, 2)
    assert best.log_likelihood.mean() > once.log_likelihood.mean() + 0.5


def test_what_is_reported_belongs_to_what_was_drawn() -> None:
    drawn = draw(source(threshold=-3.0), 200, seeded())
    torch.testing.assert_close(drawn.log_likelihood, log_likelihood(source().mixture, drawn.x))
    assert torch.equal(drawn.codes, (drawn.x.sum(-1) > 0).long())


def test_a_wanted_class_is_drawn_by_the_control_signal() -> None:
    codes = torch.tensor([0, 1, 1]).repeat(100)
    drawn = draw(source(threshold=-3.0), 300, seeded(), codes)
    assert torch.equal(drawn.codes, codes)


def test_a_generator_without_classes_gives_unlabelled_samples() -> None:
    drawn = draw(source(classes=0), 10, seeded())
    assert drawn.codes.tolist() == [-1] * 10


def test_nothing_can_be_asked_for() -> None:
    drawn = draw(source(threshold=0.0), 0, seeded())
    assert drawn.x.shape == (0, 2)
    assert drawn.codes.shape == (0,)


def test_the_same_generator_draws_the_same_samples() -> None:
    first, again, other = (draw(source(threshold=-3.0), 50, seeded(s)) for s in (4, 4, 5))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.x, other.x)


def test_the_source_is_not_edited() -> None:
    frozen = source(threshold=-3.0)
    kept = [tensor.clone() for tensor in frozen.model.tensors]
    draw(frozen, 50, seeded())
    assert all(torch.equal(a, b) for a, b in zip(kept, frozen.model.tensors, strict=True))


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
