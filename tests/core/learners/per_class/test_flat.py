"""Tests for core.learners.per_class.flat: what components learn, keep and never store."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.owned import NO_CLASS
from core.learners.per_class.flat.stepwise import STEP_OFFSET, STEP_SAMPLES
from core.learners.per_class.flat.windows import WINDOW_PER_OWNER
from tests.core.learners.per_class import lives
from tests.core.learners.per_class.lives import nearest
from tests.core.lives import by_name
from tests.core.states import assert_finite, assert_identical
from tests.core.streams import N_FEATURES, blob, centre

Life = partial(lives.Life, "flat")


# Learning ---------------------------------------------------------------------------------


def test_components_start_anew_whenever_the_window_has_doubled() -> None:
    life = Life(n_components=10)
    counts, seeded = [], []
    for n in [1, 1, 1, 1, 4, 8, 40, 40]:
        life.learn(blob(0, n, seed=n), 0)
        counts.append(len(life.components))
        seeded.append(life.state.groups[0].seeded_at)
    assert seeded == [1, 2, 2, 4, 8, 16, 56, 56]
    assert counts == [1, 1, 1, 1, 1, 2, 7, 7]


def test_a_full_window_is_let_go_and_learning_goes_on_from_its_components() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, WINDOW_PER_OWNER - 1, seed=1), 0)
    assert life.learner.raw_samples(life.state) == WINDOW_PER_OWNER - 1
    life.learn(blob(0, 1, seed=2), 0)
    assert life.learner.raw_samples(life.state) == 0
    (group,) = life.state.groups
    assert (group.window, group.codes) == (None, None)
    before = life.components.means
    life.learn(blob(0, STEP_SAMPLES, seed=3) + 0.2, 0)
    assert float((life.components.means - before).abs().max()) > 0.02
    assert float(life.components.mass.sum()) == pytest.approx(WINDOW_PER_OWNER + STEP_SAMPLES)


def test_what_scores_is_worked_out_anew_by_an_m_step_alone() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, WINDOW_PER_OWNER, seed=1), 0)
    before = life.state.mixing
    form, votes = before.form, before.components.votes
    life.learn(blob(0, 10, seed=2), 0)
    # A label is a vote, and the form for scoring, which costs a batch more than that, knows none.
    assert not torch.equal(life.components.votes, votes)
    assert life.state.mixing.form is form
    life.learn(blob(0, STEP_SAMPLES, seed=3), 0)
    assert life.state.mixing.form is not form


def test_one_batch_may_fill_the_window_and_be_learned_stepwise_from_there() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, 2000, seed=1), 0)
    assert life.learner.raw_samples(life.state) == 0
    assert float(life.components.mass.sum()) == pytest.approx(2000)


@pytest.mark.parametrize("k", [1, 3])
def test_stepwise_em_finds_the_mean_and_variance_of_a_long_stream(k: int) -> None:
    life = Life(n_components=k)
    for index in range(60):
        life.learn(blob(0, 100, seed=index, spread=0.04), 0)
    total = life.components.moments()
    mass = total.mass.sum()
    mean = total.first.sum(0) / mass
    torch.testing.assert_close(mean, centre(0), atol=0.01, rtol=0)
    variance = total.second.sum(0) / mass - mean.square()
    torch.testing.assert_close(variance.sqrt(), torch.full((N_FEATURES,), 0.04), atol=0.005, rtol=0)


def test_an_m_step_moves_the_statistics_by_its_rate() -> None:
    """One component: the step is a convex combination that can be worked out by hand."""
    life = Life(n_components=1)
    first, more = blob(0, WINDOW_PER_OWNER, seed=1), blob(1, STEP_SAMPLES, seed=2)
    life.learn(first, 0)
    torch.testing.assert_close(life.components.means[0], first.mean(0))
    life.learn(more, 0)
    rate = (1 + STEP_OFFSET) ** -0.7
    expected = (1 - rate) * first.mean(0) + rate * more.mean(0)
    torch.testing.assert_close(life.components.means[0], expected)
    second = (1 - rate) * first.square().mean(0) + rate * more.square().mean(0)
    torch.testing.assert_close(life.components.variances[0], second - expected.square())


@given(st.lists(st.integers(1, STEP_SAMPLES - 1), unique=True, max_size=8).map(sorted))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_between_two_m_steps_it_does_not_matter_how_samples_are_cut(cuts: list[int]) -> None:
    """Sums of an E-step add up: no cut is visible, but for rounding."""
    start, x = blob(0, WINDOW_PER_OWNER, seed=1), blob(0, STEP_SAMPLES, seed=2)
    whole, parts = Life(n_components=5), Life(n_components=5)
    for life in (whole, parts):
        life.learn(start, 0)
    whole.learn(x[:-1], 0)
    for part in x[:-1].tensor_split(cuts):
        if len(part):
            parts.learn(part, 0)
    for ours, theirs in zip(whole.state.pending, parts.state.pending, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert float(whole.state.pending.mass.sum()) == pytest.approx(STEP_SAMPLES - 1)
    # Nothing has moved yet; with the last sample everything does, and alike.
    assert_identical(by_name(whole.components), by_name(parts.components))
    torch.testing.assert_close(whole.components.votes, parts.components.votes)
    for life in (whole, parts):
        life.learn(x[-1:], 0)
        assert float(life.state.pending.mass.sum()) == 0
    torch.testing.assert_close(whole.components.means, parts.components.means)
    torch.testing.assert_close(whole.components.variances, parts.components.variances)


# Owners -----------------------------------------------------------------------------------


def test_windows_are_closed_when_newcomers_need_their_place() -> None:
    life = Life(n_components=20, window=100)
    held = []
    for label in range(6):
        life.learn(blob(label, 30, seed=1), label)
        held.append(life.learner.raw_samples(life.state))
    # The fourth would make it 120: the three that hold more than their fair 25 are closed.
    assert held == [30, 60, 90, 30, 60, 90]
    life.boundary()
    assert float(life.components.mass.sum()) == pytest.approx(180)


def test_the_share_of_unlabelled_samples_follows_their_number_within_a_sub_task() -> None:
    life = Life(n_components=20)
    life.learn(torch.cat([blob(0, 90, 1), blob(1, 10, 1)]), [0] * 90 + [NO_CLASS] * 10)
    assert life.owned_by(NO_CLASS) <= 2
    for index in range(2, 7):
        life.learn(blob(1, 100, index), NO_CLASS)
    assert life.owned_by(NO_CLASS) > 10
    assert len(life.components) <= 20


# Sub-tasks --------------------------------------------------------------------------------


def test_samples_waiting_for_an_m_step_are_learned_before_a_boundary() -> None:
    life = Life(n_components=1)
    x = blob(0, WINDOW_PER_OWNER, seed=1)
    life.learn(x, 0)
    before = life.components.means.clone()
    life.learn(blob(0, 60, seed=2) + 0.3, 0)
    assert torch.equal(life.components.means, before)
    life.boundary()
    assert float((life.components.means - before).min()) > 0.01
    assert float(life.components.mass.sum()) == pytest.approx(WINDOW_PER_OWNER + 60)


def test_what_a_boundary_cuts_off_weighs_by_its_number() -> None:
    life = Life(n_components=1)
    x, odd = blob(0, WINDOW_PER_OWNER, seed=1), blob(1, 5, seed=2)
    life.learn(x, 0)
    life.learn(odd, 0)
    life.boundary()
    rate = (0.05 + STEP_OFFSET) ** -0.7 * 5 / STEP_SAMPLES
    expected = (1 - rate) * x.mean(0) + rate * odd.mean(0)
    torch.testing.assert_close(life.components.means[0], expected)


# Units ------------------------------------------------------------------------------------


def test_following_a_change_of_units_is_the_same_as_having_learned_in_them() -> None:
    factor = torch.linspace(0.5, 2, N_FEATURES)
    offset = torch.linspace(-1, 1, N_FEATURES)
    life = Life(n_components=3, variance_floor=1e-9)
    life.learn(blob(0, WINDOW_PER_OWNER, seed=1), 0)
    life.learn(blob(1, 40, seed=3), 1)  # an open window
    life.learn(blob(0, 50, seed=2), 0)  # pending statistics
    moved = life.learner.rescale(life.state, factor, offset)
    window = moved.groups[1].window
    assert window is not None
    torch.testing.assert_close(window, blob(1, 40, seed=3) * factor + offset)
    x = blob(0, 50, seed=2) * factor + offset
    torch.testing.assert_close(moved.pending.first.sum(0), x.sum(0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(moved.pending.second.sum(0), x.square().sum(0), rtol=1e-4, atol=1e-3)
    held_out = blob(0, 20, seed=5)
    before = life.learner.score(life.state, held_out)
    after = life.learner.score(moved, held_out * factor + offset)
    assert before is not None
    assert after is not None
    torch.testing.assert_close(
        after.log_likelihood, before.log_likelihood - factor.log().sum(), rtol=1e-4, atol=1e-2
    )


# Nothing is stored ------------------------------------------------------------------------


def test_a_component_that_was_all_but_forgotten_does_not_become_the_sample_that_hits_it() -> None:
    near, far = torch.full((N_FEATURES,), 0.2), torch.full((N_FEATURES,), 0.8)
    generator = torch.Generator().manual_seed(3)

    def around(place: Tensor, n: int) -> Tensor:
        return place + 0.03 * torch.randn(n, N_FEATURES, generator=generator)

    life = Life(n_components=10)
    life.learn(torch.cat([around(near, 256), around(far, 256)]), 0)
    for _ in range(150):
        life.learn(around(near, 100), 0)
    forgotten = life.components.means[(life.components.means.mean(-1) > 0.5)]
    assert len(forgotten)
    for _ in range(3):
        odd = around(far, 1)
        life.learn(torch.cat([around(near, 99), odd]), 0)
        assert nearest(life.components, odd) > 0.01
        life.boundary()
        assert nearest(life.components, odd) > 0.01


def test_a_component_that_nobody_chooses_stays_where_it_is() -> None:
    near, far = blob(0, 256, seed=1), blob(1, 256, seed=1)
    life = Life(n_components=2)
    life.learn(torch.cat([near, far]), 0)
    lonely = int((life.components.means - centre(1)).square().sum(-1).argmin())
    before = life.components.means[lonely].clone()
    for index in range(400):
        life.learn(blob(0, 100, seed=index + 2), 0)
    torch.testing.assert_close(life.components.means[lonely], before, atol=0.01, rtol=0)
    assert float(life.components.mass[lonely]) < 1e-2
    assert_finite(life.state)


def mnist() -> tuple[Tensor, Tensor]:
    """Some of the training images and their labels, or a skipped test."""
    folder = Path(os.environ.get("GMR_DATASETS", Path(__file__).parents[5] / "shared/datasets"))
    path = folder / "mnist.npz"
    if not path.exists():
        pytest.skip(f"no MNIST: {path} does not exist; set GMR_DATASETS to a folder with mnist.npz")
    with np.load(path) as data:
        images, labels = data["train_x"][:12_000], data["train_y"][:12_000]
    x = torch.from_numpy(images.reshape(len(images), -1)).float() / 255
    return x, torch.from_numpy(labels.astype(np.int64))


@pytest.mark.parametrize("epochs", [1, 3], ids=["one pass", "three passes"])
def test_no_component_is_a_training_image_after_five_sub_tasks_of_digits(epochs: int) -> None:
    x, y = mnist()
    life = Life(n_features=784, n_components=100)
    for sub_task in range(5):
        rows = (y // 2 == sub_task).nonzero()[:, 0]
        if epochs > 1:
            rows = rows[:300].repeat(epochs)  # few digits, again and again
        for part in rows.split(100):
            life.learn(x[part], y[part])
        life.boundary()
    means = life.components.means
    assert len(means) >= 90
    squared = means.square().sum(-1, keepdim=True) - 2 * means @ x.T + x.square().sum(-1)
    # An image lies some 40 from the next one; a stored one would lie at rounding, 1e-4.
    assert float(squared.min()) > 0.5
    closest = x[squared.argmin(1)]
    assert float((means - closest).abs().amax(-1).min()) > 0.1


# A quiet stream ---------------------------------------------------------------------------


def test_what_waits_in_a_first_window_is_taken_in_when_the_stream_is_quiet() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, 100, seed=1), 0)
    life.learn(blob(0, 90, seed=2), 0)
    before = life.state
    assert life.learner.waiting(before) == 90
    life.state = life.learner.settle(before, life.generator)
    assert float(life.state.components.mass.sum()) == pytest.approx(190)
    assert life.learner.raw_samples(life.state) == 190
    assert life.state.partition > before.partition
    assert life.state.groups[0].seeded_at == before.groups[0].seeded_at  # due when it was due
    assert life.learner.waiting(life.state) == 0
    life.learn(blob(0, 8, seed=3), 0)
    assert life.learner.waiting(life.state) == 0  # so few beside so many
    life.learn(blob(0, 600, seed=4), 0)
    assert life.learner.raw_samples(life.state) == life.learner.waiting(life.state) == 0
