"""Tests for the core.drift.sequential.monitor module: samples added in one call."""

from __future__ import annotations

import numpy as np

from core.drift.sequential.evidence import Evidence
from core.drift.sequential.monitor import Monitor, Updated
from core.drift.sequential.reference import Reference
from core.drift.sequential.scores import N_SCORES
from core.drift.sequential.signals import BET_TABLE
from tests.core.evidence_path import added
from tests.core.scripted_density import frozen_model
from tests.core.signals import Stretch, features

FROZEN = frozen_model(4)
NONE = np.zeros((N_SCORES, 0))
LATER = FROZEN.score(features([Stretch(300, mean=-1)], 1))


def watch() -> Monitor:
    return Monitor(FROZEN, Reference.of(FROZEN, FROZEN.score(features([Stretch(1000)])), BET_TABLE))


def updated(now: Monitor, evidence: Evidence) -> Updated:
    return now.updated(LATER, BET_TABLE, NONE, evidence, Evidence.none(len(BET_TABLE)).totals)


def test_it_comes_to_what_bets_and_evidence_come_to_one_after_the_other() -> None:
    now, none = watch(), Evidence.none(len(BET_TABLE))
    got, known = updated(now, none), now.reference
    counts, e_values = known.counts.betted_on(
        FROZEN, LATER, known.scores.ranking, known.dependence, BET_TABLE
    )
    expected = added(none, e_values, BET_TABLE, known.dependence.weights)
    assert np.array_equal(got.evidence.levels, expected.evidence.levels)
    assert (got.highest, got.probe_highest) == (expected.highest, expected.probe_highest)
    assert got.reading == expected.evidence.read(BET_TABLE, known.dependence.weights)
    assert np.array_equal(got.watch.reference.counts.numbers, counts.numbers)
    assert len(got.watch.reference) == 1300


def test_a_probe_that_began_later_has_gained_less() -> None:
    got = updated(watch(), updated(watch(), Evidence.none(len(BET_TABLE))).evidence)
    assert got.highest > got.probe_highest + 1
    assert (got.probe <= got.evidence.totals + 1e-9).all()


def test_evidence_and_probe_that_it_is_given_are_not_changed() -> None:
    now, evidence = watch(), updated(watch(), Evidence.none(len(BET_TABLE))).evidence
    levels, probe = evidence.levels.copy(), evidence.totals.copy()
    got, same = (now.updated(LATER, BET_TABLE, NONE, evidence, probe) for _ in range(2))
    assert np.array_equal(evidence.levels, levels)
    assert np.array_equal(probe, evidence.totals)
    assert got.reading == same.reading
    assert not np.array_equal(got.evidence.levels, levels)
