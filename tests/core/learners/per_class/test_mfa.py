"""Tests for the core.learners.per_class.mfa module: what components learn, keep and never store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import Tensor

from core.config import EngineConfig
from core.density.diagonal.components import NO_CLASS
from core.density.factor_mixture import FactorMoments, covariances
from core.density.factors import part as part_module
from core.density.factors.components import Analysers
from core.learners.per_class.mfa import MfaLearner, MfaState
from core.learners.per_class.mfa import capacity as room_module
from core.learners.per_class.mfa import windows as windows_module
from core.learners.per_class.mfa.state import Group
from core.learners.per_class.mfa.windows import (
    MOST_HELD,
    MOST_PER_OWNER,
    SAMPLES_PER_COMPONENT,
    Fit,
)
from core.model.sampling import draw
from tests.core.lives import FedByHand, by_name
from tests.core.states import assert_finite, assert_identical, leaves, tensors_of
from tests.core.streams import N_FEATURES, blob, centre

CPU = torch.device("cpu")


class Life(FedByHand[MfaState]):
    """A learner and its state, fed by hand."""

    def __init__(self, n_features: int = N_FEATURES, seed: int = 0, **settings: object) -> None:
        config = EngineConfig(**{"n_factors": 3, **settings})  # type: ignore[arg-type]
        super().__init__(MfaLearner(config), n_features, seed)

    @property
    def components(self) -> Analysers:
        return self.state.analysers

    @property
    def mass(self) -> float:
        return float(self.components.mass.sum())

    @property
    def held(self) -> int:
        return self.learner.raw_samples(self.state)

    def group_of(self, owner: int) -> Group:
        return self.state.groups[self.state.index_of(owner)]

    def owned_by(self, owner: int) -> int:
        """Components of one owner."""
        return int((self.components.owner == owner).sum())

    def guesses(self, x: Tensor) -> Tensor:
        scores = self.learner.score(self.state, x)
        assert scores is not None
        return self.learner.readout(self.state).class_probabilities(scores.joint).argmax(-1)

    def accuracy(self, labels: list[int]) -> float:
        """Share of fresh samples of these classes that get their own code."""
        hits = [int((self.guesses(blob(one, 100, seed=4242)) == one).sum()) for one in labels]
        return sum(hits) / (100 * len(labels))

    def likelihood(self, x: Tensor) -> float:
        """Mean log density in nats."""
        scores = self.learner.score(self.state, x)
        assert scores is not None
        return float(scores.log_likelihood.mean())


def sheet(label: int, n: int, seed: int) -> Tensor:
    """n samples of a class that stretches in two directions of its own, with shape (n, D)."""
    plane = torch.randn(2, N_FEATURES, generator=torch.Generator().manual_seed(label)) * 0.15
    generator = torch.Generator().manual_seed(seed * 1000 + label)
    latent = torch.randn(n, 2, generator=generator)
    return centre(label) + latent @ plane + 0.03 * torch.randn(n, N_FEATURES, generator=generator)


def nearest(components: Analysers, x: Tensor) -> float:
    """Smallest largest difference in any feature between a component's mean and a sample."""
    return min(float((components.means - sample).abs().amax(-1).min()) for sample in x.split(1))


# Learning ---------------------------------------------------------------------------------


def test_nothing_is_known_before_anything_is_learned() -> None:
    life = Life()
    assert life.learner.model(life.state) is None
    assert life.learner.score(life.state, blob(0, 3, 1)) is None
    assert life.learner.n_components(life.state) == life.held == 0
    assert life.learner.without_raw(life.state).groups == ()


def test_it_answers_from_the_first_sample_on_without_storing_it() -> None:
    life = Life()
    x = blob(3, 1, seed=1)
    life.learn(x, 0)
    assert life.learner.model(life.state) is not None
    assert life.components.mass.tolist() == [1]
    assert nearest(life.components, x) > 0.01


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
    likelihoods = []
    for n_factors in (0, 2):
        life = Life(n_components=2, n_factors=n_factors, variance_floor=1e-3)
        for index in range(10):
            life.learn(sheet(0, 100, seed=index), 0)
        likelihoods.append(life.likelihood(sheet(0, 500, seed=99)))
    assert likelihoods[1] > likelihoods[0] + 5


def test_two_classes_that_only_their_directions_tell_apart_are_told_apart() -> None:
    life = Life(n_components=4, n_factors=2, variance_floor=1e-3)
    shift = centre(1) - centre(0)
    for index in range(10):
        life.learn(
            torch.cat([sheet(0, 50, index), sheet(1, 50, index) - shift]), [0] * 50 + [1] * 50
        )
    assert float((life.guesses(sheet(0, 300, 77)) == 0).double().mean()) > 0.97
    assert float((life.guesses(sheet(1, 300, 77) - shift) == 1).double().mean()) > 0.97


def test_scores_that_are_at_hand_give_the_same_as_scores_worked_out_again() -> None:
    with_scores, without = Life(n_components=9, window=150), Life(n_components=9, window=150)
    for index in range(12):
        x = torch.cat([blob(label, 30, index) for label in (0, 1, 2)])
        codes = [0] * 30 + [1] * 30 + [NO_CLASS] * 30
        with_scores.learn(x, codes, scored=True)
        without.learn(x, codes, scored=False)
        if index == 6:
            with_scores.boundary()
            without.boundary()
    assert_identical(with_scores.state, without.state)


@pytest.mark.parametrize("labelled", [True, False])
def test_batches_of_ten_and_of_a_thousand_teach_the_same(labelled: bool) -> None:
    x = torch.stack([sheet(0, 1500, seed=1), sheet(1, 1500, seed=2)], 1).reshape(3000, -1)
    codes = torch.tensor([0, 1] * 1500) if labelled else torch.full((3000,), -1)
    held_out = torch.cat([sheet(0, 500, seed=9), sheet(1, 500, seed=9)])
    scores = []
    for size in (10, 1000):
        life = Life(n_components=8)
        for part, part_codes in zip(x.split(size), codes.split(size), strict=True):
            life.learn(part, part_codes)
        life.boundary()
        scores.append(life.likelihood(held_out))
    assert abs(scores[1] - scores[0]) < 0.1  # nats, of 16 features


def test_a_huge_batch_is_learned_in_one_go() -> None:
    life = Life(n_components=6)
    codes = torch.arange(10_000) % 3
    pools = [blob(label, 10_000, seed=5) for label in range(3)]
    life.learn(torch.stack(pools)[codes, torch.arange(10_000)], codes)
    assert life.accuracy([0, 1, 2]) > 0.97
    assert life.held < 4096
    life.boundary()
    assert life.mass == pytest.approx(10_000, rel=1e-4)


# Owners -----------------------------------------------------------------------------------


def test_what_one_class_learns_moves_no_component_of_another() -> None:
    life = Life(n_components=8, window=300)
    for index in range(4):
        life.learn(torch.cat([blob(0, 100, index), blob(1, 100, index)]), [0] * 100 + [1] * 100)
    life.learn(blob(1, 300, 8), 1)  # what was held of class 0 is learned by now
    before = life.components.select(life.components.owner == 0)
    for index in range(9, 13):
        life.learn(blob(1, 100, index), 1)
        now = life.components.select(life.components.owner == 0)
        assert_identical(by_name(now), by_name(before))


def test_frozen_components_stay_bit_for_bit_while_the_budget_is_not_reached() -> None:
    life = Life(n_components=100)
    life.learn(torch.cat([sheet(0, 400, 1), sheet(1, 400, 1)]), [0] * 400 + [1] * 400)
    life.boundary()
    before = life.state.frozen.analysers
    assert len(before) > 2
    for label in (2, 3, 0):
        for index in range(4):
            life.learn(sheet(label, 50, index), label)
            now = life.state.frozen.analysers
            assert_identical(by_name(now.select(torch.arange(len(before)))), by_name(before))
        life.boundary()
    now = life.state.frozen.analysers
    assert_identical(by_name(now.select(torch.arange(len(before)))), by_name(before))
    assert len(now) > len(before) + 2


def test_the_budget_is_shared_equally_by_the_classes_known() -> None:
    life = Life(n_components=10)
    rng = torch.Generator().manual_seed(0)
    for label in range(3):  # so spread out that each class uses all that it may have
        life.learn(torch.rand(600, N_FEATURES, generator=rng) + label, label)
    assert [life.owned_by(label) for label in range(3)] == [4, 3, 3]
    life.boundary()
    life.learn(torch.rand(600, N_FEATURES, generator=rng) + 3, 3)
    assert [life.owned_by(label) for label in range(4)] == [3, 3, 2, 2]


@given(
    budget=st.integers(1, 12),
    order=st.lists(
        st.tuples(st.integers(-1, 15), st.sampled_from([1, 3, 30, 120, 600])),
        min_size=1,
        max_size=14,
    ),
    boundaries=st.sets(st.integers(0, 14)),
    window=st.sampled_from([1, 7, 100, 4096]),
    n_factors=st.sampled_from([0, 2, 20]),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_neither_the_budget_nor_the_window_is_ever_exceeded_and_every_sample_counts(
    budget: int,
    order: list[tuple[int, int]],
    boundaries: set[int],
    window: int,
    n_factors: int,
) -> None:
    life = Life(n_components=budget, window=window, n_factors=n_factors)
    for index, (label, n) in enumerate(order):
        life.learn(blob(label, n, seed=index), label)
        assert 1 <= len(life.components) <= budget
        assert life.held <= window
        if index in boundaries:
            life.boundary()
            assert len(life.components) <= budget
            assert life.held == 0
    life.boundary()
    assert_finite(life.state)
    assert life.mass == pytest.approx(sum(n for _, n in order), rel=1e-3)
    # Who has a class is called by it.
    own = life.components.owner != NO_CLASS
    if bool(own.any()):
        assert torch.equal(life.components.votes[own].argmax(1), life.components.owner[own])


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


def test_unlabelled_samples_get_a_share_by_their_number() -> None:
    life = Life(n_components=20)
    rng = torch.Generator().manual_seed(0)
    for _ in range(10):
        life.learn(torch.rand(100, N_FEATURES, generator=rng), [NO_CLASS] * 90 + [0] * 10)
    life.boundary()
    assert life.owned_by(NO_CLASS) == pytest.approx(18, abs=1)
    assert 1 <= life.owned_by(0) <= 3
    assert len(life.components) <= 20


def test_a_share_that_shrinks_to_one_component_goes_on_with_the_frozen_one() -> None:
    life = Life(n_components=3)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    life.boundary()
    life.learn(torch.cat([blob(0, 12, 2), blob(1, 8, 2)]), [NO_CLASS] * 12 + [0] * 8)
    assert (len(life.state.frozen), life.state.pool_allowance) == (1, 2)
    for index in range(6):
        life.learn(blob(1, 1000, seed=3 + index), 0)
    life.learn(blob(0, 14, seed=9), NO_CLASS)
    assert (len(life.state.frozen), life.state.pool_allowance) == (0, 1)
    assert len(life.group_of(NO_CLASS).window) == 0
    life.boundary()
    pool = life.components.owner == NO_CLASS
    assert float(life.components.mass[pool].sum()) == pytest.approx(126)
    # What was gone on with is of the newest sub-task.
    assert life.state.sub_tasks_of == {NO_CLASS: 1, 0: 1}


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
    other = torch.zeros_like(old.analysers.votes)
    other[:, 1] = torch.arange(1.0, 1 + len(old))
    index, codes = life.state.index_of(0), torch.zeros(MOST_HELD, dtype=torch.int64)
    renamed = life.group_of(0).with_banks(lambda bank: bank.with_votes(other))
    windows = life.learner.windows
    state = life.state.with_group(index, renamed)
    state, _ = windows.take(state, index, sheet(0, MOST_HELD, seed=3), codes)
    state = windows.absorbed(state, index, life.generator)
    votes = state.groups[index].bank.analysers.votes
    assert torch.equal(votes[: len(old)], other)
    assert not votes[len(old) :, 1].any()


def test_more_classes_than_components_share_them_and_are_told_apart_as_far_as_they_can() -> None:
    life = Life(n_components=6)
    for index in range(8):
        x = torch.cat([blob(label, 40, index) for label in range(9)])
        life.learn(x, torch.arange(9).repeat_interleave(40))
    assert len(life.components) <= 6
    assert life.state.pooled == (5, 6, 7, 8)
    # Five classes keep a component of their own; the others vote on the one they share.
    assert life.accuracy([0, 1, 2, 3, 4]) > 0.95
    life.boundary()
    shared = life.components.votes[life.components.owner == NO_CLASS]
    assert shared[:, 5:].sum(0).tolist() == pytest.approx([320] * 4, rel=1e-3)
    model = life.learner.model(life.state)
    assert model is not None
    assert model.readout.control_signal(model.density.log_weights).sum(1).tolist() == pytest.approx(
        [1] * 9
    )


def test_the_pool_takes_the_smallest_class_in_when_the_last_place_is_needed() -> None:
    life = Life(n_components=2)
    life.learn(blob(0, 900, seed=1), 0)
    life.learn(blob(1, 700, seed=1), 1)
    life.boundary()
    life.learn(blob(2, 300, seed=1), 2)
    assert life.state.pooled == (1, 2)
    assert sorted(life.components.owner.tolist()) == [NO_CLASS, 0]

    def shared() -> list[float]:
        votes: list[float] = life.components.votes[life.components.owner == NO_CLASS][0].tolist()
        return votes

    assert shared() == pytest.approx([0, 700, 300], rel=0.01)
    assert life.accuracy([0]) > 0.95
    # Whoever belongs to the pool goes on learning there.
    life.learn(blob(1, 600, seed=3), 1)
    life.boundary()
    assert shared() == pytest.approx([0, 1300, 300], rel=0.01)


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


def test_a_single_component_serves_everyone() -> None:
    life = Life(n_components=1)
    for label in (0, 1, NO_CLASS, 2, 0):
        life.learn(blob(label, 200, seed=label + 1), label)
        life.boundary()
        assert len(life.components) == 1
    assert life.mass == pytest.approx(1000, rel=1e-3)
    x = torch.cat([blob(label, 200, seed=label + 1) for label in (0, 1, NO_CLASS, 2, 0)])
    torch.testing.assert_close(life.components.means[0], x.mean(0), atol=0.1, rtol=0)


# Sub-tasks --------------------------------------------------------------------------------


def test_a_boundary_lets_go_of_raw_samples_and_counts_all_that_it_stands_for() -> None:
    life = Life(n_components=10)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(blob(1, 700, seed=1), 1)
    assert life.held == 750
    life.boundary()
    assert life.held == 0
    assert life.state.groups == ()
    (replay,) = [replay for replay in life.replays if replay.reason == "boundary"]
    assert (replay.mode, replay.samples) == ("analytic", 750)
    assert len(life.state.frozen) == len(life.components) == replay.components_after


def test_samples_that_wait_in_a_window_are_learned_before_a_boundary() -> None:
    life = Life(n_components=1)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    before = life.components.means.clone()
    life.learn(blob(0, 60, seed=2) + 0.3, 0)
    assert torch.equal(life.components.means, before)
    life.boundary()
    assert float((life.components.means - before).min()) > 0.005
    assert life.mass == pytest.approx(MOST_HELD + 60)


def test_a_boundary_before_anything_was_learned_replays_nothing() -> None:
    life = Life()
    life.boundary()
    assert life.replays == []


@pytest.mark.parametrize("replay", ["analytic", "constant", "proportional"])
@pytest.mark.parametrize("budget", [2, 6])
def test_classes_that_come_back_in_many_sub_tasks_are_kept(budget: int, replay: str) -> None:
    life = Life(n_components=budget, replay=replay, replay_factor=0.3)
    for sub_task in range(10):
        label = sub_task % 2
        life.learn(sheet(label, 300, seed=sub_task), label)
        assert len(life.components) <= budget
        life.boundary()
        assert len(life.components) <= budget
    for label in (0, 1):
        assert float((life.guesses(sheet(label, 100, 99)) == label).double().mean()) > 0.97
    assert life.mass == pytest.approx(3000, rel=1e-3)


def test_a_few_samples_before_the_boundary_cost_a_class_none_of_its_components() -> None:
    life = Life(n_components=10)
    generator = torch.Generator().manual_seed(0)
    life.learn(torch.rand(700, N_FEATURES, generator=generator), 0)
    # These belong to the next sub-task, but nobody knows yet.
    life.learn(torch.rand(4, N_FEATURES, generator=generator) + 1, 1)
    life.boundary()
    life.learn(torch.rand(700, N_FEATURES, generator=generator) + 1, 1)
    assert life.owned_by(1) == 5
    assert len(life.components) == 10


def test_a_class_that_comes_back_as_something_else_is_known_by_both_looks() -> None:
    life = Life(n_components=8)
    life.learn(torch.cat([blob(0, 400, 1), blob(1, 400, 1)]), [0] * 400 + [1] * 400)
    life.boundary()
    life.learn(blob(20, 400, seed=1), 0)  # class 0 again, in another place
    life.boundary()
    for seen, expected in ((0, 0), (20, 0), (1, 1)):
        assert float((life.guesses(blob(seen, 100, 7)) == expected).double().mean()) > 0.97


# Labels and their absence -----------------------------------------------------------------


def test_labels_that_fall_on_unlabelled_components_make_them_a_class() -> None:
    life = Life(n_components=12)
    for index in range(10):
        life.learn(torch.cat([blob(0, 60, index), blob(1, 60, index)]), NO_CLASS)
    life.boundary()
    life.learn(torch.cat([blob(0, 5, 99), blob(1, 5, 99)]), [0] * 5 + [1] * 5)
    pool = life.components.select(life.components.owner == NO_CLASS)
    assert float(pool.votes.sum()) == pytest.approx(10, rel=1e-3)

    def away(label: int) -> Tensor:
        return (pool.means - centre(label)).square().sum(-1)

    assert torch.equal(pool.votes[:, 0] > pool.votes[:, 1], away(0) < away(1))
    assert life.accuracy([0, 1]) > 0.97


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


def test_labels_vote_even_where_no_scores_were_handed_over() -> None:
    votes = []
    for scored in (True, False):
        life = Life(n_components=12)
        for index in range(4):
            life.learn(blob(0, 100, index), NO_CLASS)
        life.boundary()
        life.learn(blob(0, 9, 99), 0, scored=scored)
        pool = life.components.owner == NO_CLASS
        votes.append(float(life.components.votes[pool].sum()))
    assert votes == pytest.approx([9, 9])


def test_without_any_label_there_are_no_classes_but_a_density() -> None:
    life = Life(n_components=4)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    model = life.learner.model(life.state)
    assert model is not None
    assert model.n_classes == 0
    scores = life.learner.score(life.state, blob(0, 5, seed=2))
    assert scores is not None
    assert life.learner.readout(life.state).class_probabilities(scores.joint).shape == (5, 0)


def test_more_classes_change_no_score_and_nothing_of_it_is_worked_out_again() -> None:
    life = Life(n_components=9)
    life.learn(torch.cat([blob(0, 90, 1), blob(1, 90, 1)]), [0] * 90 + [NO_CLASS] * 90)
    life.boundary()
    life.learn(blob(2, 90, 1), 1)
    x = blob(0, 30, seed=9)
    before = life.learner.score(life.state, x)
    grown = life.learner.grow(life.state, 7)
    after = life.learner.score(grown, x)
    assert before is not None
    assert after is not None
    assert torch.equal(after.joint, before.joint)
    assert [bank.part for bank in grown.banks] == [bank.part for bank in life.state.banks]
    assert grown.partition == life.state.partition
    probabilities = life.learner.readout(grown).class_probabilities(after.joint)
    assert probabilities.shape == (30, 7)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(30))


# What is served ---------------------------------------------------------------------------


def test_samples_of_a_class_are_read_back_as_that_class() -> None:
    life = Life(n_components=20, n_factors=2)
    for label in range(4):
        life.learn(sheet(label, 400, seed=1), label)
        life.boundary()
    model = life.learner.model(life.state)
    assert model is not None
    codes = torch.arange(4).repeat(200)
    for noise in (True, False):
        components = model.sample_components(codes, 800, life.generator)
        x = model.sample(components, life.generator, noise)
        assert float((life.guesses(x) == codes).double().mean()) > 0.98
        assert life.likelihood(x) > life.likelihood(sheet(9, 100, 1)) + 10


def test_what_is_served_is_what_was_learned() -> None:
    life = Life(n_components=9)
    life.learn(blob(0, 200, 1), 0)
    life.boundary()
    life.learn(torch.cat([blob(1, 90, 1), blob(2, 90, 1)]), [1] * 90 + [NO_CLASS] * 90)
    model, x = life.learner.model(life.state), blob(1, 20, 9)
    scores = life.learner.score(life.state, x)
    assert model is not None
    assert scores is not None
    served = model.density.score(x)
    torch.testing.assert_close(served.joint, scores.joint, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(served.log_likelihood, scores.log_likelihood, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(
        model.readout.class_probabilities(served.joint),
        life.learner.readout(life.state).class_probabilities(scores.joint),
        rtol=0,
        atol=1e-4,
    )


def test_every_change_of_components_changes_the_partition_and_nothing_else_does() -> None:
    life = Life(n_components=7, window=300)
    changes = 0
    for index in range(30):
        before = life.state
        known = before.analysers
        if index % 9 == 8:
            life.boundary()
        else:
            life.learn(blob(index % 4, 40, seed=index), index % 4 - 1)
        now = life.components
        same = len(now) == len(known) and torch.equal(now.means, known.means)
        assert same or life.state.partition > before.partition, index
        changes += not same
    assert changes > 10
    # Samples that only fill a window change nothing.
    partition = life.state.partition
    life.learn(blob(0, 1, seed=99), -1)
    assert life.state.partition == partition or life.group_of(-1).sums is None


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


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_absurd_changes_of_units_leave_numbers_behind(factor: float) -> None:
    life = Life(n_components=4, window=200)
    life.learn(sheet(0, 240, seed=1), 0)
    life.learn(blob(1, 40, seed=1), 1)
    many = torch.full((N_FEATURES,), factor)
    life.state = life.learner.rescale(life.state, many, many)
    assert_finite(life.state)
    scores = life.learner.score(life.state, blob(0, 9, 1))
    assert scores is not None
    assert bool(scores.log_likelihood.isfinite().all())
    life.learn(blob(0, 100, 2), 0)
    life.boundary()
    assert_finite(life.state)


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
    before = life.likelihood(sheet(0, 200, seed=99))
    for index in range(8):
        life.learn(sheet(0, 30, seed=2 + index), 0)
    assert life.likelihood(sheet(0, 200, seed=99)) > before + 5
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


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("window", [1, 2, 4096])
def test_no_mean_is_a_sample_however_few_there_are(n: int, window: int) -> None:
    x = torch.cat([blob(0, n, seed=1), blob(1, n, seed=1)])
    life = Life(n_components=8, window=window)
    life.learn(blob(2, 50, seed=1), 2)
    life.learn(x, [0] * n + [1] * n)
    assert nearest(life.components, x) > 0.005
    life.boundary()
    assert nearest(life.components, x) > 0.005


@pytest.mark.parametrize("copies", [1, 3, 9, 12, 30])
def test_no_mean_is_a_sample_that_was_sent_several_times(copies: int) -> None:
    x = blob(1, 1, seed=1)
    life = Life(n_components=8)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(x.repeat(copies, 1), 1)
    life.learn(torch.cat([blob(2, 100, 1), x.repeat(copies, 1)]), 2)
    assert nearest(life.components, x) > 0.005
    life.boundary()
    assert nearest(life.components, x) > 0.005


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


def test_the_same_seed_gives_the_same_life_bit_for_bit() -> None:
    lives = [Life(n_components=9, window=200, seed=seed) for seed in (5, 5, 6)]
    for life in lives:
        torch.rand(7)  # nobody looks at the generator of everybody else
        for index in range(8):
            life.learn(torch.cat([blob(0, 40, index), blob(1, 40, index)]), [0] * 40 + [-1] * 40)
        life.boundary()
        life.learn(blob(2, 100, 1), 2)
    assert_identical(lives[0].state, lives[1].state)
    assert not torch.equal(lives[0].components.loadings, lives[2].components.loadings)


def test_a_state_that_was_given_is_not_changed_by_learning_from_it() -> None:
    life = Life(n_components=5, window=100)
    life.learn(torch.cat([blob(0, 90, 1), blob(1, 90, 1)]), [0] * 90 + [NO_CLASS] * 90)
    life.boundary()
    life.learn(torch.cat([blob(0, 90, 2), blob(1, 90, 2)]), [0] * 90 + [NO_CLASS] * 90)
    kept, copies = life.state, [tensor.clone() for tensor in tensors_of(life.state)]
    life.learn(torch.cat([blob(2, 90, 3), blob(1, 190, 3)]), [2] * 90 + [NO_CLASS] * 190)
    life.boundary()
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(kept), copies, strict=True))


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
    counted(room_module, "merged", lambda old, most, _: 40 * len(old) if len(old) > most else 0)

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


def test_classes_are_sampled_within_their_budget_after_it_was_reached() -> None:
    life = Life(n_components=6, n_factors=2)
    for label in range(6):
        life.learn(sheet(label, 200, seed=1), label)
        life.boundary()
    model = life.learner.model(life.state)
    assert model is not None
    drawn = draw(model, 300, life.generator, torch.arange(6).repeat(50))
    assert float((life.guesses(drawn.x) == drawn.codes).double().mean()) > 0.97


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
    fit = Fit(sums, (sums,), which, parameters)
    state = windows._with_components(life.state, 0, fit)
    assert len(state.groups[0].bank) == 1
    torch.testing.assert_close(state.groups[0].bank.analysers.means[0], x[:60].mean(0))


# A quiet stream ---------------------------------------------------------------------------


def settle(life: Life) -> int:
    """Let the stream be quiet; how many samples were taken in."""
    n_waiting = life.learner.waiting(life.state)
    if n_waiting:
        life.state = life.learner.settle(life.state, torch.Generator().manual_seed(5))
    return n_waiting


def test_what_waits_in_a_first_window_is_taken_in_and_the_window_stays() -> None:
    life = Life(n_components=10, window=1000)
    life.learn(sheet(0, 100, 1), 0)
    life.learn(sheet(0, 90, 2) + 0.3, 0)
    before, fresh = life.likelihood(sheet(0, 500, 99) + 0.3), life.group_of(0)
    partition = life.state.partition
    assert settle(life) == 90
    assert life.likelihood(sheet(0, 500, 99) + 0.3) > before + 5
    group = life.group_of(0)
    assert torch.equal(group.window, fresh.window)
    assert (group.samples, group.seeded_at, life.held) == (190, 100, 190)
    assert life.mass == pytest.approx(190)
    assert life.state.partition > partition
    assert settle(life) == 0


def test_what_waits_in_a_later_window_is_taken_in_and_no_statistic_moves() -> None:
    life = Life(n_components=4, window=MOST_HELD)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    life.learn(blob(0, 400, seed=2) + 0.3, 0)
    before, sums = life.components.means, life.group_of(0).sums
    assert settle(life) == 400
    assert float((life.components.means - before).mean()) > 0.005
    assert life.mass == pytest.approx(MOST_HELD + 400)
    assert life.group_of(0).sums is sums
    assert life.held == 400


def test_a_handful_beside_many_is_left_open() -> None:
    life = Life(n_components=4, window=MOST_HELD)
    life.learn(blob(0, MOST_HELD, seed=1), 0)
    life.learn(blob(0, 100, seed=2), 0)
    assert settle(life) == 0
    life.learn(blob(0, 10, seed=3), 0)
    assert settle(life) == 110


@pytest.mark.parametrize("every", [1, 3])
def test_pauses_make_no_difference_to_what_is_learned(every: int) -> None:
    steady, pausing = (Life(n_components=12, window=500) for _ in range(2))
    settled = 0
    for index in range(40):
        label = (0, 1, 0, 2)[index % 4]
        for life in (steady, pausing):
            life.learn(sheet(label, 45, index), label)
        if index % every == 0:
            settled += settle(pausing) > 0
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
    assert settle(life) == 200
    life.learn(torch.cat([blob(0, 20, 3), blob(1, 20, 3)]), [0] * 20 + [1] * 20)
    group = life.group_of(NO_CLASS)
    assert group.base is not None
    for bank in (group.bank, group.base):
        assert bank.analysers.votes.sum(0).tolist() == pytest.approx([20, 20], abs=0.5)
    life.boundary()
    assert life.accuracy([0, 1]) > 0.95


def test_labels_in_a_window_of_the_pool_vote_once_however_often_it_pauses() -> None:
    life = Life(n_components=2)
    for label in range(3):
        life.learn(blob(label, 300, seed=1), label)
    for index in range(6):
        life.learn(torch.cat([blob(1, 40, index), blob(2, 40, index)]), [1] * 40 + [2] * 40)
        settle(life)
        votes = life.components.votes[life.components.owner == NO_CLASS].sum(0)
        assert float(votes.sum()) <= 600 + 80 * (index + 1) + 0.5
    life.boundary()
    votes = life.components.votes[life.components.owner == NO_CLASS].sum(0)
    assert votes.tolist() == pytest.approx([0, 540, 540], rel=0.01)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_no_mean_is_a_sample_though_the_stream_pauses_after_every_batch(n: int) -> None:
    life = Life(n_components=8, window=60)
    seen = []
    life.learn(blob(1, 50, seed=1), 1)
    for index in range(12):
        seen.append(blob(0, n, seed=index))
        life.learn(seen[-1], 0)
        settle(life)
        bare = life.learner.without_raw(life.state).analysers
        for components in (life.components, bare):
            assert nearest(components, torch.cat(seen)) > 0.005, index


def test_without_raw_samples_what_a_quiet_stream_took_in_is_kept() -> None:
    life = Life(n_components=9, window=400)
    life.learn(sheet(0, 500, 1), 0)
    life.learn(sheet(0, 90, 2), 0)
    life.learn(sheet(1, 79, 1), 1)
    life.learn(sheet(1, 9, 2), 1)
    assert settle(life) > 0
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
    assert settle(life) > 0
    before = life.group_of(0)
    life.state = life.learner.rescale(life.state, factor, torch.zeros(N_FEATURES))
    after = life.group_of(0)
    assert before.base is not None
    assert after.base is not None
    assert after.sums is not None
    for old, new in ((before.bank, after.bank), (before.base, after.base)):
        torch.testing.assert_close(new.analysers.means, old.analysers.means * factor)
    assert len(after.sums.mass) == len(after.base)
    life.learn(sheet(0, 400, 3) * factor, 0)
    assert_finite(life.state)


def test_a_quiet_stream_keeps_to_the_budget_when_classes_go_on_arriving() -> None:
    life = Life(n_components=10, n_factors=2, window=300)
    for label in range(8):
        life.learn(blob(label, 170, seed=label), label)
        settle(life)
        life.learn(blob(label // 2, 60, seed=100 + label), label // 2)
        settle(life)
        assert len(life.components) <= 10
    life.boundary()
    assert life.accuracy(list(range(8))) > 0.9
