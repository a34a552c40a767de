"""Tests for the core.learners.per_class.mfa module: what components learn, keep and never store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from core.density.factor_mixture import FactorMoments, covariances
from core.density.factors import part as part_module
from core.density.owned import NO_CLASS
from core.learners.per_class.mfa import MfaState
from core.learners.per_class.mfa import windows as windows_module
from core.learners.per_class.mfa.windows import copies
from core.learners.per_class.windowed import (
    MOST_HELD,
    MOST_PER_OWNER,
    SAMPLES_PER_COMPONENT,
    Fit,
)
from tests.core.learners.per_class import lives
from tests.core.learners.per_class.lives import nearest, sheet
from tests.core.states import assert_finite, assert_identical, leaves, tensors_of
from tests.core.streams import N_FEATURES, blob, centre

Life = partial(lives.Life, "mfa")


# Learning ---------------------------------------------------------------------------------


def test_components_start_anew_whenever_the_window_has_doubled() -> None:
    life = Life(n_components=10)
    counts, seeded = [], []
    for n in [1, 1, 1, 1, 4, 8, 40, 40, 104]:
        life.learn(blob(0, n, seed=n), 0)
        counts.append(len(life.components))
        seeded.append(life.group_of(0).seeded_at)
    assert seeded == [1, 2, 2, 4, 8, 16, 56, 56, 200]
    assert counts == [1, 1, 1, 1, 1, 1, 1, 1, 200 // SAMPLES_PER_COMPONENT]
    assert life.mass == pytest.approx(200)


def test_a_full_window_is_let_go_and_learning_goes_on_from_its_components() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, MOST_HELD - 1, seed=1), 0)
    assert life.held == MOST_HELD - 1
    life.learn(blob(0, 1, seed=2), 0)
    assert life.held == 0
    assert life.mass == pytest.approx(MOST_HELD)
    before = life.components.means
    life.learn(blob(0, MOST_HELD, seed=3) + 0.2, 0)
    assert life.held == 0
    assert float((life.components.means - before).abs().max()) > 0.02
    assert life.mass == pytest.approx(2 * MOST_HELD)


def test_one_batch_may_fill_several_windows() -> None:
    life = Life(n_components=4, window=500)
    life.learn(blob(0, 1800, seed=1), 0)
    assert life.held == 300
    life.boundary()
    assert life.mass == pytest.approx(1800)


def test_where_there_is_no_room_left_the_longest_window_is_learned() -> None:
    life = Life(n_components=9, window=100)
    held = []
    for label, n in ((0, 60), (1, 30), (1, 9), (1, 1), (2, 55), (1, 10)):
        life.learn(blob(label, n, seed=n), label)
        held.append([len(group.window) for group in life.state.groups])
    assert held == [[60], [60, 30], [60, 39], [0, 40], [0, 40, 55], [0, 50, 0]]
    life.boundary()
    assert life.mass == pytest.approx(165)


def test_an_owner_is_known_at_once_even_if_its_first_sample_takes_the_last_place() -> None:
    life = Life(n_components=9, window=100)
    life.learn(blob(0, 99, seed=1), 0)
    life.learn(blob(1, 1, seed=1), 1)
    assert [len(group.window) for group in life.state.groups] == [0, 1]
    assert (life.owned_by(0) > 0, life.owned_by(1)) == (True, 1)


def test_a_window_weighs_by_its_place_so_that_early_ones_are_forgotten() -> None:
    life = Life(n_components=1, n_factors=0, window=100)
    parts = [blob(label, 100, seed=1) for label in (0, 1, 2)]
    for part in parts:
        life.learn(part, 0)
    means = torch.stack([part.mean(0) for part in parts])
    expected = torch.tensor([1.0, 2.0, 3.0]) @ means / 6
    torch.testing.assert_close(life.components.means[0], expected, rtol=1e-4, atol=1e-4)


def test_components_grow_with_the_samples_of_their_owner() -> None:
    life = Life(n_components=500, n_factors=0)
    life.learn(torch.rand(2 * SAMPLES_PER_COMPONENT, N_FEATURES), 0)
    few = len(life.components)
    life.learn(torch.rand(1000, N_FEATURES), 0)
    more = len(life.components)
    for _ in range(3):
        life.learn(torch.rand(1000, N_FEATURES), 0)
    life.boundary()
    assert few <= 2 < more < len(life.components) <= MOST_PER_OWNER


@pytest.mark.parametrize("window", [64, 1000])
def test_the_mean_and_covariance_of_a_long_stream_are_found(window: int) -> None:
    life = Life(n_components=1, window=window, n_factors=2)
    for index in range(40):
        life.learn(sheet(0, 100, seed=index), 0)
    life.boundary()
    x = torch.cat([sheet(0, 100, seed=index) for index in range(40)])
    mixture = life.components.mixture()
    torch.testing.assert_close(mixture.means[0], x.mean(0), atol=0.03, rtol=0)
    covariance = covariances(mixture)[0]
    error = torch.linalg.matrix_norm(covariance - x.T.cov())
    assert float(error) < 0.2 * float(torch.linalg.matrix_norm(x.T.cov()))
    # Nearly all of it is held by the factors.
    assert float(mixture.noise.sum()) < 0.2 * float(covariance.diag().sum())


def test_a_subspace_says_more_than_components_that_have_none() -> None:
    log_likelihoods = []
    for n_factors in (0, 2):
        life = Life(n_components=2, n_factors=n_factors, variance_floor=1e-3)
        for index in range(10):
            life.learn(sheet(0, 100, seed=index), 0)
        log_likelihoods.append(life.log_likelihood(sheet(0, 500, seed=99)))
    assert log_likelihoods[1] > log_likelihoods[0] + 5


def test_two_classes_that_only_their_directions_tell_apart_are_told_apart() -> None:
    life = Life(n_components=4, n_factors=2, variance_floor=1e-3)
    shift = centre(1) - centre(0)
    for index in range(10):
        life.learn(
            torch.cat([sheet(0, 50, index), sheet(1, 50, index) - shift]), [0] * 50 + [1] * 50
        )
    assert float((life.guesses(sheet(0, 300, 77)) == 0).double().mean()) > 0.97
    assert float((life.guesses(sheet(1, 300, 77) - shift) == 1).double().mean()) > 0.97


# Owners -----------------------------------------------------------------------------------


def test_room_made_meanwhile_does_not_make_a_window_forget_those_before() -> None:
    """The pool's window is due because all are full, and then thawing empties another one."""
    life = Life(n_components=4, window=400)
    life.learn(torch.cat([blob(1, 600, 1), blob(0, 200, 2)]), [1] * 600 + [NO_CLASS] * 200)
    life.boundary()
    life.learn(blob(1, 40, 3), 1)
    thawed, statistics = False, False
    for index in range(15):
        life.learn(blob(5, 100, 4 + index), NO_CLASS)
        pool = life.group_of(NO_CLASS)
        assert not statistics or pool.sums is not None
        thawed = thawed or len(life.group_of(1).window) == 0 < len(pool.window)
        statistics = pool.sums is not None
    assert thawed
    life.boundary()
    assert life.mass == pytest.approx(2340, rel=1e-4)


def test_components_that_labels_gave_another_name_keep_it_when_their_window_is_learned() -> None:
    life = Life(n_components=6)
    life.learn(sheet(0, MOST_HELD, seed=1), 0)
    life.learn(sheet(1, 10, seed=2), 1)
    (old,) = [one.bank for one in life.state.groups if one.owner == 0]
    other = torch.zeros_like(old.components.votes)
    other[:, 1] = torch.arange(1.0, 1 + len(old))
    index, codes = life.state.index_of(0), torch.zeros(MOST_HELD, dtype=torch.int64)
    renamed = life.group_of(0).mapped(lambda bank: bank.with_votes(other))
    windows = life.learner.windows
    state = life.state.with_group(index, renamed)
    state, _ = windows.take(state, index, sheet(0, MOST_HELD, seed=3), codes)
    state = windows.absorbed(state, index, life.generator)
    votes = state.groups[index].bank.components.votes
    assert torch.equal(votes[: len(old)], other)
    assert not votes[len(old) :, 1].any()


def test_a_rare_class_of_the_pool_keeps_its_votes_when_its_component_starves() -> None:
    life = Life(n_components=6, n_factors=2)
    for label in range(5):
        life.learn(blob(label, 30, seed=1), label)
    # Three samples of class 5 lie apart; no component may stand for so few.
    for index in range(6):
        life.learn(torch.cat([blob(6, 60, index), blob(7, 60, index)]), [6] * 60 + [7] * 60)
        if index == 1:
            life.learn(blob(5, 3, seed=1), 5)
    life.boundary()
    assert life.state.pooled == (5, 6, 7)
    votes = life.components.votes[life.components.owner == NO_CLASS].sum(0)
    assert votes[5:].tolist() == pytest.approx([3, 360, 360], rel=1e-3)


# Sub-tasks --------------------------------------------------------------------------------


def test_samples_that_wait_in_a_window_are_learned_before_a_boundary() -> None:
    life = Life(n_components=1)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    before = life.components.means.clone()
    life.learn(blob(0, 60, seed=2) + 0.3, 0)
    assert torch.equal(life.components.means, before)
    life.boundary()
    assert float((life.components.means - before).min()) > 0.005
    assert life.mass == pytest.approx(MOST_HELD + 60)


# Labels and their absence -----------------------------------------------------------------


def test_votes_outlive_the_components_that_are_started_anew() -> None:
    """Labels of the first batches count, although the components they fell on are gone."""
    life = Life(n_components=12)
    for index in range(6):
        life.learn(torch.cat([blob(0, 50, index), blob(1, 50, index)]), NO_CLASS)
        votes = life.components.votes[life.components.owner == NO_CLASS].sum()
        assert float(votes) == pytest.approx(10 if index else 0, abs=0.2)
        if index == 0:
            life.learn(torch.cat([blob(0, 5, 99), blob(1, 5, 99)]), [0] * 5 + [1] * 5)
    life.boundary()
    pool = life.components.select(life.components.owner == NO_CLASS)
    assert float(pool.votes.sum()) == pytest.approx(10, abs=0.2)
    # And each on the right side still.
    mine = pool.votes / pool.votes.sum(1, keepdim=True)
    near_zero = (pool.means - centre(0)).norm(dim=1) < (pool.means - centre(1)).norm(dim=1)
    assert float(mine[near_zero, 0].min()) > 0.8
    assert float(mine[~near_zero, 1].min()) > 0.8


# Units ------------------------------------------------------------------------------------


def test_following_a_change_of_units_is_exact() -> None:
    factor = torch.linspace(0.5, 2, N_FEATURES)
    offset = torch.linspace(-1, 1, N_FEATURES)
    life = Life(n_components=6, variance_floor=1e-9, window=250)
    life.learn(sheet(2, 90, seed=1), 2)
    life.boundary()
    life.learn(sheet(0, 300, seed=1), 0)  # statistics, and a window beside them
    life.learn(sheet(1, 60, seed=3), 1)  # a first window
    moved = life.learner.rescale(life.state, factor, offset)
    for group, before in zip(moved.groups, life.state.groups, strict=True):
        torch.testing.assert_close(group.window, before.window * factor + offset)
        assert group.samples == before.samples
    assert moved.partition == life.state.partition
    for x in (sheet(0, 20, 5), sheet(1, 20, 5), sheet(2, 20, 5), blob(7, 5, 1)):
        old = life.learner.score(life.state, x)
        new = life.learner.score(moved, x * factor + offset)
        assert old is not None
        assert new is not None
        # In the sender's units nothing has changed.
        torch.testing.assert_close(new.joint + factor.log().sum(), old.joint, rtol=1e-3, atol=1e-2)


def test_what_was_learned_before_a_change_of_units_weighs_as_much_after_it() -> None:
    factor, offset = torch.tensor(3.0), torch.tensor(-1.0)
    first, second, third = (blob(label, 100, seed=1) for label in (0, 1, 2))

    def mean_after(moves: bool) -> Tensor:
        life = Life(n_components=1, window=100, n_factors=0)
        for x in (first, second):
            life.learn(x, 0)
        if not moves:
            life.learn(third, 0)
            return life.components.means[0] * factor + offset
        many = torch.ones(N_FEATURES)
        life.state = life.learner.rescale(life.state, factor * many, offset * many)
        life.learn(third * factor + offset, 0)
        return life.components.means[0]

    torch.testing.assert_close(mean_after(True), mean_after(False), rtol=1e-3, atol=1e-3)


# Without raw samples ----------------------------------------------------------------------


def test_without_raw_samples_the_model_is_the_same_and_goes_on_learning() -> None:
    life = Life(n_components=9, window=400)
    life.learn(sheet(3, 100, 1), 3)
    life.boundary()
    life.learn(sheet(0, 500, 1), 0)  # statistics and a window
    life.learn(sheet(1, 70, 1), 1)  # a first window, ...
    life.learn(sheet(1, 9, 2), 1)  # ... of which a part waits
    bare = life.learner.without_raw(life.state)
    assert life.learner.raw_samples(bare) == 0 < life.held
    assert all(len(group.window) == len(group.codes) == 0 for group in bare.groups)
    assert_identical(list(bare.banks), list(life.state.banks))
    assert bare.partition == life.state.partition
    # What was not learned is lost: an owner has as many samples as its components stand for.
    for group in bare.groups:
        assert group.samples == group.absorbed == pytest.approx(group.bank.mass)
    life.state = bare
    for index in range(4):
        life.learn(sheet(1, 100, 10 + index), 1)
    mass = life.mass
    life.boundary()
    assert life.mass >= mass
    assert float((life.guesses(sheet(1, 100, 99)) == 1).double().mean()) > 0.97
    assert_identical(life.learner.without_raw(life.state), life.state)


def test_a_class_of_few_samples_is_learned_on_soon_after_raw_samples_were_let_go() -> None:
    life = Life(n_components=20, n_factors=2, variance_floor=1e-3)
    life.learn(sheet(0, 4, seed=1), 0)
    life.state = life.learner.without_raw(life.state)
    before = life.log_likelihood(sheet(0, 200, seed=99))
    for index in range(8):
        life.learn(sheet(0, 30, seed=2 + index), 0)
    assert life.log_likelihood(sheet(0, 200, seed=99)) > before + 5
    assert life.held < MOST_HELD  # and long before a window is full


def test_masses_count_what_was_learned_after_raw_samples_were_let_go() -> None:
    life = Life(n_components=5, window=200)
    for n in (60, 30):  # the second batch waits
        life.learn(blob(0, n, seed=n), 0)
    life.state = life.learner.without_raw(life.state)
    life.learn(blob(0, 25, seed=3), 0)
    life.boundary()
    assert life.mass == pytest.approx(60 + 25)


# Nothing is stored ------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 60])
def test_a_state_without_raw_samples_holds_none_in_any_disguise(window: int) -> None:
    life = Life(n_components=5, window=window)
    x = torch.cat([blob(0, 1, seed=index) for index in range(7)])
    for index, sample in enumerate(x.split(1)):
        life.learn(sample, 0)
        bare = life.learner.without_raw(life.state)
        for path, leaf in leaves(bare):
            if not isinstance(leaf, Tensor) or N_FEATURES not in leaf.shape or not leaf.numel():
                continue
            rows = leaf.movedim(leaf.shape.index(N_FEATURES), -1).reshape(-1, N_FEATURES)
            away = (rows[:, None] - x[: index + 1]).abs().amax(-1)
            assert float(away.min()) > 0.005, (path, index)


def test_what_one_sample_began_grows_factors_all_the_same() -> None:
    life = Life(n_components=1, window=1, n_factors=2)
    for index in range(8):
        life.learn(sheet(0, 50, seed=index), 0)
    variance = sheet(0, 2000, seed=9).var(0).sum()
    assert float(life.components.loadings.square().sum()) > 0.2 * float(variance)


def digits() -> tuple[Tensor, Tensor]:
    """Scikit-learn's small digits: 1,797 images of 64 pixels in [0, 1]."""
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target.astype(np.int64))


def mnist() -> tuple[Tensor, Tensor]:
    """Zeros and ones among the training images, with their labels, or a skipped test."""
    folder = Path(os.environ.get("GMR_DATASETS", Path(__file__).parents[5] / "shared/datasets"))
    path = folder / "mnist.npz"
    if not path.exists():
        pytest.skip(f"no MNIST: {path} does not exist; set GMR_DATASETS to a folder with mnist.npz")
    with np.load(path) as data:
        images, labels = data["train_x"][:12_000], data["train_y"][:12_000]
    rows = labels < 2
    x = torch.from_numpy(images[rows].reshape(int(rows.sum()), -1)).float() / 255
    return x, torch.from_numpy(labels[rows].astype(np.int64))


@pytest.mark.parametrize("epochs", [1, 3], ids=["one pass", "three passes"])
def test_no_mean_is_a_training_image_after_five_sub_tasks_of_digits(epochs: int) -> None:
    x, y = digits()
    life = Life(n_features=64, n_components=100, n_factors=5)
    for sub_task in range(5):
        rows = (y // 2 == sub_task).nonzero()[:, 0]
        for part in rows.repeat(epochs).split(100):
            life.learn(x[part], y[part])
        life.boundary()
    assert len(life.components) >= 40
    away = torch.cdist(life.components.means, x)
    usual = torch.cdist(x, x).fill_diagonal_(torch.inf).amin(1).median()
    # Nobody is nearer to a training image than half of the way to the next one.
    assert float(away.min()) > 0.4 * float(usual)
    assert float((life.guesses(x) == y).double().mean()) > 0.95


def test_no_mean_is_a_training_image_of_mnist() -> None:
    x, y = mnist()
    life = Life(n_features=784, n_factors=10)
    for part in torch.arange(len(x)).split(100):
        life.learn(x[part], y[part])
    life.boundary()
    means = life.components.means
    assert len(means) > 40
    squared = torch.cdist(means, x).square()
    # An image lies some 40 from the next one; a stored one would lie at rounding, 1e-4.
    assert float(squared.min()) > 0.5
    closest = x[squared.argmin(1)]
    assert float((means - closest).abs().amax(-1).min()) > 0.1


# Always the same, and never more ----------------------------------------------------------


def size(state: MfaState) -> int:
    """Numbers that a state holds."""
    return sum(tensor.numel() for tensor in tensors_of(state))


def test_an_endless_stream_takes_no_more_memory_and_no_more_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty sub-tasks: numbers held, and sample-component pairs scored and components merged."""
    work = 0

    def counted(module: object, name: str, cost: Callable[..., int]) -> None:
        function = getattr(module, name)

        def counting(*args: object) -> object:
            nonlocal work
            work += cost(*args)
            return function(*args)

        monkeypatch.setattr(module, name, counting)

    counted(part_module, "log_joint", lambda form, x, _: len(x) * form.n_components)
    counted(windows_module, "e_step", lambda form, x, _: len(x) * form.n_components)
    counted(windows_module, "merged", lambda old, most, _: 40 * len(old) if len(old) > most else 0)

    life = Life(n_components=24, window=300)
    sizes, works = [], []
    for sub_task in range(30):
        # Eight classes come back again and again, always as something new.
        labels, work = [2 * sub_task % 8, 2 * sub_task % 8 + 1], 0
        for index in range(4):
            x = torch.cat([sheet(label + 10 * sub_task, 40, index) for label in labels])
            life.learn(x, torch.tensor(labels).repeat_interleave(40))
        life.boundary()
        assert len(life.components) <= 24
        sizes.append(size(life.state))
        works.append(work)
    full = next(index for index, one in enumerate(sizes) if one == max(sizes))
    assert full < 12
    assert min(sizes[12:]) > 0.8 * max(sizes)
    assert sum(works[20:30]) < 1.05 * sum(works[10:20])


def test_a_component_that_has_shrunk_to_copies_of_one_sample_is_let_go() -> None:
    life = Life(n_features=4, n_components=8)
    life.learn(blob(0, 60, 1)[:, :4], 0)
    windows = life.learner.windows  # type: ignore[attr-defined]
    group = life.state.groups[0]
    x = torch.cat([group.window, group.window[:1].expand(20, 4)])
    which = torch.zeros(len(x), 2)
    which[:60, 0], which[60:, 1] = 1, 1  # the second one has twenty copies of a sample
    mass, first = which.sum(0), which.T @ x
    latent = torch.diag_embed(torch.tensor([[1.0, 1.0, 1.0]]).expand(2, 3)) * mass[:, None, None]
    cross = torch.cat([torch.zeros(2, 4, 2), first[..., None]], -1)
    sums = FactorMoments(mass, which.T @ x.square(), cross, latent)
    parameters = (first / mass[:, None], torch.zeros(2, 4, 2), torch.full((2, 4), 0.1))
    fit = Fit(sums, which, parameters, copies(sums.mass, (sums,)))
    state = windows._with_components(life.state, 0, fit)
    assert len(state.groups[0].bank) == 1
    torch.testing.assert_close(state.groups[0].bank.components.means[0], x[:60].mean(0))


# A quiet stream ---------------------------------------------------------------------------


def test_what_waits_in_a_first_window_is_taken_in_and_the_window_stays() -> None:
    life = Life(n_components=10, window=1000)
    life.learn(sheet(0, 100, 1), 0)
    life.learn(sheet(0, 90, 2) + 0.3, 0)
    before, fresh = life.log_likelihood(sheet(0, 500, 99) + 0.3), life.group_of(0)
    partition = life.state.partition
    assert life.settle() == 90
    assert life.log_likelihood(sheet(0, 500, 99) + 0.3) > before + 5
    group = life.group_of(0)
    assert torch.equal(group.window, fresh.window)
    assert (group.samples, group.seeded_at, life.held) == (190, 100, 190)
    assert life.mass == pytest.approx(190)
    assert life.state.partition > partition
    assert life.settle() == 0


def test_what_waits_in_a_later_window_is_taken_in_and_no_statistic_moves() -> None:
    life = Life(n_components=4, window=MOST_HELD)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    life.learn(blob(0, 400, seed=2) + 0.3, 0)
    before, sums = life.components.means, life.group_of(0).sums
    assert life.settle() == 400
    assert float((life.components.means - before).mean()) > 0.005
    assert life.mass == pytest.approx(MOST_HELD + 400)
    assert life.group_of(0).sums is sums
    assert life.held == 400


def test_a_handful_beside_many_is_left_open() -> None:
    life = Life(n_components=4, window=MOST_HELD)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    life.learn(blob(0, 100, seed=2), 0)
    assert life.settle() == 0
    life.learn(blob(0, 10, seed=3), 0)
    assert life.settle() == 110


@pytest.mark.parametrize("every", [1, 3])
def test_pauses_make_no_difference_to_what_is_learned(every: int) -> None:
    steady, pausing = (Life(n_components=12, window=500) for _ in range(2))
    settled = 0
    for index in range(40):
        label = (0, 1, 0, 2)[index % 4]
        for life in (steady, pausing):
            life.learn(sheet(label, 45, index), label)
        if index % every == 0:
            settled += pausing.settle() > 0
        if index == 25:
            steady.boundary()
            pausing.boundary()
    assert settled > 5
    plain = [replace(group.unsettled) for group in pausing.state.groups]
    assert_identical(plain, list(steady.state.groups))
    steady.boundary()
    pausing.boundary()
    assert_identical(pausing.components, steady.components)


def test_labels_that_come_after_a_pause_vote_on_what_is_shown_and_on_what_goes_on() -> None:
    life = Life(n_components=60)
    life.learn(torch.cat([blob(0, 300, 1), blob(1, 300, 1)]), NO_CLASS)
    life.learn(torch.cat([blob(0, 100, 2), blob(1, 100, 2)]), NO_CLASS)
    assert life.settle() == 200
    life.learn(torch.cat([blob(0, 20, 3), blob(1, 20, 3)]), [0] * 20 + [1] * 20)
    group = life.group_of(NO_CLASS)
    assert group.base is not None
    for bank in (group.bank, group.base):
        assert bank.components.votes.sum(0).tolist() == pytest.approx([20, 20], abs=0.5)
    life.boundary()
    assert life.accuracy([0, 1]) > 0.95


def test_labels_in_a_window_of_the_pool_vote_once_however_often_it_pauses() -> None:
    life = Life(n_components=2)
    for label in range(3):
        life.learn(blob(label, 300, seed=1), label)
    for index in range(6):
        life.learn(torch.cat([blob(1, 40, index), blob(2, 40, index)]), [1] * 40 + [2] * 40)
        life.settle()
        votes = life.components.votes[life.components.owner == NO_CLASS].sum(0)
        assert float(votes.sum()) <= 600 + 80 * (index + 1) + 0.5
    life.boundary()
    votes = life.components.votes[life.components.owner == NO_CLASS].sum(0)
    assert votes.tolist() == pytest.approx([0, 540, 540], rel=0.01)


def test_without_raw_samples_what_a_quiet_stream_took_in_is_kept() -> None:
    life = Life(n_components=9, window=400)
    life.learn(sheet(0, 500, 1), 0)
    life.learn(sheet(0, 90, 2), 0)
    life.learn(sheet(1, 79, 1), 1)
    life.learn(sheet(1, 9, 2), 1)
    assert life.settle() > 0
    bare = life.learner.without_raw(life.state)
    assert_identical(list(bare.banks), list(life.state.banks))
    for group in bare.groups:
        assert group.base is None
        assert group.samples == pytest.approx(group.bank.mass, rel=1e-4)
    assert life.learner.raw_samples(bare) == 0
    assert life.learner.waiting(bare) == 0
    life.state = bare
    life.learn(sheet(1, 300, 3), 1)
    life.boundary()
    assert float((life.guesses(sheet(1, 100, 99)) == 1).double().mean()) > 0.97


def test_a_change_of_units_is_followed_by_what_is_shown_and_by_what_goes_on() -> None:
    life, factor = Life(n_components=6, window=400), torch.full((N_FEATURES,), 0.5)
    life.learn(sheet(0, 500, 1), 0)
    life.learn(sheet(0, 90, 2), 0)
    assert life.settle() > 0
    before = life.group_of(0)
    life.state = life.learner.rescale(life.state, factor, torch.zeros(N_FEATURES))
    after = life.group_of(0)
    assert before.base is not None
    assert after.base is not None
    assert after.sums is not None
    for old, new in ((before.bank, after.bank), (before.base, after.base)):
        torch.testing.assert_close(new.components.means, old.components.means * factor)
    assert len(after.sums.mass) == len(after.base)
    life.learn(sheet(0, 400, 3) * factor, 0)
    assert_finite(life.state)


def test_a_quiet_stream_keeps_to_the_budget_when_classes_go_on_arriving() -> None:
    life = Life(n_components=10, n_factors=2, window=300)
    for label in range(8):
        life.learn(blob(label, 170, seed=label), label)
        life.settle()
        life.learn(blob(label // 2, 60, seed=100 + label), label // 2)
        life.settle()
        assert len(life.components) <= 10
    life.boundary()
    assert life.accuracy(list(range(8))) > 0.9


# Where factors do better than diagonals ---------------------------------------------------


@pytest.mark.parametrize("budget", [1, 3, 8])
def test_many_classes_one_at_a_time_keep_to_the_budget(budget: int) -> None:
    life = Life(n_components=budget)
    for label in range(12):
        life.learn(blob(label, 60, seed=label), label)
        assert len(life.components) <= budget
        life.boundary()
        assert len(life.components) <= budget
    assert life.mass == pytest.approx(720, rel=1e-4)
    assert life.accuracy(list(range(budget - 1))) > 0.95 if budget > 1 else True


def test_a_label_in_twenty_is_enough_to_name_the_rest() -> None:
    life = Life(n_components=20)
    for index in range(12):
        x = torch.cat([sheet(label, 20, index) for label in range(3)])
        codes = torch.arange(3).repeat_interleave(20)
        life.learn(x, torch.where(torch.arange(60) % 20 == 0, codes, NO_CLASS))
    for _ in range(2):
        for label in range(3):
            assert float((life.guesses(sheet(label, 100, 99)) == label).double().mean()) > 0.97
        life.boundary()


@pytest.mark.parametrize("times", [12, 30])
def test_no_mean_is_a_sample_that_was_sent_several_times(times: int) -> None:
    x = blob(1, 1, seed=1)
    life = Life(n_components=8)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(x.repeat(times, 1), 1)
    life.learn(torch.cat([blob(2, 100, 1), x.repeat(times, 1)]), 2)
    assert nearest(life.components, x) > 0.005
    life.boundary()
    assert nearest(life.components, x) > 0.005
