"""Tests for the core.drift.sequential.reference module: what later samples are compared with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable
from core.drift.sequential.counts import RANK_BINS
from core.drift.sequential.dependence import CLOSED, Dependence
from core.drift.sequential.evidence import Evidence
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.monitor import Monitor
from core.drift.sequential.ranks import Ranks
from core.drift.sequential.reference import Reference
from core.drift.sequential.reference_scores import MOST_PARTS, ReferenceScores, Summary
from core.drift.sequential.scores import (
    LIKELIHOOD_IN_CLASS,
    N_SCORES,
    OVERALL,
    RANKED,
    FrozenScores,
)
from core.drift.sequential.signals import BET_TABLE
from tests.core.evidence_path import added
from tests.core.scripted_density import frozen_model
from tests.core.signals import Stretch, features

FROZEN = frozen_model(4)
N_RANKS = len(BET_TABLE.ranks)
NONE = np.zeros((N_SCORES, 0))
ON_RANKS, ON_CELLS, ON_LABELS, ON_FEATURES = (
    np.isin(np.arange(len(BET_TABLE)), np.arange(len(BET_TABLE))[place])
    for place in BET_TABLE.places
)
OPEN = ~BET_TABLE.on_scores(range(OVERALL, N_SCORES)) & ~ON_LABELS & ~ON_FEATURES
"""Without classes nothing is told within them, without labels nothing of these, and scripted
components have no features."""


def scored(x: Tensor) -> FrozenScores:
    return FROZEN.score(x)


def reference(n: int = 1000, seed: int = 0) -> Reference:
    return Reference.of(FROZEN, scored(features([Stretch(n)], seed)), BET_TABLE)


def updated(
    known: Reference, frozen: FrozenModel, seen: FrozenScores, bet_table: BetTable, suspected: Array
) -> tuple[Reference, Array]:
    """The reference with samples more, and e-values, with shape (J, N)."""
    none, earlier = Evidence.none(len(bet_table)), known.scores.ranking_with(suspected)
    after = Monitor(frozen, known).updated(seen, bet_table, suspected, none, none.totals)
    _, e_values = known.counts.betted_on(frozen, seen, earlier, known.dependence, bet_table)
    return after.watch.reference, e_values


def sticky(n: int, length: int, seed: int = 0) -> Tensor:
    """Samples in runs: as likely as each other, and of one component."""
    return features([Stretch(n // length)], seed).repeat_interleave(length, 0)


# What is known ----------------------------------------------------------------------------


def test_a_summary_says_what_the_paper_calls_inliers() -> None:
    summary = Summary.of(np.array([1.0, 2.0, 3.0, 4.0]))
    assert summary.mean == 2.5
    assert summary.limit == pytest.approx(2.5 - math.sqrt(1.25))
    assert summary.inlier_rate == 0.75
    assert Summary.of(np.array([7.0])) == Summary(7, 7, 1)


def test_samples_are_ranked_among_those_suspected_which_are_no_part_of_it_yet() -> None:
    now = reference(500)
    suspected = scored(features([Stretch(300, mean=-2)], 1)).scores
    later = scored(features([Stretch(100)], 2))
    after, e_values = updated(now, FROZEN, later, BET_TABLE, suspected)
    both = now.with_more(suspected)
    assert len(both.scores.ranking) == 800
    low, high = both.ranks(later.scores)
    ranks = now.scores.ranking_with(suspected).ranks(later.scores[:RANKED])
    assert [values.tolist() for values in ranks] == [low[:RANKED].tolist(), high[:RANKED].tolist()]
    # What looks low beside the reference alone is less so beside what came before it.
    _, alone = updated(now, FROZEN, later, BET_TABLE, NONE)
    assert not np.array_equal(e_values[OPEN], alone[OPEN])
    assert len(after) == 600


# What is counted --------------------------------------------------------------------------


def test_every_sample_falls_into_one_cell_of_each_division() -> None:
    counts = reference(1000).counts.cell_counts.counts
    # Components, one class times cusums, cusums.
    assert [float(part.sum()) for part in np.split(counts, [4, 4 + RANK_BINS])] == [1000] * 3
    assert counts[:4].tolist() == pytest.approx([250] * 4, rel=0.2)
    by_class = frozen_model(4, classes=[0, 1, 1, 2])
    x = features([Stretch(1000)])
    counts = Reference.of(by_class, by_class.score(x), BET_TABLE).counts.cell_counts.counts
    classes = counts[4 : 4 + 3 * RANK_BINS].reshape(3, RANK_BINS).sum(1)
    wins = torch.bincount(x[:, 1].long())
    assert classes.tolist() == [wins[0], wins[1] + wins[2], wins[3]]


def test_what_was_betted_on_counts_as_earlier_afterwards() -> None:
    before = reference(1000)
    x = features([Stretch(300, mean=-9)], 1)
    after, e_values = updated(before, FROZEN, scored(x), BET_TABLE, NONE)
    assert e_values.shape == (len(BET_TABLE), 300)
    assert np.isfinite(e_values).all()
    assert len(after) == 1300
    assert (
        float(after.counts.cell_counts.counts.sum() - before.counts.cell_counts.counts.sum())
        == 3 * 300
    )
    # The same again is not as strange any more.
    _, again = updated(after, FROZEN, scored(x), BET_TABLE, NONE)
    assert np.log(again[0]).mean() < np.log(e_values[0]).mean() - 1


def test_the_last_samples_fade_and_bets_follow_what_they_preferred() -> None:
    now = reference(1000)
    one_component = features([Stretch(400, shares=(0, 0, 0, 1.0))], 2)
    after, e_values = updated(now, FROZEN, scored(one_component), BET_TABLE, NONE)
    by_component = np.log(e_values[N_RANKS])
    assert float(by_component[:10].mean()) < 0.3  # not yet known what is preferred
    assert float(by_component[100:].mean()) > 0.5
    recent = after.counts.cell_counts.recent
    assert float(recent[0, 3] / recent[0, :4].sum()) > 0.95
    assert float(recent[0, :4].sum()) < 100
    assert float(recent[1, :4].sum()) < 900


def test_the_state_that_it_is_given_is_not_changed() -> None:
    now = reference(600)
    parts = [now.scores.ranking, now.dependence, now.counts]
    arrays = [one for part in parts for one in vars(part).values() if isinstance(one, np.ndarray)]
    kept = [one.copy() for one in arrays]
    one, e_values = updated(
        now, FROZEN, scored(features([Stretch(700, mean=-2)], 5)), BET_TABLE, NONE
    )
    other, same = updated(
        now, FROZEN, scored(features([Stretch(700, mean=-2)], 5)), BET_TABLE, NONE
    )
    assert np.array_equal(e_values, same)
    assert np.array_equal(one.scores.ranking.scores, other.scores.ranking.scores)
    assert len(kept) == 8
    for array, before in zip(arrays, kept, strict=True):
        assert np.array_equal(array, before)


def test_scores_are_sorted_in_once_there_are_enough_of_them() -> None:
    now = reference(1600)
    for n in (100, 90):
        now, _ = updated(now, FROZEN, scored(features([Stretch(n)], n)), BET_TABLE, NONE)
    assert (len(now.scores.ranking), now.scores.n_unsorted) == (1600, 190)
    now, _ = updated(now, FROZEN, scored(features([Stretch(20)], 9)), BET_TABLE, NONE)
    assert (len(now.scores.ranking), now.scores.n_unsorted) == (1810, 0)
    assert np.array_equal(now.scores.ranking.scores, np.sort(now.scores.ranking.scores))
    assert len(now) == 1810


def test_scores_that_nobody_bets_on_are_ranked_when_that_is_asked_for() -> None:
    rows = torch.cat([features([Stretch(2000)]), torch.rand(2000, 1) * 9], 1)
    scores = frozen_model(4, classes=[0, 1, 2, 3], n_features=3).score(rows).scores
    first, few, many, later = np.split(scores, [1600, 1640, 1900], axis=1)
    earlier = ReferenceScores.of(first).with_more(few)
    assert earlier.ranking.scores.shape == (RANKED, 1600)
    # Those that wait are not among them yet.
    for among, now in ((first, earlier), (scores[:, :1900], earlier.with_more(many))):
        low, high = now.ranks(later)
        for said, expected in zip((low, high), Ranks.of(among).ranks(later), strict=True):
            assert np.array_equal(said, expected)
    assert 0 < high[LIKELIHOOD_IN_CLASS].min() < high[LIKELIHOOD_IN_CLASS].max() < 1


def test_however_small_the_batches_only_so_many_wait_side_by_side() -> None:
    one, at_once = reference(1600), reference(1600)
    rows = features([Stretch(150)], 1)
    for row in rows.split(1):
        one = one.with_more(scored(row).scores)
        assert len(one.scores.unsorted) <= MOST_PARTS
    assert one.scores.n_unsorted == 150
    later = scored(features([Stretch(80)], 2)).scores
    one, at_once = one.with_more(later), at_once.with_more(np.hstack([scored(rows).scores, later]))
    assert np.array_equal(one.scores.ranking.scores, at_once.scores.ranking.scores)


def test_scores_known_earlier_can_be_taken_back() -> None:
    before = reference(1000)
    after, _ = updated(
        before, FROZEN, scored(features([Stretch(500, mean=-5)], 1)), BET_TABLE, NONE
    )
    back = after.with_scores_of(before)
    assert back.scores.ranking is before.scores.ranking
    assert back.scores.n_unsorted == 0
    assert back.counts is after.counts
    assert back.scores.summary == before.scores.summary != after.scores.summary


def test_once_shares_have_changed_only_ranks_within_classes_are_betted_on() -> None:
    rows = torch.cat([features([Stretch(1000)]), torch.rand(1000, 1) * 9], 1)
    classes = frozen_model(4, classes=[0, 1, 2, 3], n_features=3)
    now = Reference.of(classes, classes.score(rows, rows[:, 1].long()), BET_TABLE)
    renewed = now.with_new_shares(BET_TABLE)
    assert not now.outdated
    assert renewed.outdated
    closed = BET_TABLE.on_scores(range(OVERALL)) | ON_FEATURES
    assert 0 < (closed & ON_RANKS).sum() < N_RANKS
    assert np.array_equal(renewed.dependence.log_bias >= CLOSED, closed)
    assert np.array_equal(renewed.dependence.weights > 0, ~closed)
    assert renewed.dependence.weights.sum() == pytest.approx(1)
    _, e_values = updated(renewed, classes, classes.score(rows[:50]), BET_TABLE, NONE)
    assert e_values[closed].max() < 1e-100
    # Of one class they are all that there is.
    alone = reference(1000)
    new = alone.with_new_shares(BET_TABLE).dependence
    assert np.array_equal(new.log_bias, alone.dependence.log_bias)


@pytest.mark.parametrize("kind", ["ranks", "cells", "labels", "features"])
def test_a_book_need_not_have_bets_of_every_kind(kind: str) -> None:
    fewer = replace(BET_TABLE, **{kind: ()})
    x = features([Stretch(1000)])
    now = Reference.of(FROZEN, scored(x), fewer)
    kept = now.dependence.log_bias < CLOSED
    _, e_values = updated(now, FROZEN, scored(x[:50]), fewer, NONE)
    assert len(e_values) == len(fewer) < len(BET_TABLE)
    assert (e_values[kept] > 0).all()


def test_a_tally_of_other_components_is_refused() -> None:
    """Loops that count in it trust that every component and class has a cell."""
    seen = scored(features([Stretch(50)]))
    for other in (frozen_model(3), frozen_model(5), frozen_model(4, classes=[0, 1, 2, 3])):
        with pytest.raises(ValueError, match="of other components"):
            updated(reference(), other, seen, BET_TABLE, NONE)


def test_earlier_samples_without_some_of_the_scores_are_refused() -> None:
    now, seen = reference(), scored(features([Stretch(50)]))
    damaged = replace(now.scores, ranking=Ranks(now.scores.ranking.scores[:-1]))
    with pytest.raises(ValueError, match="reference samples have other scores"):
        updated(replace(now, scores=damaged), FROZEN, seen, BET_TABLE, NONE)


@pytest.mark.parametrize("field", ["numbers", "spread"])
def test_counts_of_which_some_are_missing_are_refused(field: str) -> None:
    now, seen = reference(), scored(features([Stretch(50)]))
    damaged = replace(now.counts, **{field: getattr(now.counts, field)[:-1]})
    with pytest.raises(ValueError, match=r"not as many counts|of other cells"):
        updated(replace(now, counts=damaged), FROZEN, seen, BET_TABLE, NONE)


def test_cells_moved_from_one_division_to_another_are_refused() -> None:
    now, seen = reference(), scored(features([Stretch(50)]))
    by_component, by_class, by_height, *rest = now.counts.layout
    for there in (
        (by_component, by_class + 1, by_height - 1),
        (by_component, 1, 2 * by_height - 1),
    ):
        damaged = replace(now.counts, layout=(*there, *rest))
        with pytest.raises(ValueError, match="of other components"):
            updated(replace(now, counts=damaged), FROZEN, seen, BET_TABLE, NONE)


# Fair bets --------------------------------------------------------------------------------


def test_while_nothing_changes_no_bet_gains_on_average() -> None:
    now = reference(1000, seed=3)
    _, e_values = updated(now, FROZEN, scored(features([Stretch(20_000)], 4)), BET_TABLE, NONE)
    e_values = e_values[OPEN]
    errors = e_values.std(1) / math.sqrt(20_000)
    # A reference of a thousand is itself an estimate, so that a little is left over.
    assert (e_values.mean(1) < 1.1 + 4 * errors).all(), e_values.mean(1)
    assert (np.log(e_values).mean(1) < 0).all()


# Samples that depend on each other --------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_of_independent_samples_nothing_is_taken_off(seed: int) -> None:
    now = reference(1000, seed)
    assert now.dependence.autocorrelation_time.tolist() == [1.0] * len(BET_TABLE)
    assert float(now.dependence.log_bias[OPEN].max()) < 0.02
    assert int((now.dependence.log_bias[OPEN] == 0).sum()) >= int(OPEN.sum()) - 1
    assert now.worth == 1000


def test_where_cells_differ_in_size_nothing_is_taken_off_either() -> None:
    """It is not the shares that a reference begins with which the first bets are on."""
    x = features([Stretch(2000, shares=(0.9, 0.05, 0.04, 0.01))])
    dependence = Reference.of(FROZEN, scored(x), BET_TABLE).dependence
    assert float(dependence.log_bias[OPEN].max()) < 0.02


def test_a_bet_that_says_nothing_is_closed_and_gathers_no_evidence() -> None:
    """With e = 1 for ever it would count samples, and alarm for that."""
    x = features([Stretch(1000)])
    for classes, is_open in (([0, 0, 0, 0], OPEN), ([0, 1, 2, 3], ~ON_LABELS & ~ON_FEATURES)):
        rows = torch.cat([x, torch.rand(1000, 1, generator=torch.Generator().manual_seed(3))], 1)
        frozen = frozen_model(4, classes=classes, n_features=3)
        now = Reference.of(frozen, frozen.score(rows), BET_TABLE)
        assert np.array_equal(now.dependence.log_bias < CLOSED, is_open)
        _, e_values = updated(now, frozen, frozen.score(rows[:50]), BET_TABLE, NONE)
        evidence = added(
            Evidence.none(len(BET_TABLE)), e_values, BET_TABLE, BET_TABLE.weights
        ).evidence
        assert np.array_equal(np.isfinite(evidence.totals), is_open)
        assert np.isfinite(evidence.cusums).all()
        # Its weight is the others', or changes would have to be louder where there is no class.
        assert np.array_equal(now.dependence.weights > 0, is_open)
        assert now.dependence.weights.sum() == pytest.approx(1)


def test_bets_on_labels_are_open_where_there_are_labels_though_none_was_ever_wrong() -> None:
    """They have said nothing yet, and will say the more of the first that is."""
    x, frozen = features([Stretch(1000)]), frozen_model(4, classes=[0, 1, 2, 3])
    right = torch.from_numpy(frozen.classes[frozen.score(x).components]).long()
    now = Reference.of(frozen, frozen.score(x, right), BET_TABLE)
    assert not now.dependence.log_bias[ON_LABELS].any()
    assert (now.dependence.weights[ON_LABELS] > 0).all()
    # When the first came, rates were not known: what was expected of those is no measure.
    assert now.counts.label_errors.told == 1000
    assert not now.counts.label_errors.recent.any()
    _, e_values = updated(now, frozen, frozen.score(x[:20], (right[:20] + 1) % 4), BET_TABLE, NONE)
    assert (np.log(e_values[ON_LABELS]).sum(1) > 20).all()
    # Nor are they closed for having had too few labels to say anything.
    few = torch.where(torch.arange(1000) < 60, right, -1)
    begun = Reference.of(frozen, frozen.score(x, few), BET_TABLE)
    assert begun.counts.label_errors.told == 60
    assert not begun.dependence.log_bias[ON_LABELS].any()


@pytest.mark.parametrize("length", [5, 20])
def test_samples_in_runs_are_worth_as_many_less(length: int) -> None:
    now = Reference.of(FROZEN, scored(sticky(3000, length)), BET_TABLE)
    assert (now.dependence.autocorrelation_time >= 1).all()
    assert float(
        np.median(now.dependence.autocorrelation_time[:N_RANKS][OPEN[:N_RANKS]])
    ) == pytest.approx(length, rel=0.5)
    assert now.worth < 3000 / 2


def test_gains_of_samples_in_runs_are_taken_off_and_stretched() -> None:
    now = Reference.of(FROZEN, scored(sticky(3000, 20)), BET_TABLE)
    plain = replace(now, dependence=Dependence.none(BET_TABLE, now.dependence.thinning))
    later = scored(sticky(400, 20, seed=1))
    gains = np.log(updated(now, FROZEN, later, BET_TABLE, NONE)[1][OPEN])
    full = np.log(updated(plain, FROZEN, later, BET_TABLE, NONE)[1][OPEN])
    taken_off = (full - now.dependence.log_bias[OPEN, None]) / now.dependence.autocorrelation_time[
        OPEN, None
    ]
    assert gains == pytest.approx(taken_off)
    # Runs of one component win nothing once it is known that they are usual.
    assert 15 <= now.dependence.thinning <= 42
    by_component = int(OPEN[:N_RANKS].sum())
    always = replace(now, dependence=Dependence.none(BET_TABLE))
    every = updated(always, FROZEN, later, BET_TABLE, NONE)[1]
    assert float(gains[by_component].sum()) < 5 < float(np.log(every)[OPEN][by_component].sum())


def test_where_samples_do_not_part_for_long_no_bet_is_on_where_the_last_ones_lay() -> None:
    now = Reference.of(FROZEN, scored(sticky(4000, 200)), BET_TABLE)
    assert (now.dependence.log_bias[BET_TABLE.on_last] == CLOSED).all()
    assert (now.dependence.log_bias[ON_RANKS & OPEN] < CLOSED).all()
    assert now.dependence.weights.sum() == pytest.approx(1)


def test_too_few_samples_say_nothing_of_dependence() -> None:
    now = Reference.of(FROZEN, scored(sticky(60, 10)), BET_TABLE)
    assert now.dependence.autocorrelation_time.tolist() == [1.0] * len(BET_TABLE)


def test_equal_scores_are_no_trouble() -> None:
    rows = torch.zeros(500, 2)
    rows[::5, 0] = 1  # were they all the same, bets on ranks would be closed
    now = Reference.of(FROZEN, scored(rows), BET_TABLE)
    _, e_values = updated(now, FROZEN, scored(rows), BET_TABLE, NONE)
    assert np.abs(np.log(e_values[OPEN])).max() < 1.5


def test_edges_between_bins_stay_whatever_is_forgotten_of_counts() -> None:
    edges = np.array([-1.0, 0.0, 1.0, 2.0])
    counts = replace(reference(600).counts, edges=edges)

    for now in (counts.faded(), counts.without_evidence(), counts.renewed(), counts.smoothed()):
        assert np.array_equal(now.edges, edges)
