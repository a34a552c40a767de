"""Tests for core.learners.per_class.flat: what components learn, keep and never store."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.config import EngineConfig
from core.density.diagonal.components import NO_CLASS, Components
from core.learners.per_class.flat import FlatLearner, FlatState
from core.learners.per_class.flat.stepwise import STEP_OFFSET, STEP_SAMPLES
from core.learners.per_class.flat.windows import WINDOW_PER_OWNER
from tests.core.lives import FedByHand, by_name
from tests.core.states import assert_finite, assert_identical
from tests.core.streams import N_FEATURES, blob, centre

CPU = torch.device("cpu")


class Life(FedByHand[FlatState]):
    """A learner and its state, fed by hand."""

    def __init__(self, n_features: int = N_FEATURES, seed: int = 0, **settings: object) -> None:
        config = EngineConfig(**settings)  # type: ignore[arg-type]
        super().__init__(FlatLearner(config), n_features, seed)

    @property
    def components(self) -> Components:
        return self.state.components

    @property
    def frozen(self) -> Components:
        return self.state.frozen

    def owned_by(self, owner: int) -> int:
        """Components of one owner."""
        return int((self.components.owner == owner).sum())

    def accuracy(self, labels: list[int]) -> float:
        """Share of fresh samples of these classes that get their own code."""
        hits = 0
        for label in labels:
            scores = self.learner.score(self.state, blob(label, 100, seed=4242))
            assert scores is not None
            guesses = self.learner.readout(self.state).class_probabilities(scores.joint).argmax(-1)
            hits += int((guesses == label).sum())
        return hits / (100 * len(labels))


def nearest(components: Components, x: Tensor) -> float:
    """Smallest largest difference in any feature between a component's mean and a sample."""
    best = min(float((components.means - sample).abs().amax(-1).min()) for sample in x.split(1))
    return best


# Learning ---------------------------------------------------------------------------------


def test_nothing_is_known_before_anything_is_learned() -> None:
    life = Life()
    assert life.learner.model(life.state) is None
    assert life.learner.score(life.state, blob(0, 3, 1)) is None
    assert life.learner.n_components(life.state) == 0


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


def test_scores_that_are_at_hand_give_the_same_as_scores_worked_out_again() -> None:
    with_scores, without = Life(n_components=6), Life(n_components=6)
    for index in range(12):
        x, codes = torch.cat([blob(0, 60, index), blob(1, 60, index)]), [0] * 60 + [1] * 60
        with_scores.learn(x, codes, scored=True)
        without.learn(x, codes, scored=False)
    assert_identical(with_scores.state, without.state)


@pytest.mark.parametrize("labelled", [True, False])
def test_batches_of_ten_and_of_a_hundred_teach_the_same(labelled: bool) -> None:
    x = torch.stack([blob(0, 3000, seed=1), blob(1, 3000, seed=2)], 1).reshape(6000, -1)
    codes = torch.tensor([0, 1] * 3000) if labelled else torch.full((6000,), -1)
    held_out = torch.cat([blob(0, 500, seed=9), blob(1, 500, seed=9)])
    scores = []
    for size in (10, 100, 1000):
        life = Life(n_components=8)
        for part, part_codes in zip(x.split(size), codes.split(size), strict=True):
            life.learn(part, part_codes)
        held = life.learner.score(life.state, held_out)
        assert held is not None
        scores.append(float(held.log_likelihood.mean()))
    assert max(scores) - min(scores) < 0.1  # nats, of 16 features


def test_a_huge_batch_is_learned_in_one_go() -> None:
    life = Life(n_components=6)
    codes = torch.arange(10_000) % 3
    pools = [blob(label, 10_000, seed=5) for label in range(3)]
    x = torch.stack(pools)[codes, torch.arange(10_000)]
    life.learn(x, codes)
    assert life.accuracy([0, 1, 2]) > 0.97
    life.boundary()
    assert float(life.components.mass.sum()) == pytest.approx(10_000, rel=1e-4)


# Owners -----------------------------------------------------------------------------------


def test_what_one_class_learns_moves_no_component_of_another() -> None:
    life = Life(n_components=8)
    for index in range(8):
        life.learn(torch.cat([blob(0, 100, index), blob(1, 100, index)]), [0] * 100 + [1] * 100)
    mine = life.components.owner == 0
    before = life.components.select(mine)
    for index in range(8, 12):
        life.learn(blob(1, 100, index), 1)
    assert_identical(by_name(life.components.select(mine)), by_name(before))


def test_frozen_components_stay_bit_for_bit_while_the_next_sub_task_is_learned() -> None:
    life = Life(n_components=100)
    for index in range(8):
        life.learn(blob(0, 30, index), 0)  # few samples, so that the budget has room left
    life.boundary()
    before = life.frozen
    assert len(before) == 30
    for index in range(8):
        life.learn(blob(1, 30, index), 1)
        assert_identical(by_name(life.frozen), by_name(before))
    assert life.accuracy([0, 1]) > 0.97


def test_the_budget_is_shared_equally_by_the_classes_known() -> None:
    life = Life(n_components=10)
    for label in range(3):
        life.learn(blob(label, 600, seed=1), label)
    assert [life.owned_by(label) for label in range(3)] == [4, 3, 3]
    life.boundary()
    life.learn(blob(3, 600, seed=1), 3)
    assert [life.owned_by(label) for label in range(4)] == [3, 3, 2, 2]


def test_unlabelled_samples_get_a_share_by_their_number() -> None:
    life = Life(n_components=20)
    for index in range(10):
        life.learn(blob(0, 90, index), NO_CLASS)
        life.learn(blob(1, 10, index), 0)
    life.boundary()
    assert life.owned_by(NO_CLASS) == pytest.approx(18, abs=1)
    assert 1 <= life.owned_by(0) <= 3
    assert len(life.components) <= 20


@given(
    budget=st.integers(1, 12),
    order=st.lists(
        st.tuples(st.integers(-1, 15), st.sampled_from([1, 3, 30, 120, 600])),
        min_size=1,
        max_size=20,
    ),
    boundaries=st.sets(st.integers(0, 20)),
    window=st.sampled_from([1, 7, 100, 4096]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_neither_the_budget_nor_the_window_is_ever_exceeded(
    budget: int, order: list[tuple[int, int]], boundaries: set[int], window: int
) -> None:
    life = Life(n_components=budget, window=window)
    for index, (label, n) in enumerate(order):
        life.learn(blob(label, n, seed=index), label)
        assert 1 <= len(life.components) <= budget
        assert life.learner.raw_samples(life.state) <= window
        if index in boundaries:
            life.boundary()
            assert len(life.components) <= budget
            assert life.learner.raw_samples(life.state) == 0
    life.boundary()
    assert_finite(life.state)
    assert float(life.components.mass.sum()) == pytest.approx(sum(n for _, n in order), rel=1e-3)


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


def test_a_share_that_shrinks_to_one_component_goes_on_with_the_frozen_one() -> None:
    life = Life(n_components=3)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    life.boundary()
    life.learn(torch.cat([blob(0, 12, 2), blob(1, 8, 2)]), [NO_CLASS] * 12 + [0] * 8)
    assert (life.state.n_frozen, life.state.pool_allowance) == (1, 2)
    for index in range(6):
        life.learn(blob(1, 1000, seed=3 + index), 0)
    life.learn(blob(0, 14, seed=9), NO_CLASS)
    assert (life.state.n_frozen, life.state.pool_allowance) == (0, 1)
    assert life.learner.raw_samples(life.state) == 0
    life.boundary()
    pool = life.components.owner == NO_CLASS
    assert float(life.components.mass[pool].sum()) == pytest.approx(126)


def test_more_classes_than_components_share_them_and_are_told_apart_as_far_as_they_can() -> None:
    life = Life(n_components=6)
    labels = list(range(9))
    for index in range(8):
        x = torch.cat([blob(label, 40, index) for label in labels])
        life.learn(x, torch.arange(9).repeat_interleave(40))
    assert len(life.components) <= 6
    assert life.state.pooled == (5, 6, 7, 8)
    # Five classes keep a component of their own; the others vote on the one they share.
    assert life.accuracy([0, 1, 2, 3, 4]) > 0.95
    shared = life.components.votes[life.components.owner == NO_CLASS]
    assert shared[:, 5:].sum(0).tolist() == pytest.approx([320] * 4, rel=0.05)
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
    assert life.components.owner.tolist() == [0, NO_CLASS]
    shared = life.components.votes[1]
    assert shared.tolist() == pytest.approx([0, 700, 300], rel=0.01)
    assert life.accuracy([0]) > 0.95
    # Whoever belongs to the pool goes on learning there.
    life.learn(blob(1, 600, seed=3), 1)
    assert life.components.votes[1].tolist() == pytest.approx([0, 1300, 300], rel=0.01)


def test_a_single_component_serves_everyone() -> None:
    life = Life(n_components=1)
    for label in (0, 1, NO_CLASS, 2, 0):
        life.learn(blob(label, 200, seed=label + 1), label)
        life.boundary()
        assert len(life.components) == 1
    assert float(life.components.mass.sum()) == pytest.approx(1000, rel=1e-3)
    x = torch.cat([blob(label, 200, seed=label + 1) for label in (0, 1, NO_CLASS, 2, 0)])
    # Not exactly the mean: stepwise EM forgets what was long ago.
    torch.testing.assert_close(life.components.means[0], x.mean(0), atol=0.15, rtol=0)


# Sub-tasks --------------------------------------------------------------------------------


def test_a_boundary_lets_go_of_raw_samples_and_counts_all_that_it_stands_for() -> None:
    life = Life(n_components=10)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(blob(1, 700, seed=1), 1)
    assert life.learner.raw_samples(life.state) == 50
    life.boundary()
    assert life.learner.raw_samples(life.state) == 0
    (replay,) = [replay for replay in life.replays if replay.reason == "boundary"]
    assert replay.samples == 750
    assert replay.mode == "analytic"
    assert life.state.n_frozen == len(life.components) == replay.components_after


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


def test_a_boundary_before_anything_was_learned_replays_nothing() -> None:
    life = Life()
    life.boundary()
    assert life.replays == []


@pytest.mark.parametrize("budget", [2, 3, 12])
def test_classes_that_come_back_in_many_sub_tasks_are_kept(budget: int) -> None:
    life = Life(n_components=budget)
    for sub_task in range(12):
        label = sub_task % 2
        life.learn(blob(label, 700, seed=sub_task), label)
        assert len(life.components) <= budget
        life.boundary()
        assert len(life.components) <= budget
    assert life.accuracy([0, 1]) > 0.97
    assert float(life.components.mass.sum()) == pytest.approx(12 * 700, rel=1e-3)


def test_a_few_samples_before_the_boundary_cost_a_class_none_of_its_components() -> None:
    life = Life(n_components=10)
    life.learn(blob(0, 700, seed=1), 0)
    life.learn(blob(1, 4, seed=1), 1)  # belongs to the next sub-task, but nobody knows yet
    life.boundary()
    life.learn(blob(1, 700, seed=2), 1)
    assert life.owned_by(1) == 5
    assert len(life.components) == 10


def test_a_class_that_comes_back_as_something_else_is_known_by_both_looks() -> None:
    life = Life(n_components=8)
    life.learn(blob(0, 700, seed=1), 0)
    life.learn(blob(1, 700, seed=1), 1)
    life.boundary()
    life.learn(blob(20, 700, seed=1), 0)  # class 0 again, in another place
    life.boundary()
    for seen, expected in ((0, 0), (20, 0), (1, 1)):
        scores = life.learner.score(life.state, blob(seen, 100, seed=7))
        assert scores is not None
        guesses = life.learner.readout(life.state).class_probabilities(scores.joint).argmax(-1)
        assert float((guesses == expected).double().mean()) > 0.97


# Labels and their absence -----------------------------------------------------------------


def test_labels_that_fall_on_unlabelled_components_make_them_a_class() -> None:
    life = Life(n_components=12)
    for index in range(10):
        life.learn(torch.cat([blob(0, 60, index), blob(1, 60, index)]), NO_CLASS)
    life.boundary()
    life.learn(torch.cat([blob(0, 5, 99), blob(1, 5, 99)]), [0] * 5 + [1] * 5)
    pool = life.components.select(life.components.owner == NO_CLASS)
    assert float(pool.votes.sum()) == pytest.approx(10, rel=1e-3)
    near_zero = (pool.means - centre(0)).square().sum(-1) < (pool.means - centre(1)).square().sum(
        -1
    )
    assert torch.equal(pool.votes[:, 0] > pool.votes[:, 1], near_zero)
    assert life.accuracy([0, 1]) > 0.97


def test_labels_vote_even_where_no_scores_were_handed_over() -> None:
    votes = []
    for scored in (True, False):
        life = Life(n_components=12)
        for index in range(8):
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


def test_a_component_on_which_no_label_fell_votes_for_nobody_in_particular() -> None:
    life = Life(n_components=8)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    life.state = life.learner.grow(life.state, 4)
    shares = life.state.mixing.component_classes
    torch.testing.assert_close(shares, torch.full_like(shares, 0.25))


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


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_absurd_changes_of_units_leave_numbers_behind(factor: float) -> None:
    life = Life(n_components=4)
    life.learn(blob(0, WINDOW_PER_OWNER + 40, seed=1), 0)
    life.learn(blob(1, 40, seed=1), 1)
    many = torch.full((N_FEATURES,), factor)
    assert_finite(life.learner.rescale(life.state, many, many))


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


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_no_mean_is_a_sample_though_the_stream_pauses_after_every_batch(n: int) -> None:
    life, seen = Life(n_components=8), []
    life.learn(blob(1, 50, seed=1), 1)
    for index in range(12):
        seen.append(blob(0, n, seed=index))
        life.learn(seen[-1], 0)
        if life.learner.waiting(life.state):
            life.state = life.learner.settle(life.state, life.generator)
        assert nearest(life.state.components, torch.cat(seen)) > 0.003, index
        assert len(life.state.components) <= 8
