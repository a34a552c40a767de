"""Tests for the core.drift.sequential.monitor module: samples weighed in one call."""

from __future__ import annotations

import numpy as np

from core.drift.sequential.detector import BOOK
from core.drift.sequential.evidence import Evidence
from core.drift.sequential.monitor import Monitor, Weighed
from core.drift.sequential.reference import Reference
from core.drift.sequential.scores import N_SCORES
from tests.core.evidence_path import added
from tests.core.scripted_density import frozen_model
from tests.core.signals import Stretch, features

WATCHER = frozen_model(4)
NONE = np.zeros((N_SCORES, 0))
LATER = WATCHER.sees(features([Stretch(300, mean=-1)], 1))


def watch() -> Monitor:
    return Monitor(WATCHER, Reference.of(WATCHER, WATCHER.sees(features([Stretch(1000)])), BOOK))


def weighed(now: Monitor, evidence: Evidence) -> Weighed:
    return now.weighed(LATER, BOOK, NONE, evidence, Evidence.none(len(BOOK)).totals)


def test_it_comes_to_what_bets_and_evidence_come_to_one_after_the_other() -> None:
    now, none = watch(), Evidence.none(len(BOOK))
    got, known = weighed(now, none), now.reference
    counts, paid = known.counts.betted_on(
        WATCHER, LATER, known.earlier.ranking, known.conditions, BOOK
    )
    expected = added(none, paid, BOOK, known.conditions.weights)
    assert np.array_equal(got.evidence.levels, expected.evidence.levels)
    assert (got.highest, got.probe_highest) == (expected.highest, expected.probe_highest)
    assert got.reading == expected.evidence.read(BOOK, known.conditions.weights)
    assert np.array_equal(got.watch.reference.counts.numbers, counts.numbers)
    assert len(got.watch.reference) == 1300


def test_a_probe_that_began_later_has_gained_less() -> None:
    got = weighed(watch(), weighed(watch(), Evidence.none(len(BOOK))).evidence)
    assert got.highest > got.probe_highest + 1
    assert (got.probe <= got.evidence.totals + 1e-9).all()


def test_evidence_and_probe_that_it_is_given_are_not_changed() -> None:
    now, evidence = watch(), weighed(watch(), Evidence.none(len(BOOK))).evidence
    levels, probe = evidence.levels.copy(), evidence.totals.copy()
    got, same = (now.weighed(LATER, BOOK, NONE, evidence, probe) for _ in range(2))
    assert np.array_equal(evidence.levels, levels)
    assert np.array_equal(probe, evidence.totals)
    assert got.reading == same.reading
    assert not np.array_equal(got.evidence.levels, levels)
