"""What every learner of components that belong to classes must do, whatever the family."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.owned import NO_CLASS
from core.model.sampling import draw
from tests.core.learners.per_class.lives import Life, nearest, sheet
from tests.core.lives import by_name
from tests.core.states import assert_finite, assert_identical, tensors_of
from tests.core.streams import N_FEATURES, blob, centre

pytestmark = pytest.mark.parametrize("preset", ["mfa", "flat"])


def test_nothing_is_known_before_anything_is_learned(preset: str) -> None:
    life = Life(preset)
    assert life.learner.model(life.state) is None
    assert life.learner.score(life.state, blob(0, 3, 1)) is None
    assert life.learner.n_components(life.state) == life.held == 0
    assert life.learner.without_raw(life.state).groups == ()


def test_it_answers_from_the_first_sample_on_without_storing_it(preset: str) -> None:
    life = Life(preset)
    x = blob(3, 1, seed=1)
    life.learn(x, 0)
    assert life.learner.model(life.state) is not None
    assert life.components.mass.tolist() == [1]
    assert nearest(life.components, x) > 0.01


def test_scores_that_are_at_hand_give_the_same_as_scores_worked_out_again(preset: str) -> None:
    with_scores, without = (
        Life(preset, n_components=9, window=150),
        Life(preset, n_components=9, window=150),
    )
    for index in range(12):
        x = torch.cat([blob(label, 30, index) for label in (0, 1, 2)])
        codes = [0] * 30 + [1] * 30 + [NO_CLASS] * 30
        with_scores.learn(x, codes, scored=True)
        without.learn(x, codes, scored=False)
        if index == 6:
            with_scores.boundary()
            without.boundary()
    assert_identical(with_scores.state, without.state)


def test_a_huge_batch_is_learned_in_one_go(preset: str) -> None:
    life = Life(preset, n_components=6)
    codes = torch.arange(10_000) % 3
    pools = [blob(label, 10_000, seed=5) for label in range(3)]
    life.learn(torch.stack(pools)[codes, torch.arange(10_000)], codes)
    assert life.accuracy([0, 1, 2]) > 0.97
    assert life.held < 4096
    life.boundary()
    assert life.mass == pytest.approx(10_000, rel=1e-4)


def test_what_one_class_learns_moves_no_component_of_another(preset: str) -> None:
    life = Life(preset, n_components=8, window=300)
    for index in range(4):
        life.learn(torch.cat([blob(0, 100, index), blob(1, 100, index)]), [0] * 100 + [1] * 100)
    life.learn(blob(1, 300, 8), 1)  # what was held of class 0 is learned by now
    before = life.components.select(life.components.owner == 0)
    for index in range(9, 13):
        life.learn(blob(1, 100, index), 1)
        now = life.components.select(life.components.owner == 0)
        assert_identical(by_name(now), by_name(before))


def test_the_budget_is_shared_equally_by_the_classes_known(preset: str) -> None:
    life = Life(preset, n_components=10)
    rng = torch.Generator().manual_seed(0)
    for label in range(3):  # so spread out that each class uses all that it may have
        life.learn(torch.rand(600, N_FEATURES, generator=rng) + label, label)
    assert [life.owned_by(label) for label in range(3)] == [4, 3, 3]
    life.boundary()
    life.learn(torch.rand(600, N_FEATURES, generator=rng) + 3, 3)
    assert [life.owned_by(label) for label in range(4)] == [3, 3, 2, 2]


def test_unlabelled_samples_get_a_share_by_their_number(preset: str) -> None:
    life = Life(preset, n_components=20)
    rng = torch.Generator().manual_seed(0)
    for _ in range(10):
        life.learn(torch.rand(100, N_FEATURES, generator=rng), [NO_CLASS] * 90 + [0] * 10)
    life.boundary()
    assert life.owned_by(NO_CLASS) == pytest.approx(18, abs=1)
    assert 1 <= life.owned_by(0) <= 3
    assert len(life.components) <= 20


def test_a_share_that_shrinks_to_one_component_goes_on_with_the_frozen_one(preset: str) -> None:
    life = Life(preset, n_components=3)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    life.boundary()
    life.learn(torch.cat([blob(0, 12, 2), blob(1, 8, 2)]), [NO_CLASS] * 12 + [0] * 8)
    assert (len(life.state.earlier), life.state.pool_allowance) == (1, 2)
    for index in range(6):
        life.learn(blob(1, 1000, seed=3 + index), 0)
    life.learn(blob(0, 14, seed=9), NO_CLASS)
    assert (len(life.state.earlier), life.state.pool_allowance) == (0, 1)
    assert life.group_of(NO_CLASS).held == 0
    life.boundary()
    pool = life.components.owner == NO_CLASS
    assert float(life.components.mass[pool].sum()) == pytest.approx(126)
    # What was gone on with is of the newest sub-task.
    assert life.state.sub_tasks_of == {NO_CLASS: 1, 0: 1}


def test_more_classes_than_components_share_them_and_are_told_apart_as_far_as_they_can(
    preset: str,
) -> None:
    life = Life(preset, n_components=6)
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


def test_the_pool_takes_the_smallest_class_in_when_the_last_place_is_needed(preset: str) -> None:
    life = Life(preset, n_components=2)
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


def test_a_single_component_serves_everyone(preset: str) -> None:
    life = Life(preset, n_components=1)
    for label in (0, 1, NO_CLASS, 2, 0):
        life.learn(blob(label, 200, seed=label + 1), label)
        life.boundary()
        assert len(life.components) == 1
    assert life.mass == pytest.approx(1000, rel=1e-3)
    x = torch.cat([blob(label, 200, seed=label + 1) for label in (0, 1, NO_CLASS, 2, 0)])
    torch.testing.assert_close(life.components.means[0], x.mean(0), atol=0.1, rtol=0)


def test_a_boundary_lets_go_of_raw_samples_and_counts_all_that_it_stands_for(preset: str) -> None:
    life = Life(preset, n_components=10)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(blob(1, 700, seed=1), 1)
    assert 0 < life.held <= 750
    life.boundary()
    assert life.held == 0
    assert life.state.groups == ()
    (replay,) = [replay for replay in life.replays if replay.reason == "boundary"]
    assert (replay.mode, replay.samples) == ("analytic", 750)
    assert len(life.state.earlier) == len(life.components) == replay.components_after


def test_a_boundary_before_anything_was_learned_replays_nothing(preset: str) -> None:
    life = Life(preset)
    life.boundary()
    assert life.replays == []


@pytest.mark.parametrize("budget", [2, 6])
def test_classes_that_come_back_in_many_sub_tasks_are_kept(preset: str, budget: int) -> None:
    life = Life(preset, n_components=budget)
    for sub_task in range(10):
        label = sub_task % 2
        life.learn(sheet(label, 300, seed=sub_task), label)
        assert len(life.components) <= budget
        life.boundary()
        assert len(life.components) <= budget
    for label in (0, 1):
        assert float((life.guesses(sheet(label, 100, 99)) == label).double().mean()) > 0.97
    assert life.mass == pytest.approx(3000, rel=1e-3)


def test_a_few_samples_before_the_boundary_cost_a_class_none_of_its_components(preset: str) -> None:
    life = Life(preset, n_components=10)
    generator = torch.Generator().manual_seed(0)
    life.learn(torch.rand(700, N_FEATURES, generator=generator), 0)
    # These belong to the next sub-task, but nobody knows yet.
    life.learn(torch.rand(4, N_FEATURES, generator=generator) + 1, 1)
    life.boundary()
    life.learn(torch.rand(700, N_FEATURES, generator=generator) + 1, 1)
    assert life.owned_by(1) == 5
    assert len(life.components) == 10


def test_a_class_that_comes_back_as_something_else_is_known_by_both_looks(preset: str) -> None:
    life = Life(preset, n_components=8)
    life.learn(torch.cat([blob(0, 400, 1), blob(1, 400, 1)]), [0] * 400 + [1] * 400)
    life.boundary()
    life.learn(blob(20, 400, seed=1), 0)  # class 0 again, in another place
    life.boundary()
    for seen, expected in ((0, 0), (20, 0), (1, 1)):
        assert float((life.guesses(blob(seen, 100, 7)) == expected).double().mean()) > 0.97


def test_labels_that_fall_on_unlabelled_components_make_them_a_class(preset: str) -> None:
    life = Life(preset, n_components=12)
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


def test_labels_vote_even_where_no_scores_were_handed_over(preset: str) -> None:
    votes = []
    for scored in (True, False):
        life = Life(preset, n_components=12)
        for index in range(4):
            life.learn(blob(0, 100, index), NO_CLASS)
        life.boundary()
        life.learn(blob(0, 9, 99), 0, scored=scored)
        pool = life.components.owner == NO_CLASS
        votes.append(float(life.components.votes[pool].sum()))
    assert votes == pytest.approx([9, 9])


def test_without_any_label_there_are_no_classes_but_a_density(preset: str) -> None:
    life = Life(preset, n_components=4)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    model = life.learner.model(life.state)
    assert model is not None
    assert model.n_classes == 0
    scores = life.learner.score(life.state, blob(0, 5, seed=2))
    assert scores is not None
    assert life.learner.readout(life.state).class_probabilities(scores.joint).shape == (5, 0)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_absurd_changes_of_units_leave_numbers_behind(preset: str, factor: float) -> None:
    life = Life(preset, n_components=4, window=200)
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


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_no_mean_is_a_sample_though_the_stream_pauses_after_every_batch(
    preset: str, n: int
) -> None:
    life = Life(preset, n_components=8, window=60)
    seen = []
    life.learn(blob(1, 50, seed=1), 1)
    for index in range(12):
        seen.append(blob(0, n, seed=index))
        life.learn(seen[-1], 0)
        life.settle()
        bare = life.learner.without_raw(life.state).components
        for components in (life.components, bare):
            assert nearest(components, torch.cat(seen)) > 0.005, index


def test_frozen_components_stay_bit_for_bit_while_the_budget_is_not_reached(preset: str) -> None:
    life = Life(preset, n_components=400)
    life.learn(torch.cat([sheet(0, 400, 1), sheet(1, 400, 1)]), [0] * 400 + [1] * 400)
    life.boundary()
    before = life.state.earlier
    assert len(before) > 2
    for label in (2, 3, 0):
        for index in range(4):
            life.learn(sheet(label, 50, index), label)
            now = life.state.earlier
            assert_identical(by_name(now.select(torch.arange(len(before)))), by_name(before))
        life.boundary()
    now = life.state.earlier
    assert_identical(by_name(now.select(torch.arange(len(before)))), by_name(before))
    assert len(now) > len(before) + 2


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
@settings(max_examples=20, deadline=None, derandomize=True)
def test_neither_the_budget_nor_the_window_is_ever_exceeded_and_every_sample_counts(
    preset: str,
    budget: int,
    order: list[tuple[int, int]],
    boundaries: set[int],
    window: int,
    n_factors: int,
) -> None:
    life = Life(preset, n_components=budget, window=window, n_factors=n_factors)
    order = [(label, min(n, 20 * window)) for label, n in order]  # windows filled 20 times at most
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


@pytest.mark.parametrize("labelled", [True, False])
def test_batches_of_ten_and_of_a_thousand_teach_the_same(preset: str, labelled: bool) -> None:
    # What each family can describe; stepwise EM takes longer to forget its start.
    drawn, n = {"mfa": (sheet, 1500), "flat": (blob, 3000)}[preset]
    x = torch.stack([drawn(0, n, seed=1), drawn(1, n, seed=2)], 1).reshape(2 * n, -1)
    codes = torch.tensor([0, 1] * n) if labelled else torch.full((2 * n,), -1)
    held_out = torch.cat([drawn(0, 500, seed=9), drawn(1, 500, seed=9)])
    scores = []
    for size in (10, 1000):
        life = Life(preset, n_components=8)
        for part, part_codes in zip(x.split(size), codes.split(size), strict=True):
            life.learn(part, part_codes)
        life.boundary()
        scores.append(life.log_likelihood(held_out))
    assert abs(scores[1] - scores[0]) < 0.1  # nats, of 16 features


def test_more_classes_change_no_score_and_nothing_of_it_is_worked_out_again(preset: str) -> None:
    life = Life(preset, n_components=9)
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
    assert [id(bank.form) for bank in grown.banks] == [id(bank.form) for bank in life.state.banks]
    assert grown.partition == life.state.partition
    probabilities = life.learner.readout(grown).class_probabilities(after.joint)
    assert probabilities.shape == (30, 7)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(30))


def test_samples_of_a_class_are_read_back_as_that_class(preset: str) -> None:
    life = Life(preset, n_components=20, n_factors=2)
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
        assert life.log_likelihood(x) > life.log_likelihood(sheet(9, 100, 1)) + 10


def test_what_is_served_is_what_was_learned(preset: str) -> None:
    life = Life(preset, n_components=9)
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


def test_every_change_of_components_changes_the_partition_and_nothing_else_does(
    preset: str,
) -> None:
    life = Life(preset, n_components=7, window=300)
    changes = 0
    for index in range(30):
        before = life.state
        known = before.components
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


def test_the_same_seed_gives_the_same_life_bit_for_bit(preset: str) -> None:
    lives = [Life(preset, n_components=9, window=200, seed=seed) for seed in (5, 5, 6)]
    for life in lives:
        torch.rand(7)  # nobody looks at the generator of everybody else
        for index in range(8):
            life.learn(torch.cat([blob(0, 40, index), blob(1, 40, index)]), [0] * 40 + [-1] * 40)
        life.boundary()
        life.learn(blob(2, 100, 1), 2)
    assert_identical(lives[0].state, lives[1].state)
    assert not torch.equal(lives[0].components.means, lives[2].components.means)


def test_a_state_that_was_given_is_not_changed_by_learning_from_it(preset: str) -> None:
    life = Life(preset, n_components=5, window=100)
    life.learn(torch.cat([blob(0, 90, 1), blob(1, 90, 1)]), [0] * 90 + [NO_CLASS] * 90)
    life.boundary()
    life.learn(torch.cat([blob(0, 90, 2), blob(1, 90, 2)]), [0] * 90 + [NO_CLASS] * 90)
    kept, copies = life.state, [tensor.clone() for tensor in tensors_of(life.state)]
    life.learn(torch.cat([blob(2, 90, 3), blob(1, 190, 3)]), [2] * 90 + [NO_CLASS] * 190)
    life.boundary()
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(kept), copies, strict=True))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("window", [1, 2, 4096])
def test_no_mean_is_a_sample_however_few_there_are(preset: str, n: int, window: int) -> None:
    x = torch.cat([blob(0, n, seed=1), blob(1, n, seed=1)])
    life = Life(preset, n_components=8, window=window)
    life.learn(blob(2, 50, seed=1), 2)
    life.learn(x, [0] * n + [1] * n)
    assert nearest(life.components, x) > 0.005
    life.boundary()
    assert nearest(life.components, x) > 0.005


def test_classes_are_sampled_within_their_budget_after_it_was_reached(preset: str) -> None:
    life = Life(preset, n_components=6, n_factors=2)
    for label in range(6):
        life.learn(sheet(label, 200, seed=1), label)
        life.boundary()
    model = life.learner.model(life.state)
    assert model is not None
    drawn = draw(model, 300, life.generator, torch.arange(6).repeat(50))
    assert float((life.guesses(drawn.x) == drawn.codes).double().mean()) > 0.97


def test_a_component_on_which_no_label_fell_votes_for_nobody_in_particular(preset: str) -> None:
    life = Life(preset, n_components=8)
    life.learn(blob(0, 100, seed=1), NO_CLASS)
    life.state = life.learner.grow(life.state, 4)
    shares = life.state.component_classes
    torch.testing.assert_close(shares, torch.full_like(shares, 0.25))


@pytest.mark.parametrize("times", [1, 3, 9])
def test_no_mean_is_a_sample_that_was_sent_several_times(preset: str, times: int) -> None:
    x = blob(1, 1, seed=1)
    life = Life(preset, n_components=8)
    life.learn(blob(0, 50, seed=1), 0)
    life.learn(x.repeat(times, 1), 1)
    life.learn(torch.cat([blob(2, 100, 1), x.repeat(times, 1)]), 2)
    assert nearest(life.components, x) > 0.005
    life.boundary()
    assert nearest(life.components, x) > 0.005
