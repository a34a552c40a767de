"""Tests for core.drift.sequential.label_errors: labels that contradict what was known."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.compiled.loops import Array
from core.drift.sequential.label_errors import FEWEST, UNTOLD, LabelErrors, bet_on_labels
from core.drift.sequential.signals import BET_TABLE
from tests.core.evidence_path import path

CLASSES = 3
RATES = (0.02, 0.1, 0.3)


def stream(n: int, rates: tuple[float, ...] = RATES, seed: int = 0) -> tuple[Array, Array]:
    """Labels of samples, which are missed at these rates, and the classes on which they fall."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(rates), n)
    missed = rng.random(n) < np.array(rates)[labels]
    return labels, np.where(missed, (labels + 1) % len(rates), labels)


def betted(misses: LabelErrors, labels: Array, classes: Array) -> tuple[LabelErrors, Array]:
    now, e_values = deepcopy(misses), np.ones((len(BET_TABLE.labels), len(labels)))
    bet_on_labels(
        e_values, labels, classes, BET_TABLE.table[BET_TABLE.places[2]], now.counts, now.recent
    )
    return now, e_values


def known(n: int = 2000, rates: tuple[float, ...] = RATES) -> LabelErrors:
    return betted(LabelErrors.none(CLASSES), *stream(n, rates))[0]


def test_misses_are_counted_by_label() -> None:
    labels, classes = stream(2000)
    now = known()
    assert now.counts[:, 0].tolist() == np.bincount(labels).tolist()
    assert now.counts[:, 1].tolist() == np.bincount(labels[labels != classes]).tolist()
    assert now.told == 2000


def test_what_carries_no_label_is_neither_counted_nor_paid_for() -> None:
    before = known()
    after, e_values = betted(before, np.full(50, UNTOLD), np.zeros(50, np.int64))
    assert np.array_equal(after.counts, before.counts)
    assert np.array_equal(after.recent, before.recent)
    assert (e_values == 1).all()


def test_while_nothing_changes_no_bet_gains() -> None:
    _, e_values = betted(known(), *stream(20_000, seed=1))
    errors = e_values.std(1) / len(e_values[0]) ** 0.5
    assert (e_values.mean(1) < 1.02 + 4 * errors).all(), e_values.mean(1)
    assert (np.log(e_values).mean(1) < 0).all()


@pytest.mark.parametrize("one", range(CLASSES))
def test_labels_that_mean_something_else_win_within_a_few_samples(one: int) -> None:
    rates = tuple(0.9 if c == one else rate for c, rate in enumerate(RATES))
    _, e_values = betted(known(), *stream(300, rates, seed=2))
    assert (np.log(e_values).sum(1) > 12).all()
    assert np.log(e_values).sum(1).max() > 25


def test_that_no_label_was_ever_wrong_says_the_more_of_those_that_are() -> None:
    _, e_values = betted(known(2000, (0.0, 0.0, 0.0)), *stream(60, (0.5, 0.5, 0.5), seed=3))
    assert (np.log(e_values).sum(1) > 30).all()


def test_fewer_misses_than_usual_win_nothing() -> None:
    _, e_values = betted(known(2000, (0.3, 0.3, 0.3)), *stream(2000, (0.0, 0.0, 0.0), seed=4))
    assert (np.log(e_values) < 0).all()


def test_where_labels_are_never_wrong_evidence_does_not_grow_by_counting_them() -> None:
    _, e_values = betted(known(2000, (0.0, 0.0, 0.0)), *stream(20_000, (0.0, 0.0, 0.0), seed=8))
    assert (e_values < 1).all()
    assert np.expm1(path(e_values, np.ones(len(e_values)) / len(e_values))).max() < 20_000 / 1.5


@pytest.mark.parametrize("one", range(CLASSES))
def test_shares_of_classes_may_change(one: int) -> None:
    """To one that is easy to tell, or hard: its own misses come as they did."""
    labels, classes = stream(6000, seed=5)
    alone = labels == one
    _, e_values = betted(known(), labels[alone], classes[alone])
    assert np.log(e_values).sum(1).max() < 5


def test_a_label_of_which_nothing_was_known_is_no_reason_to_alarm() -> None:
    first = known(2000, (0.02, 0.02))
    wider = LabelErrors(np.vstack([first.counts[:2], [[0, 0]]]), first.recent)
    _, e_values = betted(wider, np.full(500, 2), np.zeros(500, np.int64))
    assert np.log(e_values).sum(1).max() < 5


def test_few_labels_tell_no_rate() -> None:
    _, e_values = betted(LabelErrors.none(CLASSES), *stream(int(FEWEST), seed=6))
    assert (e_values == 1).all()


@given(cuts=st.lists(st.integers(1, 399), max_size=6).map(sorted), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], seed: int) -> None:
    labels, classes = stream(400, seed=seed)
    whole, e_values = betted(LabelErrors.none(CLASSES), labels, classes)
    now, parts = LabelErrors.none(CLASSES), []
    for some, fell in zip(np.split(labels, cuts), np.split(classes, cuts), strict=True):
        now, part = betted(now, some, fell)
        parts.append(part)
    assert np.array_equal(np.concatenate(parts, 1), e_values)
    assert np.array_equal(now.counts, whole.counts)
    assert np.array_equal(now.recent, whole.recent)


def test_what_came_while_rates_were_not_known_says_nothing_of_the_last_samples() -> None:
    """Of a label that is new as many misses as hits are expected, far too many."""
    now = known(300, (0.0, 0.0, 0.0))
    assert now.recent[:, 0].min() > 0.2
    cleared = now.without_evidence()
    assert not cleared.recent.any()
    assert np.array_equal(cleared.counts, now.counts)
    labels, classes = stream(25, (1.0, 1.0, 1.0), seed=7)
    (_, soon), (_, late) = betted(cleared, labels, classes), betted(now, labels, classes)
    assert (np.log(soon).sum(1) > np.log(late).sum(1)).all()
