"""Tests for the core.drift.reference module: what later samples are compared with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.drift.reference import HEIGHTS, Reference, Summary
from core.drift.sentinel import Sighting
from core.drift.sequential import BOOK
from tests.core.scripted_density import sentinel
from tests.core.signals import Stretch, features
from tests.core.states import assert_identical

WATCHER = sentinel(4)
N_RANKS = len(BOOK.ranks)


def sees(x: Tensor) -> Sighting:
    return WATCHER.sees(x)


def reference(n: int = 1000, seed: int = 0) -> Reference:
    return Reference.of(WATCHER, sees(features([Stretch(n)], seed)), BOOK)


def sticky(n: int, length: int, seed: int = 0) -> Tensor:
    """Samples in runs: as likely as each other, and of one component."""
    return features([Stretch(n // length)], seed).repeat_interleave(length, 0)


# Ranks ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    earlier=st.lists(st.integers(-3, 3), min_size=4, max_size=40),
    new=st.lists(st.integers(-4, 4), min_size=1, max_size=10),
)
def test_ranks_count_the_sample_itself_and_its_equals(earlier: list[int], new: list[int]) -> None:
    rows = torch.tensor([[value, 0] for value in earlier]).float()
    low, high = Reference.of(WATCHER, sees(rows), BOOK).ranks(torch.tensor(new).double())
    n = len(earlier) + 1
    for value, begin, end in zip(new, low.tolist(), high.tolist(), strict=True):
        assert begin == pytest.approx(sum(other < value for other in earlier) / n)
        assert end == pytest.approx((sum(other <= value for other in earlier) + 1) / n)


def test_ranks_of_samples_that_do_not_differ_from_earlier_ones_are_uniform() -> None:
    low, high = reference(4000).ranks(sees(features([Stretch(4000)], 1)).log_likelihoods)
    middle = (low + high) / 2
    assert float(middle.mean()) == pytest.approx(0.5, abs=0.02)
    assert np.histogram(middle, 4, (0, 1))[0].tolist() == pytest.approx([1000] * 4, rel=0.12)


def test_a_summary_says_what_the_paper_calls_inliers() -> None:
    summary = Summary.of(torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
    assert summary.mean == 2.5
    assert summary.limit == pytest.approx(2.5 - math.sqrt(1.25))
    assert summary.inlier_rate == 0.75
    assert Summary.of(torch.tensor([7.0])) == Summary(7, 7, 1)


# What is counted --------------------------------------------------------------------------


def test_every_sample_falls_into_one_cell_of_each_division() -> None:
    counts = reference(1000).counts
    # Components, one class times heights, heights.
    assert [float(part.sum()) for part in counts.split([4, HEIGHTS, HEIGHTS])] == [1000] * 3
    assert counts[:4].tolist() == pytest.approx([250] * 4, rel=0.2)
    by_class = sentinel(4, classes=[0, 1, 1, 2])
    x = features([Stretch(1000)])
    counts = Reference.of(by_class, by_class.sees(x), BOOK).counts
    classes = counts[4 : 4 + 3 * HEIGHTS].reshape(3, HEIGHTS).sum(1)
    wins = torch.bincount(x[:, 1].long())
    assert classes.tolist() == [wins[0], wins[1] + wins[2], wins[3]]


def test_what_was_betted_on_counts_as_earlier_afterwards() -> None:
    before = reference(1000)
    x = features([Stretch(300, mean=-9)], 1)
    after, gains = before.weighed(WATCHER, sees(x), BOOK)
    assert gains.shape == (len(BOOK), 300)
    assert bool(gains.isfinite().all())
    assert len(after) == 1300
    assert float(after.counts.sum() - before.counts.sum()) == 3 * 300
    # The same again is not as strange any more.
    _, again = after.weighed(WATCHER, sees(x), BOOK)
    assert float(again[0].mean()) < float(gains[0].mean()) - 1


def test_the_last_samples_fade_and_bets_follow_what_they_preferred() -> None:
    now = reference(1000)
    one_component = features([Stretch(400, shares=(0, 0, 0, 1.0))], 2)
    after, gains = now.weighed(WATCHER, sees(one_component), BOOK)
    by_component = gains[N_RANKS]
    assert float(by_component[:10].mean()) < 0.3  # not yet known what is preferred
    assert float(by_component[100:].mean()) > 0.5
    share = after.recent[0, 3] / after.recent[0, :4].sum()
    assert float(share) > 0.95
    assert float(after.recent[0, :4].sum()) < 100
    assert float(after.recent[1, :4].sum()) < 900


def test_the_state_that_it_is_given_is_not_changed() -> None:
    now = reference(600)
    kept = {name: tensor.clone() for name, tensor in vars(now).items() if name != "summary"}
    one, gains = now.weighed(WATCHER, sees(features([Stretch(700, mean=-2)], 5)), BOOK)
    other, same = now.weighed(WATCHER, sees(features([Stretch(700, mean=-2)], 5)), BOOK)
    assert torch.equal(gains, same)
    assert_identical(one.scores, other.scores)
    assert len(kept) > 5
    for name, tensor in kept.items():
        assert torch.equal(getattr(now, name), tensor), name


def test_scores_are_sorted_in_once_there_are_enough_of_them() -> None:
    now = reference(1600)
    for n in (50, 40):
        now, _ = now.weighed(WATCHER, sees(features([Stretch(n)], n)), BOOK)
    assert (len(now.scores), len(now.waiting)) == (1600, 90)
    now, _ = now.weighed(WATCHER, sees(features([Stretch(20)], 9)), BOOK)
    assert (len(now.scores), len(now.waiting)) == (1710, 0)
    assert torch.equal(now.scores, now.scores.sort().values)
    assert len(now) == 1710


def test_scores_known_earlier_can_be_taken_back() -> None:
    before = reference(1000)
    after, _ = before.weighed(WATCHER, sees(features([Stretch(500, mean=-5)], 1)), BOOK)
    back = after.with_scores_of(before)
    assert_identical(back.scores, before.scores)
    assert len(back.waiting) == 0
    assert_identical(back.counts, after.counts)
    assert back.summary == before.summary != after.summary


# Fair bets --------------------------------------------------------------------------------


def test_while_nothing_changes_no_bet_gains_on_average() -> None:
    now = reference(1000, seed=3)
    _, gains = now.weighed(WATCHER, sees(features([Stretch(20_000)], 4)), BOOK)
    means = gains.exp().mean(1)
    errors = gains.exp().std(1) / math.sqrt(20_000)
    # A reference of a thousand is itself an estimate, so that a little is left over.
    assert bool((means < 1.1 + 4 * errors).all()), means
    assert bool((gains.mean(1) < 0).all())


# Samples that depend on each other --------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_of_independent_samples_nothing_is_taken_off(seed: int) -> None:
    now = reference(1000, seed)
    assert now.pace.tolist() == [1.0] * len(BOOK)
    assert float(now.drift.max()) < 0.02
    assert int((now.drift == 0).sum()) >= len(BOOK) - 1
    assert now.worth == 1000


def test_where_cells_differ_in_size_nothing_is_taken_off_either() -> None:
    """It is not the shares that a reference begins with which the first bets are on."""
    x = features([Stretch(2000, shares=(0.9, 0.05, 0.04, 0.01))])
    assert float(Reference.of(WATCHER, sees(x), BOOK).drift.max()) < 0.02


@pytest.mark.parametrize("length", [5, 20])
def test_samples_in_runs_are_worth_as_many_less(length: int) -> None:
    now = Reference.of(WATCHER, sees(sticky(3000, length)), BOOK)
    assert bool((now.pace >= 1).all())
    assert float(now.pace[:N_RANKS].max()) == pytest.approx(length, rel=0.7)
    assert now.worth < 3000 / 2


def test_gains_of_samples_in_runs_are_taken_off_and_stretched() -> None:
    now = Reference.of(WATCHER, sees(sticky(3000, 20)), BOOK)
    plain = replace(now, drift=now.drift * 0, pace=now.pace * 0 + 1)
    later = sees(sticky(400, 20, seed=1))
    _, gains = now.weighed(WATCHER, later, BOOK)
    _, full = plain.weighed(WATCHER, later, BOOK)
    torch.testing.assert_close(gains, (full - now.drift[:, None]) / now.pace[:, None])
    # Runs of one component win nothing once it is known that they are usual.
    assert float(gains[N_RANKS].sum()) < 5 < float(full[N_RANKS].sum())


def test_too_few_samples_say_nothing_of_dependence() -> None:
    now = Reference.of(WATCHER, sees(sticky(60, 10)), BOOK)
    assert now.pace.tolist() == [1.0] * len(BOOK)


def test_equal_scores_are_no_trouble() -> None:
    rows = torch.zeros(500, 2)
    now = Reference.of(WATCHER, sees(rows), BOOK)
    _, gains = now.weighed(WATCHER, sees(rows), BOOK)
    assert bool(gains.isfinite().all())
    assert float(gains.abs().max()) < 0.5
