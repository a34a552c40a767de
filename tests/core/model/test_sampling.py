"""Tests for core.model.sampling: draws that are typical, and of the class that was asked for."""

import math

import pytest
import torch

from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Mixture
from core.model.model import Model
from core.model.readout import LinearReadout, PosteriorReadout
from core.model.sampling import draw, noise_of_a_class


def source(*, deviation: float = 1.0, classes: int = 2) -> Model:
    """Two components in two dimensions, at (-5, -5) and (5, 5), of class 0 and 1."""
    means = torch.tensor([[-5.0, -5.0], [5.0, 5.0]])
    mixture = Mixture(torch.full((2,), 0.5).log(), means, torch.ones(2, 2))
    weight = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])[:, :classes]
    readout = LinearReadout(weight, torch.zeros(classes), top=1)
    return Model(DiagonalDensity(mixture, torch.full((2, 2), deviation)), readout)


def overlapping() -> Model:
    """Two classes on one axis, half a deviation either side of zero."""
    mixture = Mixture(torch.full((2,), 0.5).log(), torch.tensor([[-0.5], [0.5]]), torch.ones(2, 1))
    return Model(
        DiagonalDensity(mixture, torch.ones(2, 1)), PosteriorReadout(torch.eye(2), temperature=1.0)
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_atypical_samples_are_drawn_again_until_they_are_typical() -> None:
    plain = draw(source(), 2000, seeded())
    # About 39 % of a two-dimensional Gaussian lie within one deviation of its mean.
    threshold = -0.5 - math.log(2 * math.pi) - math.log(2)
    picky = draw(source(), 2000, seeded(), threshold=threshold, max_draws=40)
    assert (plain.log_likelihood < threshold).float().mean().item() == pytest.approx(0.61, abs=0.03)
    assert bool((picky.log_likelihood >= threshold).all())
    assert picky.rejected == pytest.approx(2000 * 0.61 / 0.39, rel=0.1)
    assert plain.rejected == 0


def test_an_outlier_component_disappears_from_replay() -> None:
    # The generator's second component emits what the whole mixture finds atypical.
    broad = source()
    deviations = torch.tensor([[0.1, 0.1], [50.0, 50.0]])
    threshold = -5.0
    assert isinstance(broad.density, DiagonalDensity)
    broad = Model(DiagonalDensity(broad.density.mixture, deviations), broad.readout)
    once = draw(broad, 1000, seeded(), threshold=threshold, max_draws=1)
    again = draw(broad, 1000, seeded(), threshold=threshold, max_draws=20)
    assert (broad.log_likelihood(once.x) < threshold).sum() > 400
    assert (broad.log_likelihood(again.x) < threshold).sum() == 0


def test_an_impossible_threshold_costs_a_bounded_number_of_draws_and_keeps_the_best() -> None:
    best = draw(source(), 500, seeded(), threshold=math.inf, max_draws=8)
    once = draw(source(), 500, seeded(), max_draws=1)
    assert best.rejected == 8 * 500
    assert best.x.shape == (500, 2)
    assert best.log_likelihood.mean() > once.log_likelihood.mean() + 0.5


def test_what_is_reported_belongs_to_what_was_drawn() -> None:
    drawn = draw(source(), 200, seeded(), threshold=-3.0)
    torch.testing.assert_close(drawn.log_likelihood, source().log_likelihood(drawn.x))
    assert torch.equal(drawn.codes, (drawn.x.sum(-1) > 0).long())


def test_a_wanted_class_is_drawn_by_the_control_signal() -> None:
    codes = torch.tensor([0, 1, 1]).repeat(100)
    drawn = draw(source(), 300, seeded(), codes, threshold=-3.0)
    assert torch.equal(drawn.codes, codes)


def test_a_generator_without_classes_gives_unlabelled_samples() -> None:
    drawn = draw(source(classes=0), 10, seeded())
    assert drawn.codes.tolist() == [-1] * 10


def test_nothing_can_be_asked_for() -> None:
    drawn = draw(source(), 0, seeded(), threshold=0.0)
    assert drawn.x.shape == (0, 2)
    assert drawn.codes.shape == (0,)


def test_the_same_generator_draws_the_same_samples() -> None:
    first, again, other = (draw(source(), 50, seeded(s), threshold=-3.0) for s in (4, 4, 5))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.x, other.x)


def test_the_source_is_not_edited() -> None:
    frozen = source()
    kept = [tensor.clone() for tensor in frozen.tensors]
    draw(frozen, 50, seeded(), threshold=-3.0)
    assert all(torch.equal(a, b) for a, b in zip(kept, frozen.tensors, strict=True))


def test_what_the_model_would_call_another_class_is_drawn_again() -> None:
    codes = torch.ones(2000, dtype=torch.int64)
    plain = draw(overlapping(), 2000, seeded(), codes)
    picky = draw(overlapping(), 2000, seeded(), codes, least_probability=0.7, max_draws=60)
    assert (plain.probability < 0.7).float().mean().item() == pytest.approx(0.64, abs=0.04)
    assert plain.rejected == 0
    assert bool((picky.probability >= 0.7).all())
    assert bool((picky.codes == 1).all())


def test_without_a_wanted_class_the_most_probable_one_must_be_sure_enough() -> None:
    picky = draw(overlapping(), 2000, seeded(), least_probability=0.7, max_draws=60)
    assert bool((picky.probability >= 0.7).all())
    assert 0.4 < picky.codes.float().mean().item() < 0.6


def test_both_conditions_hold_at_once() -> None:
    drawn = draw(overlapping(), 500, seeded(), threshold=-1.8, least_probability=0.6, max_draws=200)
    assert bool((drawn.probability >= 0.6).all())
    assert bool((drawn.log_likelihood >= -1.8).all())


def test_the_surest_draw_is_kept_where_none_is_sure_enough() -> None:
    codes = torch.ones(300, dtype=torch.int64)
    once = draw(overlapping(), 300, seeded(), codes, least_probability=1.0, max_draws=1)
    best = draw(overlapping(), 300, seeded(), codes, least_probability=1.0, max_draws=8)
    assert best.rejected == 8 * 300
    assert best.probability.mean() > once.probability.mean() + 0.1


def test_without_noise_a_diagonal_component_gives_its_mean() -> None:
    drawn = draw(source(), 50, seeded(), noise=False)
    assert set(drawn.x.flatten().tolist()) == {-5.0, 5.0}


def test_doubt_rejects_what_plain_bayes_is_sure_of_and_reports_what_is_served() -> None:
    codes = torch.ones(1000, dtype=torch.int64)
    plain = draw(overlapping(), 1000, seeded(), codes, least_probability=0.6, max_draws=60)
    wary = draw(
        overlapping(), 1000, seeded(), codes, least_probability=0.6, doubt=3.0, max_draws=99
    )
    assert wary.rejected > 2 * plain.rejected
    # Odds at a temperature are the plain ones to its reciprocal.
    least = 1.5**3 / (1 + 1.5**3)
    assert bool((wary.probability >= least - 1e-4).all())
    assert plain.probability.min() < least


def strayed() -> Model:
    """Two classes of two components each; the last one lies among those of the other class."""
    means = torch.tensor([[0.0, 0.0], [3.0, 0.0], [40.0, 0.0], [1.5, 2.5]])
    mixture = Mixture(torch.full((4,), 0.25).log(), means, torch.ones(4, 2))
    classes = torch.eye(2)[torch.tensor([0, 0, 1, 1])]
    return Model(
        DiagonalDensity(mixture, torch.full((4, 2), 0.1)),
        PosteriorReadout(classes, temperature=1.0),
    )


def test_a_component_that_lies_among_another_class_is_not_drawn_from_on_its_own_word() -> None:
    codes = torch.ones(1000, dtype=torch.int64)
    trusting = draw(strayed(), 1000, seeded(), codes, least_probability=0.8)
    wary = draw(strayed(), 1000, seeded(), codes, least_probability=0.8, doubt=4.0, max_draws=40)
    assert trusting.rejected == 0
    assert (trusting.x[:, 0] < 20).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert bool((wary.x[:, 0] > 20).all())
    assert not wary.short.any()


def test_what_no_draw_could_reach_is_told() -> None:
    codes = torch.ones(300, dtype=torch.int64)
    drawn = draw(overlapping(), 300, seeded(), codes, least_probability=0.7, max_draws=2)
    assert torch.equal(drawn.short, drawn.probability < 0.7)
    assert 0 < int(drawn.short.sum()) < 300
    assert not draw(overlapping(), 300, seeded(), codes).short.any()


def test_noise_of_a_class_stays_where_nothing_is_tempered_and_never_falls_below_a_third() -> None:
    assert noise_of_a_class(1.0) == 1.0
    squared = [noise_of_a_class(temperature) ** 2 for temperature in (1.0, 2.0, 14.0, 31.0, 1e9)]
    assert squared == sorted(squared, reverse=True)
    assert squared[1] == pytest.approx(2 / 3)
    assert squared[-1] == pytest.approx(1 / 3)
