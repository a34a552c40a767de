"""Tests for core.learners.sgd.dcgmm: the deep convolutional mixture as a learner."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.density.deep.density import DeepDensity
from core.density.deep.folding import Folding
from core.density.diagonal.annealing import Schedule, neighbourhood
from core.density.diagonal.gradient import Parameters, Rates, ascend, gradient, winners
from core.density.mixture import log_joint
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.errors import InvalidBatch, InvalidSettings
from core.learners.learner import Scores
from core.learners.sgd.dcgmm.ascent import climb_batch
from core.learners.sgd.dcgmm.learner import DcgmmLearner
from core.learners.sgd.dcgmm.settings import ONE_PASS, PUBLISHED, DcgmmSettings, LayerSettings
from core.learners.sgd.dcgmm.state import DcgmmState, DeepGenerator, LayerState
from core.model.model import Model
from core.model.sampling import draw
from core.snapshot import Snapshot
from tests.core.states import assert_finite, assert_identical, tensors_of

CPU = torch.device("cpu")
SIDE, PIXELS = 6, 36
BARS = torch.zeros(4, SIDE, SIDE)
BARS[0, 1], BARS[1, 4] = 1, 1  # two that lie
BARS[2, :, 1], BARS[3, :, 4] = 1, 1  # and two that stand
BARS = BARS.reshape(4, PIXELS)
"""Four classes of images of 6 by 6 pixels, each a bar at its place."""

FAST = DcgmmSettings(
    patches=LayerSettings(
        minibatch=10, schedule=Schedule(window=5, rate=0.1, factor=0.8), new_radius=0.0
    ),
    last=LayerSettings(
        minibatch=10,
        schedule=Schedule(window=5, rate=0.1, rate_floor=0.02, factor=0.8),
        rates=Rates(precision_root=0.0),
        new_radius=0.5,
    ),
    classifier_rate=0.05,
)


def learner(settings: DcgmmSettings = FAST, **config: Any) -> DcgmmLearner:
    base: dict[str, Any] = {"preset": "dcgmm", "n_components": 16}
    return DcgmmLearner(EngineConfig(**(base | config)), settings)


def bars(classes: list[int], n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    codes = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=generator)]
    x = BARS[codes] + 0.1 * torch.randn(n, PIXELS, generator=generator)
    return x.clamp(0, 1), codes


def taught(
    by: DcgmmLearner,
    classes: list[int],
    batches: int = 60,
    state: DcgmmState | None = None,
    seed: int = 0,
    labelled: bool = True,
) -> DcgmmState:
    generator = torch.Generator().manual_seed(seed)
    state = by.grow(by.start(PIXELS, CPU), 4 if labelled else 0) if state is None else state
    for _ in range(batches):
        x, codes = bars(classes, 40, generator)
        codes = codes if labelled else torch.full_like(codes, -1)
        state, _ = by.learn(state, x, codes, None, generator)
    return state


def accuracy(by: DcgmmLearner, state: DcgmmState, classes: list[int]) -> float:
    x, codes = bars(classes, 300, torch.Generator().manual_seed(99))
    found = by.readout(state).class_probabilities(scored(by, state, x).joint).argmax(-1)
    return (found == codes).float().mean().item()


def scored(by: DcgmmLearner, state: DcgmmState, x: Tensor) -> Scores:
    scores = by.score(state, x)
    assert scores is not None
    return scores


def served(by: DcgmmLearner, state: DcgmmState) -> Model:
    model = by.model(state)
    assert model is not None
    return model


def frozen(state: DcgmmState) -> DeepGenerator:
    assert state.generator is not None
    return state.generator


def nearest_bar(x: Tensor) -> Tensor:
    return torch.cdist(x, BARS).argmin(-1)


@pytest.fixture(scope="module")
def four_known() -> DcgmmState:
    return taught(learner(), [0, 1, 2, 3])


@pytest.fixture(scope="module")
def two_known() -> DcgmmState:
    """Classes 0 and 2 learned, then a boundary."""
    by = learner()
    state, replays = by.begin_sub_task(taught(by, [0, 2]), torch.Generator())
    assert replays == []
    return state


# What is refused --------------------------------------------------------------------------


def test_a_square_number_of_components_is_required() -> None:
    with pytest.raises(InvalidSettings, match="square"):
        learner(n_components=90)


def test_a_floor_that_makes_the_means_diverge_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"variance_floor is 0\.01.*0\.1"):
        learner(variance_floor=0.01)


def test_features_that_are_no_image_are_refused_by_the_batch_or_at_once() -> None:
    with pytest.raises(InvalidBatch, match="Set image to"):
        learner().start(35, CPU)
    with pytest.raises(InvalidSettings, match="Set image to"):
        learner(n_features=35)
    state = learner(image="5,7").start(35, CPU)
    assert (state.layers[0].folding.height, state.layers[0].folding.width) == (5, 7)


def test_an_engine_refuses_the_batch_and_goes_on() -> None:
    engine = Engine(EngineConfig(preset="dcgmm", n_components=4))
    state = engine.start()
    with pytest.raises(InvalidBatch, match="no square"):
        engine.step(state, Batch(torch.rand(3, 35)))
    state, _ = engine.step(state, Batch(torch.rand(3, 36)))
    assert state.model.samples_seen == 3


# Learning ---------------------------------------------------------------------------------


def test_nothing_is_known_before_anything_was_learned() -> None:
    by = learner()
    state = by.start(PIXELS, CPU)
    assert by.score(state, torch.zeros(1, PIXELS)) is None
    assert by.model(state) is None
    assert by.n_components(state) == 16
    begun, _ = by.begin_sub_task(state, torch.Generator())
    assert begun is state


def test_it_learns_to_classify_from_a_random_start(four_known: DcgmmState) -> None:
    by = learner()
    assert by.converged(four_known)
    assert accuracy(by, four_known, [0, 1, 2, 3]) > 0.97


def test_the_likelihood_of_unseen_images_rises() -> None:
    by = learner()
    x, _ = bars([0, 1, 2, 3], 200, torch.Generator().manual_seed(5))
    few, more = taught(by, [0, 1, 2, 3], 3), taught(by, [0, 1, 2, 3], 60)
    rise = scored(by, more, x).log_likelihood.mean() - scored(by, few, x).log_likelihood.mean()
    assert rise > 5


def test_an_unknown_class_is_less_likely_than_known_ones(two_known: DcgmmState) -> None:
    by = learner()
    known, _ = bars([0, 2], 200, torch.Generator().manual_seed(5))
    other, _ = bars([1, 3], 200, torch.Generator().manual_seed(6))
    odd = scored(by, two_known, other).log_likelihood
    usual = scored(by, two_known, known).log_likelihood
    assert odd.mean() < usual.mean() - 3 * usual.std()


def test_the_last_layer_waits_until_the_first_has_found_its_order() -> None:
    by = learner(replace(FAST, ready_radius=0.5))
    state = taught(by, [0, 1, 2, 3], 2)
    first, last = state.layers
    fresh = by.start(PIXELS, CPU).layers[1]
    assert first.annealing.radius > 0.5
    assert torch.equal(last.parameters.means, fresh.parameters.means)
    assert not torch.equal(first.parameters.means, by.start(PIXELS, CPU).layers[0].parameters.means)


def test_unlabelled_samples_train_the_density_and_not_the_classifier(
    two_known: DcgmmState,
) -> None:
    by = learner()
    later = taught(by, [1], 30, replace(two_known, generator=None), labelled=False)
    assert torch.equal(two_known.weight, later.weight)
    x, _ = bars([1], 100, torch.Generator())
    before, after = scored(by, two_known, x), scored(by, later, x)
    assert after.log_likelihood.mean() > before.log_likelihood.mean() + 1


def test_a_stream_without_labels_is_learned_and_replayed_without_them() -> None:
    by = learner()
    state, _ = by.begin_sub_task(taught(by, [0, 1], 20, labelled=False), torch.Generator())
    state = taught(by, [2], 5, state, labelled=False)
    assert served(by, state).n_classes == 0


def test_the_same_stream_gives_the_same_state_bit_for_bit(two_known: DcgmmState) -> None:
    by = learner()
    one, again = (taught(by, [1, 3], 5, two_known, seed=3) for _ in range(2))
    assert_identical(one, again)
    other = taught(by, [1, 3], 5, two_known, seed=4)
    assert not torch.equal(one.weight, other.weight)


def test_the_state_given_in_is_left_as_it_was(two_known: DcgmmState) -> None:
    by = learner()
    hard = taught(by, [1, 3], 20, two_known)
    assert by.converged(hard)
    for state in (two_known, hard):
        kept = [tensor.clone() for tensor in tensors_of(state)]
        x, codes = bars([1, 3], 30, torch.Generator())
        generator = torch.Generator()
        by.learn(state, x, codes, by.score(state, x), generator)
        by.begin_sub_task(state, generator)
        by.grow(state, 6)
        by.rescale(state, torch.full((PIXELS,), 2.0), torch.ones(PIXELS))
        served(by, state).sample(torch.arange(3), generator)
        assert all(torch.equal(a, b) for a, b in zip(kept, tensors_of(state), strict=True))


@pytest.mark.parametrize("radius", [0.1, 1.5])
@pytest.mark.parametrize("precisions", [0.0, 0.3])
def test_the_shortcuts_give_what_the_closed_forms_of_all_components_give(
    radius: float, precisions: float
) -> None:
    generator = torch.Generator().manual_seed(1)
    folding = Folding(3, 3, 1, 2, 2, 1)
    means = torch.rand(9, 4, generator=generator, dtype=torch.float64)
    roots = 1 + torch.rand(9, 4, generator=generator, dtype=torch.float64)
    parameters = Parameters(torch.zeros(9, dtype=torch.float64), means, roots)
    schedule = Schedule(radius=radius, window=1000)
    settings = LayerSettings(2, schedule, Rates(precision_root=precisions))
    limit = torch.full((4,), 2.0, dtype=torch.float64)
    layer = LayerState(folding, parameters, limit, schedule.start(9))
    x = torch.rand(6, 9, generator=generator, dtype=torch.float64)
    climbed = climb_batch(layer, folding, x, settings, 0.01)

    near = None if layer.annealing.hard else neighbourhood(9, radius)
    for piece in x.tensor_split(3):
        patches = folding.patches(piece)
        _, winner = winners(log_joint(parameters.mixture, patches), near)
        derivative = gradient(parameters, patches, winner, near)
        limits = (0.01, limit)
        parameters = ascend(parameters, derivative, settings.rates, schedule.rate, limits)
    for ours, expected in zip(climbed.layer.parameters, parameters, strict=True):
        torch.testing.assert_close(ours, expected)


# Sub-tasks --------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", ["constant", "proportional"])
def test_old_classes_are_kept_while_new_ones_are_learned_and_only_by_replay(replay: str) -> None:
    by = learner(n_components=4, replay=replay)  # no room to keep them by chance
    known, _ = by.begin_sub_task(taught(by, [0, 2]), torch.Generator())
    state = taught(by, [1, 3], 60, known, seed=1)
    assert accuracy(by, state, [0, 1, 2, 3]) > 0.95
    forgetful = taught(by, [1, 3], 60, replace(known, generator=None), seed=1)
    assert accuracy(by, forgetful, [0, 2]) < 0.3


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_constant_replay_adds_kappa_samples_per_new_one(
    two_known: DcgmmState, factor: float
) -> None:
    by = learner(replay_factor=factor)
    x, codes = bars([1], 30, torch.Generator())
    _, (replay,) = by.learn(two_known, x, codes, None, torch.Generator())
    assert (replay.mode, replay.samples, replay.reason) == ("constant", int(30 * factor), "batch")


def test_what_is_replayed_are_patches_apart_of_what_was_known(two_known: DcgmmState) -> None:
    known = frozen(two_known)
    folding = two_known.layers[0].folding
    generator = torch.Generator().manual_seed(0)
    components = known.model.sample_components(None, 200, generator)
    drawn = known.model.sample(components, generator)
    assert drawn.shape == (200, folding.positions * folding.patch_size)
    images = folding.assemble(drawn.reshape(-1, folding.patch_size))
    assert set(nearest_bar(images).tolist()) == {0, 2}
    # A real image cut apart is as likely to it as the image is to what was known.
    x, _ = bars([0, 2], 20, generator)
    torch.testing.assert_close(
        known.model.log_likelihood(folding.patches(x).reshape(20, -1)),
        scored(learner(), two_known, x).log_likelihood,
    )


def test_a_boundary_widens_the_last_neighbourhood_and_leaves_the_first(
    two_known: DcgmmState,
) -> None:
    by = learner()
    known = taught(by, [0, 2])
    assert by.converged(known)
    assert not by.converged(two_known)
    assert two_known.layers[0] is not known.layers[0]
    assert two_known.layers[0].annealing == known.layers[0].annealing
    assert two_known.layers[1].annealing.radius == 0.5
    assert (two_known.sub_task, two_known.earlier_samples, two_known.samples) == (1, 2400, 0)


def test_no_raw_sample_is_held_and_the_state_does_not_grow(two_known: DcgmmState) -> None:
    by = learner()
    state, sizes = two_known, []
    for sub_task in range(3):
        generator = torch.Generator().manual_seed(sub_task)
        x, codes = bars([1, 3], 20, generator)
        state, (replay,) = by.learn(state, x, codes, None, generator)
        sizes.append((replay.samples, sum(tensor.numel() for tensor in tensors_of(state))))
        assert by.raw_samples(state) == 0
        state, _ = by.begin_sub_task(state, generator)
    assert len(set(sizes)) == 1


# Drawing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [True, False])
def test_conditional_samples_are_of_the_class_that_was_asked_for(
    four_known: DcgmmState, noise: bool
) -> None:
    codes = torch.arange(4).repeat(50)
    drawn = draw(
        served(learner(), four_known),
        200,
        torch.Generator(),
        codes,
        least_probability=0.9,
        noise=noise,
    )
    assert drawn.x.shape == (200, PIXELS)
    assert (nearest_bar(drawn.x) == codes).float().mean().item() > 0.98


def test_only_a_reader_gets_images_sharpened(four_known: DcgmmState) -> None:
    by = learner(sharpening=7)
    density = served(by, four_known).density
    assert isinstance(density, DeepDensity)
    assert density.sharpening == 7
    begun, _ = by.begin_sub_task(four_known, torch.Generator())
    assert frozen(begun).density.sharpening == 0


# Units ------------------------------------------------------------------------------------


def test_a_change_of_units_that_is_the_same_everywhere_changes_nothing_else(
    two_known: DcgmmState,
) -> None:
    by = learner()
    state = taught(by, [1, 3], 7, two_known)
    factor, offset = torch.full((PIXELS,), 4.0), torch.full((PIXELS,), -1.0)
    moved = by.rescale(state, factor, offset)
    x, _ = bars([0, 1, 2, 3], 50, torch.Generator())
    before, after = scored(by, state, x), scored(by, moved, factor * x + offset)
    volume = factor.log().sum()
    torch.testing.assert_close(after.joint, before.joint, rtol=1e-3, atol=1e-3)
    expected = before.log_likelihood - volume
    torch.testing.assert_close(after.log_likelihood, expected, rtol=1e-4, atol=1e-2)
    shifts = [
        frozen(state).threshold - frozen(moved).threshold,
        state.log_likelihood.mean - moved.log_likelihood.mean,
    ]
    assert shifts == pytest.approx([float(volume)] * 2)
    apart = state.layers[0].folding.patches(x).reshape(50, -1)
    torch.testing.assert_close(
        frozen(moved).model.log_likelihood(4 * apart - 1),
        frozen(state).model.log_likelihood(apart) - volume,
        rtol=1e-4,
        atol=1e-2,
    )


def test_pixels_that_change_by_themselves_are_followed_on_average(
    two_known: DcgmmState,
) -> None:
    by = learner()
    generator = torch.Generator().manual_seed(2)
    factor = 1 + 0.05 * torch.rand(PIXELS, generator=generator)
    moved = by.rescale(two_known, factor, torch.zeros(PIXELS))
    x, _ = bars([0, 2], 100, generator)
    before, after = scored(by, two_known, x), scored(by, moved, factor * x)
    agree = before.joint.argmax(-1) == after.joint.argmax(-1)
    assert agree.float().mean() > 0.9
    apart = (before.log_likelihood - after.log_likelihood - factor.log().sum()).mean()
    assert abs(float(apart)) < before.log_likelihood.std()


def test_units_mean_nothing_before_the_first_step() -> None:
    by = learner()
    state = by.start(PIXELS, CPU)
    assert by.rescale(state, torch.full((PIXELS,), 2.0), torch.ones(PIXELS)) is state


def test_after_a_change_of_units_the_floor_goes_back_where_the_settings_want_it(
    two_known: DcgmmState,
) -> None:
    by = learner()
    moved = by.rescale(two_known, torch.full((PIXELS,), 10.0), torch.zeros(PIXELS))
    assert float(moved.layers[0].precision_limit.max()) == pytest.approx(20**0.5 / 10)
    x, codes = bars([1], 20, torch.Generator())
    later, _ = by.learn(moved, 10 * x, codes, None, torch.Generator())
    torch.testing.assert_close(later.layers[0].precision_limit, two_known.layers[0].precision_limit)


# In an engine -----------------------------------------------------------------------------


def stream(classes: list[int], n: int, seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [Batch.of(*bars(classes, 50, generator)) for _ in range(n)]


def lived(engine: Engine, state: Any, batches: list[Batch]) -> Any:
    for batch in batches:
        state, events = engine.step(state, batch)
        assert_finite(state)
        assert_finite(events)
    return state


@pytest.fixture(scope="module")
def engine() -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.engine.engine.make_learner", lambda _: learner())
        return Engine(EngineConfig(preset="dcgmm", n_components=16, detector="none"))


@pytest.fixture(scope="module")
def life(engine: Engine) -> Any:
    """Two sub-tasks."""
    state = lived(engine, engine.start(), stream([0, 2], 40, 0))
    state, _ = engine.declare_boundary(state)
    return lived(engine, state, stream([1, 3], 30, 1))


def test_every_question_is_answered_and_the_same_by_the_bytes_of_a_snapshot(
    engine: Engine, life: Any
) -> None:
    snapshot = engine.snapshot(life)
    x, codes = bars([0, 1, 2, 3], 100, torch.Generator().manual_seed(3))
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    assert_identical(snapshot.classify(x), again.classify(x))
    named = [snapshot.classes[code] for code in snapshot.classify(x).codes.tolist()]
    assert sum(a == b for a, b in zip(named, codes.tolist(), strict=True)) > 90
    assert_identical(snapshot.outliers(x), again.outliers(x))
    # A checkerboard is nothing like a bar.
    board = ((torch.arange(SIDE)[:, None] + torch.arange(SIDE)) % 2).float().reshape(1, -1)
    assert not bool(snapshot.outliers(board).inliers)
    assert float(snapshot.outliers(x).inliers.float().mean()) > 0.8
    wanted = snapshot.sample(40, [3], seed=1)
    assert_identical(wanted.features, again.sample(40, [3], seed=1).features)
    assert (nearest_bar(wanted.features) == 3).float().mean() > 0.9
    assert snapshot.info.to_dict()["components"] == 16


def test_a_checkpoint_goes_on_bit_for_bit(engine: Engine, life: Any) -> None:
    loaded, config, _ = load(dump(life, engine.config, {}))
    assert config == engine.config
    assert_identical(loaded, life)
    rest = stream([1, 3], 3, 9)
    assert_identical(lived(engine, loaded, rest), lived(engine, life, rest))


def test_a_rollback_is_the_model_of_before(engine: Engine, life: Any) -> None:
    later = lived(engine, life, stream([0], 2, 4))
    back, _ = engine.restore(later, life, "rollback")
    x, _ = bars([0, 1, 2, 3], 20, torch.Generator())
    assert torch.equal(
        engine.snapshot(back).classify(x).probabilities,
        engine.snapshot(life).classify(x).probabilities,
    )


def test_features_far_from_the_unit_range_are_learned_too(engine: Engine) -> None:
    generator = torch.Generator().manual_seed(0)
    state = engine.start()
    for _ in range(40):
        x, codes = bars([0, 1, 2, 3], 50, generator)
        # Every pixel varies, so that the standardiser has something to divide by.
        x = 300 * (x + 0.1 * torch.randn(x.shape, generator=generator)) - 50
        state = lived(engine, state, [Batch.of(x, codes)])
    snapshot = engine.snapshot(state)
    x, codes = bars([0, 1, 2, 3], 200, generator)
    labels = torch.tensor([int(label) for label in snapshot.classes])
    found = labels[snapshot.classify(300 * x - 50).codes]
    assert (found == codes).float().mean() > 0.8


@pytest.mark.parametrize("settings", [PUBLISHED, ONE_PASS])
def test_both_paces_accept_the_default_configuration(settings: DcgmmSettings) -> None:
    by = DcgmmLearner(EngineConfig(preset="dcgmm"), settings)
    state = by.start(784, CPU)
    assert by.n_components(state) == 81
    assert [layer.parameters.means.shape for layer in state.layers] == [(81, 64), (81, 9801)]


def test_a_stream_of_seven_thousand_samples_is_long_enough_for_the_pace_of_one_pass() -> None:
    by = DcgmmLearner(EngineConfig(preset="dcgmm", n_components=16), ONE_PASS)
    state = taught(by, [0, 1, 2, 3], batches=175)
    assert by.converged(state)
    assert accuracy(by, state, [0, 1, 2, 3]) > 0.95


def test_facts_of_a_density_are_plain(four_known: DcgmmState) -> None:
    density = served(learner(), four_known).density
    assert json.loads(json.dumps(density.facts())) == density.facts()


@pytest.mark.parametrize("value", [0.0, 0.5, 7.0, 1e6, -1e30])
def test_images_without_any_contrast_and_broken_pixels_leave_every_number_a_number(
    value: float,
) -> None:
    engine = Engine(EngineConfig(preset="dcgmm", n_components=4, detector="none"))
    generator = torch.Generator().manual_seed(0)
    flat = Batch.of(torch.full((30, PIXELS), value), [0] * 30)
    odd = torch.rand(30, PIXELS, generator=generator)
    odd[3, 5] = value
    state = engine.start()
    for batch in (flat, Batch.of(odd, [1] * 30), flat):
        for _ in range(10):
            state = lived(engine, state, [batch])
        state, _ = engine.declare_boundary(state)
    drawn = engine.snapshot(state).sample(10, [1], seed=0)
    assert drawn.features.isfinite().all()
    assert drawn.log_likelihoods.isfinite().all()
