"""Tests for core.learners.sgd.paper: the paper's GMR as a learner."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.diagonal.annealing import Schedule
from core.density.diagonal.gradient import Rates
from core.density.mixture import log_likelihood, responsibilities
from core.errors import InvalidSettings
from core.learners.learner import Scores
from core.learners.sgd.paper import ONE_PASS, PUBLISHED, PaperLearner, PaperSettings, PaperState
from core.model.model import Model
from core.model.replay import FrozenGenerator

CPU = torch.device("cpu")
CORNERS = torch.tensor([[-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0], [2.0, 2.0]])
"""Four classes, each round a corner of a square."""

FAST = PaperSettings(
    minibatch=20,
    schedule=Schedule(window=10, rate=0.04, rate_floor=0.02, factor=0.8),
    rates=Rates(precision_root=0.5),
    classifier_rate=0.05,
    new_radius=0.5,
)


def learner(settings: PaperSettings = FAST, **config: Any) -> PaperLearner:
    base: dict[str, Any] = {"preset": "paper", "n_components": 16}
    return PaperLearner(EngineConfig(**(base | config)), settings)


def corners(classes: list[int], n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    codes = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=generator)]
    return CORNERS[codes] + 0.4 * torch.randn(n, 2, generator=generator), codes


def taught(
    by: PaperLearner,
    classes: list[int],
    batches: int = 300,
    state: PaperState | None = None,
    seed: int = 0,
    labelled: bool = True,
) -> PaperState:
    generator = torch.Generator().manual_seed(seed)
    state = by.grow(by.start(2, CPU), 4 if labelled else 0) if state is None else state
    for _ in range(batches):
        x, codes = corners(classes, 20, generator)
        codes = codes if labelled else torch.full_like(codes, -1)
        state, _ = by.learn(state, x, codes, by.score(state, x), generator)
    return state


def accuracy(by: PaperLearner, state: PaperState, classes: list[int]) -> float:
    x, codes = corners(classes, 500, torch.Generator().manual_seed(99))
    scores = scored(by, state, x)
    found = by.readout(state).class_probabilities(scores.joint).argmax(-1)
    return (found == codes).float().mean().item()


def scored(by: PaperLearner, state: PaperState, x: Tensor) -> Scores:
    scores = by.score(state, x)
    assert scores is not None
    return scores


def served(by: PaperLearner, state: PaperState) -> Model:
    model = by.model(state)
    assert model is not None
    return model


def frozen(state: PaperState) -> FrozenGenerator:
    assert state.generator is not None
    return state.generator


def tensors(value: object) -> Iterator[Tensor]:
    """Every tensor inside a state."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def same(one: PaperState, other: PaperState) -> bool:
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return (
        all(torch.equal(a, b) for a, b in pairs)
        and one.annealing == other.annealing
        and one.log_likelihood == other.log_likelihood
    )


@pytest.fixture(scope="module")
def two_known() -> PaperState:
    """Classes 0 and 1 learned, then a boundary."""
    by = learner()
    state, replays = by.begin_sub_task(taught(by, [0, 1]), torch.Generator())
    assert replays == []
    return state


def test_a_square_number_of_components_is_required() -> None:
    with pytest.raises(InvalidSettings, match="square"):
        learner(n_components=90)


def test_a_floor_that_makes_the_means_overshoot_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"variance_floor is 0\.01.*0\.04"):
        learner(variance_floor=0.01)


def test_nothing_is_known_before_anything_was_learned() -> None:
    by = learner()
    state = by.start(2, CPU)
    assert by.score(state, torch.zeros(1, 2)) is None
    assert by.model(state) is None
    assert by.n_components(state) == 16
    begun, _ = by.begin_sub_task(state, torch.Generator())
    assert begun is state


def test_it_learns_to_classify_from_a_random_start() -> None:
    by = learner()
    state = taught(by, [0, 1, 2, 3])
    assert by.converged(state)
    assert accuracy(by, state, [0, 1, 2, 3]) > 0.97


def test_without_annealing_the_same_start_wins_over_by_few_components() -> None:
    plain = learner(replace(FAST, schedule=replace(FAST.schedule, radius=0.01)))
    annealed = learner()
    used = []
    for by in (plain, annealed):
        state = taught(by, [0, 1, 2, 3], batches=100)
        scores = scored(by, state, corners([0, 1, 2, 3], 500, torch.Generator())[0])
        used.append(len(set(scores.joint.argmax(-1).tolist())))
    assert used[0] < used[1]


@pytest.mark.parametrize("replay", ["constant", "proportional"])
def test_old_classes_are_kept_while_new_ones_are_learned_and_only_by_replay(replay: str) -> None:
    by = learner(n_components=9, replay=replay)
    known, _ = by.begin_sub_task(taught(by, [0, 1]), torch.Generator())
    state = taught(by, [2, 3], state=known, seed=1)
    assert accuracy(by, state, [0, 1, 2, 3]) > 0.95
    forgetful = taught(by, [2, 3], state=replace(known, generator=None), seed=1)
    assert accuracy(by, forgetful, [0, 1]) < 0.3


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_constant_replay_adds_kappa_samples_per_new_one(
    two_known: PaperState, factor: float
) -> None:
    by = learner(replay="constant", replay_factor=factor)
    x, codes = corners([2], 30, torch.Generator())
    state, (replay,) = by.learn(two_known, x, codes, None, torch.Generator())
    assert (replay.mode, replay.samples, replay.reason) == ("constant", int(30 * factor), "batch")
    # Real and generated together are cut into minibatches of about 20.
    assert state.steps - two_known.steps == round(30 * (1 + factor) / 20)


def test_proportional_replay_counts_the_samples_of_earlier_sub_tasks(
    two_known: PaperState,
) -> None:
    by = learner(replay="proportional")
    state = replace(two_known, sub_task=3, earlier_samples=900)
    x, codes = corners([2], 30, torch.Generator())
    _, (replay,) = by.learn(state, x, codes, None, torch.Generator())
    assert (replay.mode, replay.samples) == ("proportional", 90)


def test_a_boundary_freezes_what_was_known(two_known: PaperState) -> None:
    by = learner()
    assert (two_known.sub_task, two_known.earlier_samples, two_known.samples) == (1, 6000, 0)
    later = taught(by, [2, 3], batches=10, state=two_known)
    assert later.generator is two_known.generator
    assert later.samples == 200
    third, _ = by.begin_sub_task(later, torch.Generator())
    assert (third.sub_task, third.earlier_samples, third.samples) == (2, 6200, 0)
    assert third.generator is not later.generator
    spread = two_known.log_likelihood.deviation
    expected = two_known.log_likelihood.mean - by.config.outlier_c * spread
    assert frozen(two_known).threshold == pytest.approx(expected)


def test_a_boundary_widens_the_neighbourhood_again() -> None:
    by = learner()
    state = taught(by, [0, 1])
    assert by.converged(state)
    state, _ = by.begin_sub_task(state, torch.Generator())
    assert state.annealing.radius == 0.5
    assert not by.converged(state)


def test_the_state_given_in_is_left_as_it_was(two_known: PaperState) -> None:
    by = learner()
    kept = [tensor.clone() for tensor in tensors(two_known)]
    x, codes = corners([2, 3], 30, torch.Generator())
    generator = torch.Generator()
    by.learn(two_known, x, codes, by.score(two_known, x), generator)
    by.begin_sub_task(two_known, generator)
    by.grow(two_known, 6)
    by.rescale(two_known, torch.tensor([2.0, 0.5]), torch.ones(2))
    by.model(two_known)
    assert all(torch.equal(a, b) for a, b in zip(kept, tensors(two_known), strict=True))


def test_the_same_stream_gives_the_same_state_bit_for_bit(two_known: PaperState) -> None:
    by = learner()
    one, again = (taught(by, [2, 3], 20, two_known, seed=3) for _ in range(2))
    other = taught(by, [2, 3], 20, two_known, seed=4)
    assert same(one, again)
    assert not same(one, other)


def test_scores_known_already_change_nothing() -> None:
    by = learner()
    state = taught(by, [0, 1], batches=20)
    x, codes = corners([0, 1], 20, torch.Generator())
    with_scores, _ = by.learn(state, x, codes, by.score(state, x), torch.Generator())
    without, _ = by.learn(state, x, codes, None, torch.Generator())
    assert same(with_scores, without)


def test_unlabelled_samples_train_the_density_and_not_the_classifier() -> None:
    by = learner()
    state = taught(by, [0, 1])
    later = taught(by, [2], 100, state, labelled=False)
    assert torch.equal(state.weight, later.weight)
    assert torch.equal(state.bias, later.bias)
    x, _ = corners([2], 100, torch.Generator())
    before, after = scored(by, state, x), scored(by, later, x)
    assert after.log_likelihood.mean() > before.log_likelihood.mean() + 1


def test_a_stream_without_labels_is_learned_and_replayed_without_them() -> None:
    by = learner()
    state = taught(by, [0, 1], labelled=False)
    state, _ = by.begin_sub_task(state, torch.Generator())
    state = taught(by, [2], 50, state, labelled=False)
    model = served(by, state)
    assert model.n_classes == 0


def test_labelled_and_unlabelled_samples_may_be_mixed() -> None:
    by = learner()
    state = by.grow(by.start(2, CPU), 2)
    x, codes = corners([0, 1], 20, torch.Generator())
    codes[::2] = -1
    learned, _ = by.learn(state, x, codes, None, torch.Generator())
    assert bool((learned.weight != 0).any())


def test_the_classifier_steps_down_the_cross_entropy_weights_faster_than_bias() -> None:
    by = learner()
    state = taught(by, [0, 1, 2, 3], batches=30)
    x, codes = corners([0, 1, 2, 3], 20, torch.Generator())
    inputs = responsibilities(scored(by, state, x).joint)
    weight, bias = state.weight.clone().requires_grad_(), state.bias.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(inputs @ weight + bias, codes)
    by_weight, by_bias = torch.autograd.grad(loss, [weight, bias])
    learned, _ = by.learn(state, x, codes, None, torch.Generator())
    rate, k = FAST.classifier_rate, 16
    torch.testing.assert_close(learned.weight, state.weight - k * rate * by_weight)
    torch.testing.assert_close(learned.bias, state.bias - rate * by_bias)


def test_a_new_class_leaves_what_is_known_about_the_others(two_known: PaperState) -> None:
    by = learner()
    x, _ = corners([0, 1], 50, torch.Generator())
    scores = scored(by, two_known, x)
    before = by.readout(two_known).class_probabilities(scores.joint)
    grown = by.grow(two_known, 6)
    after = by.readout(grown).class_probabilities(scores.joint)
    assert after.shape == (50, 6)
    torch.testing.assert_close(after[:, :4] / after[:, :4].sum(-1, keepdim=True), before)


def test_rows_of_the_classifier_sum_to_zero_so_that_its_inversion_works() -> None:
    by = learner()
    state = taught(by, [0, 1, 2, 3])
    assert float(state.weight.abs().max()) > 1
    torch.testing.assert_close(state.weight.sum(-1), torch.zeros(16), atol=1e-4, rtol=0)


def test_conditional_samples_are_of_the_class_that_was_asked_for() -> None:
    by = learner(replace(FAST, top=2))
    state = taught(by, [0, 1, 2, 3])
    model = served(by, state)
    codes = torch.arange(4).repeat(100)
    generator = torch.Generator()
    x = model.sample(model.sample_components(codes, 400, generator), generator)
    nearest = torch.cdist(x, CORNERS).argmin(-1)
    assert (nearest == codes).float().mean().item() > 0.95


def test_a_feature_that_never_varies_is_drawn_without_noise_and_another_with_its_own() -> None:
    by = learner(n_components=1)
    generator = torch.Generator().manual_seed(0)
    state = by.start(2, CPU)
    for _ in range(400):
        x = torch.randn(20, 2, generator=generator)
        x[:, 1] = 0.4
        state, _ = by.learn(state, x, torch.full((20,), -1), None, generator)
    model = served(by, state)
    assert model.density.deviations[0, 1].item() < 0.01
    # The floor of 0.05 is in every variance and in no data: 1 - 0.05 is left.
    assert model.density.deviations[0, 0].item() == pytest.approx(0.95**0.5, abs=0.05)


FACTOR, OFFSET = torch.tensor([4.0, 0.5]), torch.tensor([-1.0, 3.0])


def test_a_change_of_units_moves_scores_by_the_volume_and_nothing_else(
    two_known: PaperState,
) -> None:
    by = learner()
    state = taught(by, [2, 3], 7, two_known)  # 7 x 60 samples are 21 steps, a window and 1
    moved = by.rescale(state, FACTOR, OFFSET)
    x, _ = corners([0, 1, 2, 3], 50, torch.Generator())
    before, after = scored(by, state, x), scored(by, moved, FACTOR * x + OFFSET)
    volume = FACTOR.log().sum()
    torch.testing.assert_close(after.joint, before.joint - volume, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(
        log_likelihood(frozen(moved).mixture, FACTOR * x + OFFSET),
        log_likelihood(frozen(state).mixture, x) - volume,
        rtol=1e-4,
        atol=1e-3,
    )
    shifts = [
        frozen(state).threshold - frozen(moved).threshold,
        state.log_likelihood.mean - moved.log_likelihood.mean,
        state.annealing.first - moved.annealing.first,
        state.annealing.last - moved.annealing.last,
        (state.annealing.total - moved.annealing.total) / state.annealing.steps,
    ]
    assert shifts == pytest.approx([float(volume)] * 5, abs=1e-4)


def test_samples_follow_a_change_of_units(two_known: PaperState) -> None:
    by = learner()
    moved = by.rescale(two_known, FACTOR, OFFSET)
    before, after = served(by, two_known), served(by, moved)
    torch.testing.assert_close(after.density.deviations, FACTOR * before.density.deviations)
    torch.testing.assert_close(
        after.density.mixture.means, FACTOR * before.density.mixture.means + OFFSET
    )
    torch.testing.assert_close(frozen(moved).deviations, FACTOR * frozen(two_known).deviations)


def test_learning_goes_on_after_a_change_of_units_with_precisions_in_their_range(
    two_known: PaperState,
) -> None:
    by = learner()
    moved = by.rescale(two_known, FACTOR, OFFSET)
    x, codes = corners([2, 3], 20, torch.Generator())
    learned, _ = by.learn(moved, FACTOR * x + OFFSET, codes, None, torch.Generator())
    assert float(learned.precision_root.max()) <= by.largest_precision_root * 1.000001
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors(learned))


def test_raw_variances_survive_a_change_of_units_and_the_new_floor_that_follows() -> None:
    by = learner(replace(FAST, schedule=replace(FAST.schedule, rate=1e-9, rate_floor=1e-9)))
    factor = torch.tensor([10.0, 0.1])
    x, codes = torch.full((20, 2), 0.3), torch.full((20,), -1)
    state, _ = by.learn(by.start(2, CPU), x, codes, None, torch.Generator())
    state = replace(state, precision_root=0.5 * state.precision_root)
    moved = by.rescale(state, factor, torch.zeros(2))
    learned, _ = by.learn(moved, factor * x, codes, None, torch.Generator())
    before, after = served(by, state), served(by, learned)
    assert bool((learned.precision_limit == by.largest_precision_root).all())
    torch.testing.assert_close(
        after.density.deviations, factor * before.density.deviations, rtol=1e-4, atol=1e-4
    )


def test_scores_of_before_a_change_of_the_floor_are_not_used_after_it() -> None:
    by = learner()
    state = by.rescale(taught(by, [0, 1], batches=5), FACTOR, OFFSET)
    x, codes = corners([0, 1], 20, torch.Generator())
    x = FACTOR * x + OFFSET
    with_scores, _ = by.learn(state, x, codes, by.score(state, x), torch.Generator())
    without, _ = by.learn(state, x, codes, None, torch.Generator())
    assert same(with_scores, without)


def test_units_mean_nothing_before_the_first_step() -> None:
    by = learner()
    state = by.start(2, CPU)
    assert by.rescale(state, FACTOR, OFFSET) is state


def test_no_raw_sample_is_held_and_the_cost_of_constant_replay_does_not_grow(
    two_known: PaperState,
) -> None:
    by = learner()
    state, amounts = two_known, []
    for sub_task in range(3):
        generator = torch.Generator().manual_seed(sub_task)
        x, codes = corners([2, 3], 20, generator)
        state, (replay,) = by.learn(state, x, codes, None, generator)
        amounts.append((replay.samples, sum(tensor.numel() for tensor in tensors(state))))
        assert by.raw_samples(state) == 0
        state, _ = by.begin_sub_task(state, generator)
    assert len(set(amounts)) == 1


@pytest.mark.parametrize("settings", [PUBLISHED, ONE_PASS])
def test_both_paces_accept_the_default_configuration(settings: PaperSettings) -> None:
    by = PaperLearner(EngineConfig(preset="paper"), settings)
    state = by.start(3, CPU)
    assert by.n_components(state) == 100
    assert not by.converged(state)


def test_a_stream_of_six_thousand_samples_is_long_enough_for_the_pace_of_one_pass() -> None:
    by = PaperLearner(EngineConfig(preset="paper", n_components=16), ONE_PASS)
    state = taught(by, [0, 1, 2, 3], batches=300)
    assert by.converged(state)
    assert accuracy(by, state, [0, 1, 2, 3]) > 0.95
