"""Tests for the core.drift.sequential.ranks module: ranks among earlier samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.ranks import Ranks, _merge
from core.drift.sequential.scores import BLOCK, LIKELIHOOD_MARGIN_IN_CLASS, N_SCORES, within
from tests.core.scripted_density import frozen_model
from tests.core.signals import Stretch, features

PAIRS = st.tuples(st.integers(0, 3), st.integers(-4, 4))
"""A class and a score."""


def scores_of(pairs: list[tuple[int, int]]) -> Array:
    """Of all kinds: two of all classes together, two within the class, and none at all."""
    rows = [
        [value, -value, within(one, value), within(one, -value), within(one, 0)]
        for one, value in pairs
    ]
    return np.array(rows, dtype=np.float64).T.reshape(N_SCORES, -1)


def shares(earlier: list[int], value: int) -> tuple[float, float]:
    """What the ranks of a value are by their definition."""
    n, below = len(earlier) + 1, sum(other < value for other in earlier)
    return below / n, (below + sum(other == value for other in earlier) + 1) / n


@settings(deadline=None)
@given(
    earlier=st.lists(PAIRS, max_size=40),
    more=st.lists(PAIRS, max_size=20),
    new=st.lists(PAIRS, min_size=1, max_size=10),
)
def test_ranks_count_the_sample_itself_and_its_equals(
    earlier: list[tuple[int, int]], more: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    ranking = Ranks.of(scores_of([]))
    for part in (earlier, more):
        if part:
            ranking = ranking.with_more(scores_of(part))
    known = [*earlier, *more]
    assert len(ranking) == len(known)
    low, high = ranking.ranks(scores_of(new))
    for i, (one, value) in enumerate(new):
        of_all = [other for _, other in known]
        of_class = [other for other_class, other in known if other_class == one]
        for row, one_of, asked in ((0, of_all, value), (2, of_class, value)):
            assert (low[row, i], high[row, i]) == pytest.approx(shares(one_of, asked))
            mirrored = [-other for other in one_of]
            below = shares(mirrored, -asked)
            assert (low[row + 1, i], high[row + 1, i]) == pytest.approx(below)
        # The last are all the same: every rank of a class is as good as any other.
        assert (low[-1, i], high[-1, i]) == (0, 1)


@settings(deadline=None)
@given(
    known=st.lists(st.floats(-1e9, 1e9), max_size=300),
    new=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20),
)
def test_ranks_are_those_of_numpys_search(known: list[float], new: list[float]) -> None:
    ranking = Ranks.of(np.array([known]))
    low, high = ranking.ranks(np.array([new]))
    n = len(known) + 1
    rising = np.sort(known)
    assert (low[0] * n).tolist() == pytest.approx(np.searchsorted(rising, new).tolist())
    ends = np.searchsorted(rising, new, side="right") + 1
    assert (high[0] * n).tolist() == pytest.approx(ends.tolist())


def test_ranks_of_samples_that_do_not_differ_from_earlier_ones_are_uniform() -> None:
    earlier, later = (
        frozen_model(4).score(features([Stretch(4000)], seed)).scores for seed in (0, 1)
    )
    low, high = Ranks.of(earlier).ranks(later)
    assert low[2].tolist() == [0] * 4000  # of one class nothing is told within it
    assert high[2].tolist() == [1] * 4000
    middle = (low[0] + high[0]) / 2
    assert float(middle.mean()) == pytest.approx(0.5, abs=0.02)
    assert np.histogram(middle, 4, (0, 1))[0].tolist() == pytest.approx([1000] * 4, rel=0.12)


def test_only_the_first_scores_may_be_asked_for() -> None:
    scores = scores_of([(0, 1), (1, 2), (1, 3)])
    low, high = Ranks.of(scores).ranks(scores)
    for asked, whole in zip(Ranks.of(scores).ranks(scores[:3]), (low, high), strict=True):
        assert np.array_equal(asked, whole[:3])


def test_scores_that_are_not_in_order_cannot_be_asked_for() -> None:
    scores = scores_of([(0, 1), (1, 2), (1, 3)])
    with pytest.raises(ValueError, match="5 scores, of 4 in order"):
        Ranks.of(scores[:4]).ranks(scores)


def test_more_scores_leave_it_as_it_was() -> None:
    ranking, more = Ranks.of(scores_of([(0, 1), (1, 2)])), scores_of([(2, 3), (0, -1)])
    before = ranking.scores.copy()
    both = ranking.with_more(more)
    assert np.array_equal(ranking.scores, before)
    assert np.array_equal(both.scores, np.sort(np.hstack([before, more])))


@settings(deadline=None)
@given(known=st.lists(PAIRS, max_size=60), more=st.lists(PAIRS, min_size=1, max_size=60))
def test_more_scores_are_put_in_order_whether_or_not_their_places_are_known(
    known: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    ranking, scores = Ranks.of(scores_of(known)), scores_of(more)
    places = ranking.places(scores)
    below = [np.searchsorted(*rows) for rows in zip(ranking.scores, scores, strict=True)]
    assert np.array_equal(places, below)
    expected = np.sort(np.hstack([ranking.scores, scores]))
    assert np.array_equal(ranking.with_more(scores).scores, expected)
    assert np.array_equal(ranking.with_more(scores, places).scores, expected)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_places_that_there_are_not_are_refused(wrong: int) -> None:
    """A damaged state may hold some, and the loop that merges writes where it is told to."""
    ranking, more = Ranks.of(scores_of([(0, 1), (1, 2)])), scores_of([(2, 3), (0, -1)])
    places = ranking.places(more)
    places[0, 0] = wrong
    with pytest.raises(ValueError, match="places that there are not"):
        ranking.with_more(more, places)


@pytest.mark.parametrize("away", [0.0, 0.5, 100.0])
def test_many_scores_that_lie_side_by_side_are_sorted(
    away: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To let each of them pass the others would take long; where they lie apart none has to."""
    sorted_in = []

    def merge(merged: Array, known: Array, more: Array) -> None:
        sorted_in.append(more)
        _merge(merged, known, more)

    monkeypatch.setattr("core.drift.sequential.ranks._merge", merge)
    random = np.random.default_rng(0)
    ranking = Ranks.of(random.normal(size=(2, 3000)))
    more = random.normal(size=(2, 2000)) * (0.001 if away else 1) + away
    expected = np.sort(np.hstack([ranking.scores, more]))
    assert np.array_equal(ranking.with_more(more).scores, expected)
    assert len(sorted_in) == (away > 0)


@pytest.mark.parametrize("damage", [math.nan, math.inf, -BLOCK, 1e300])
def test_scores_of_a_damaged_state_are_refused(damage: float) -> None:
    scores = np.sort(scores_of([(0, 1), (0, 2), (1, 3)]))
    scores[LIKELIHOOD_MARGIN_IN_CLASS, -1] = damage
    with pytest.raises(ValueError, match="of no class"):
        Ranks(scores).ranks(scores_of([(0, 1)]))
