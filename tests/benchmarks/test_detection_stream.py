"""Tests for benchmarks.detection.stream and .families: what the streams promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.detection.families import (
    FAMILIES,
    FULL,
    SLTS,
    SMALL,
    Size,
    clouds,
    contamination,
    gradual,
    null,
    pairs,
    recurring,
    short,
    slt,
    table,
    traffic,
)
from benchmarks.detection.stream import LARGEST, MIXED, UNKNOWN, cut
from clients.data.datasets import Dataset, load_dataset
from clients.http.errors import InputError


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def share_of(labels: np.ndarray, classes: set[int]) -> float:  # type: ignore[type-arg]
    return float(np.isin(labels, list(classes)).mean())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_stream_twice_is_the_same(name: str, digits: Dataset) -> None:
    for one, other in zip(
        FAMILIES[name](digits, SMALL), FAMILIES[name](digits, SMALL), strict=True
    ):
        assert one.name == other.name
        assert np.array_equal(one.rows, other.rows)
        assert one.changes == other.changes


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("size", [1, 100, 512, MIXED])
def test_however_it_is_cut_the_samples_are_the_same(name: str, size: int, digits: Dataset) -> None:
    stream = next(iter(FAMILIES[name](digits, replace(SMALL, null=700, table=700))))
    parts = list(stream.batches(size))
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    assert np.array_equal(y, stream.labels)
    assert len(x) == len(stream)
    assert x.dtype == stream.pool.dtype, "uint8 says that samples are images"
    sent = stream.pool[stream.rows]
    assert np.array_equal(x, sent), "as they are sent"
    assert all(0 < change.sample < len(stream) for change in stream.changes)
    assert np.cumsum([len(y) for _, y in parts]).tolist() == cut(len(stream), size)[1:]


@pytest.mark.parametrize("name", FAMILIES)
def test_names_within_a_family_are_unique(name: str, digits: Dataset) -> None:
    streams = [one.name for one in FAMILIES[name](digits, replace(SMALL, streams=6, pairs=90))]
    assert len(set(streams)) == len(streams)


def test_no_batch_straddles_a_change_that_is_told(digits: Dataset) -> None:
    stream = next(iter(slt(digits, SMALL)))
    ends = np.cumsum([len(y) for _, y in stream.batches(512, told=True)]).tolist()
    assert {change.sample for change in stream.changes} <= set(ends)


def test_mixed_batches_have_every_size() -> None:
    steps = np.diff(cut(2_000_000, MIXED))[:-1]
    assert steps.min() == 1
    assert LARGEST / 2 < steps.max() <= LARGEST
    # All magnitudes alike: as many below a hundred as above.
    assert 0.4 < float((steps < 100).mean()) < 0.6


def test_the_paper_s_tasks_have_twelve_boundaries_where_classes_change(digits: Dataset) -> None:
    streams = list(slt(digits, SMALL))
    assert len(streams) == len(SLTS)
    assert sum(len(stream.changes) for stream in streams) == 12
    for stream in streams:
        parts = np.split(stream.labels, [change.sample for change in stream.changes])
        sets = [set(part.tolist()) for part in parts]
        assert sum(map(len, sets)) == 10
        assert stream.test_x is not None
        assert len(stream.test_x) == 360


def test_pairs_are_all_pairs_of_two_classes(digits: Dataset) -> None:
    streams = list(pairs(digits, replace(SMALL, pairs=90)))
    assert len({stream.name for stream in streams}) == 90
    first, second = np.split(streams[17].labels, [streams[17].changes[0].sample])
    assert streams[17].name == f"{first[0]} then {second[0]}"
    assert len(set(first)) == len(set(second)) == 1


def test_a_ramp_rises_from_none_to_all(digits: Dataset) -> None:
    size = replace(SMALL, ramp=1000)
    (stream,) = gradual(digits, size)
    at = stream.changes[0].sample
    old = set(stream.labels[:at].tolist())
    assert len(old) == 5
    thirds = [1 - share_of(part, old) for part in np.split(stream.labels[at : at + 999], 3)]
    assert thirds == sorted(thirds)
    assert thirds[0] < 0.1
    assert thirds[2] > 0.9
    assert share_of(stream.labels[at + 1000 :], old) == 0
    assert stream.horizon == 1200


def test_a_new_class_is_a_fifth_of_the_traffic(digits: Dataset) -> None:
    (stream,) = traffic(digits, replace(SMALL, after=5000))
    at = stream.changes[0].sample
    assert share_of(stream.labels[:at], {0}) == 0
    assert share_of(stream.labels[at:], {0}) == pytest.approx(0.2, abs=0.02)


def test_contamination_goes_away_in_a_burst_and_else_stays(digits: Dataset) -> None:
    size = replace(SMALL, streams=2, burst=2000, after=2000)
    burst, lasting = contamination(digits, size)
    for stream, ending in ((burst, 0.0), (lasting, 0.1)):
        at = stream.changes[0].sample
        assert share_of(stream.labels[:at], {UNKNOWN}) == 0
        assert share_of(stream.labels[at : at + 2000], {UNKNOWN}) == pytest.approx(0.1, abs=0.03)
        tail = share_of(stream.labels[at + 2000 :], {UNKNOWN})
        assert tail == pytest.approx(ending, abs=0.03)
    assert not burst.changes[0].lasting
    assert lasting.changes[0].lasting


def test_what_recurs_is_what_was_there_before_and_other_samples_of_it(digits: Dataset) -> None:
    size = Size(stretch=150, streams=1)
    (stream,) = recurring(digits, size)
    assert [change.kind for change in stream.changes] == ["abrupt", "return", "return"]
    parts = np.split(stream.rows, [change.sample for change in stream.changes])
    classes = [set(digits.train_y[part].tolist()) for part in parts]
    assert classes[0] == classes[2] != classes[1] == classes[3]
    assert len(np.unique(stream.rows)) == len(stream)


def test_every_class_comes_once_and_not_for_long(digits: Dataset) -> None:
    first, second = short(digits, Size(short=60, streams=2))
    assert [change.sample for change in first.changes] == list(range(60, 600, 60))
    classes = [set(part.tolist()) for part in np.split(first.labels, 10)]
    assert sorted(next(iter(one)) for one in classes if len(one) == 1) == list(range(10))
    assert len(np.unique(first.rows)) == len(first)
    assert not np.array_equal(first.labels, second.labels)


def test_a_stream_without_change_has_none(digits: Dataset) -> None:
    one, ten = null(digits, replace(SMALL, null=3000))
    assert one.changes == ten.changes == ()
    assert set(one.labels.tolist()) == {0}
    # A pass ends before a sample comes again.
    assert len(np.unique(ten.rows[:1437])) == 1437


def test_made_up_samples_never_come_twice() -> None:
    data = clouds(5000)
    (stream,) = list(null(data, replace(SMALL, null=5000)))[1:]
    assert len(np.unique(stream.rows)) == 5000


def test_known_changes_of_a_table_are_taken_over() -> None:
    data = replace(clouds(1000), drift_points=(300, 600, 2000))
    (stream,) = table(data, SMALL)
    assert [change.sample for change in stream.changes] == [300, 600]
    assert np.array_equal(stream.rows, np.arange(1000))


def test_samples_are_not_repeated_unless_that_is_allowed(digits: Dataset) -> None:
    (stream,) = list(pairs(digits, replace(FULL, pairs=1)))
    assert len(np.unique(stream.rows)) == len(stream) < 300
    with pytest.raises(InputError, match="are needed, and digits has"):
        list(gradual(digits, replace(FULL, streams=1)))
