"""Tests for the streams of benchmarks.classification: what they are said to be, they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from benchmarks.classification import board, clusters
from benchmarks.classification.catalogue import FAMILIES, HALVES, SOURCES, Source
from benchmarks.classification.cell import checksum
from benchmarks.classification.concepts import changing
from benchmarks.classification.stream import LabelledStream
from benchmarks.classification.tables import DRIFT, one_hot, ordered
from benchmarks.classification.units import UNITS, in_units
from clients.data.datasets import known_datasets

N = 600


def made(source: Source, n: int = N, seed: int = 0) -> LabelledStream:
    if source.needs_river:
        pytest.importorskip("river")
    if source.family == "folder" and "stream_elec2" not in known_datasets():
        pytest.skip("the streams of the data folder are not at hand")
    return source.make(n, seed)


@pytest.mark.parametrize("source", SOURCES.values(), ids=lambda one: one.name)
def test_every_stream_is_a_function_of_length_and_seed(source: Source) -> None:
    stream = made(source)
    assert stream.name == source.name
    assert stream.x.dtype == np.float32
    assert stream.y.dtype == np.int64
    assert stream.x.shape == (len(stream), stream.x.shape[1])
    assert 0 < len(stream) <= N
    assert np.isfinite(stream.x).all()
    assert stream.y.min() >= 0
    assert len(stream.classes) > 1
    assert list(stream.changes) == sorted(set(stream.changes))
    assert all(0 < change < len(stream) for change in stream.changes)
    assert checksum(made(source)) == checksum(stream)
    in_its_own_order = ("elec2", "sea-file", "interrbf")
    assert (checksum(made(source, seed=1)) == checksum(stream)) == (source.name in in_its_own_order)


def test_what_comes_from_one_source_is_in_one_half() -> None:
    halves: dict[str, set[str]] = {}
    for source in SOURCES.values():
        halves.setdefault(source.origin, set()).add(source.half)
    assert all(len(own) == 1 for own in halves.values())
    assert {half for own in halves.values() for half in own} == set(HALVES)
    assert abs(sum(source.half == "a" for source in SOURCES.values()) - len(SOURCES) / 2) <= 2
    for family in FAMILIES:
        assert {one.half for one in SOURCES.values() if one.family == family} == set(HALVES)


@settings(max_examples=25, deadline=None)
@given(
    units=st.sampled_from(sorted(UNITS)),
    n=st.integers(2, 40),
    seed=st.integers(0, 1000),
    magnitude=st.floats(-3, 3),
)
def test_units_are_one_scale_and_one_shift_per_feature(
    units: str, n: int, seed: int, magnitude: float
) -> None:
    rng = np.random.default_rng(seed)
    x = (10**magnitude * rng.normal(size=(n, 3))).astype(np.float32)
    stream = LabelledStream("made up", x, rng.integers(2, size=n), (1,))
    other = in_units(stream, units)
    assert (other.y == stream.y).all()
    assert other.changes == stream.changes
    for feature in range(3):
        own, theirs = x[:, feature].astype(float), other.x[:, feature].astype(float)
        low, high = own.argmin(), own.argmax()
        scale = (theirs[high] - theirs[low]) / (own[high] - own[low])
        assert scale > 0
        expected = theirs[low] + scale * (own - own[low])
        np.testing.assert_allclose(theirs, expected, atol=1e-5 * np.abs(theirs).max())


def test_each_unit_by_hand() -> None:
    x = np.array([[1, 5], [3, 5], [2, 5]], dtype=np.float32)
    stream = LabelledStream("made up", x, np.array([0, 1, 0]))
    found = {name: in_units(stream, name).x.tolist() for name in UNITS}
    assert found["as-is"] == x.tolist()
    assert found["unit"] == [[0, 0], [1, 0], [0.5, 0]]
    assert found["mega"] == (x * np.float32(1e6)).tolist()
    np.testing.assert_allclose(found["micro"], x * 1e-6)
    assert found["junk"] == [[1, 5, 7, 1], [3, 5, 7, 3], [2, 5, 7, 2]]


def test_orders_hold_the_same_table() -> None:
    x, y = load_wine(return_X_y=True)
    table = sorted(map(tuple, np.column_stack([x, y]).astype(np.float32).tolist()))
    for order in ("random", "sorted"):
        stream = ordered("wine", order, 1000, 3)
        rows = np.column_stack([stream.x, stream.y]).astype(np.float32)
        assert sorted(map(tuple, rows.tolist())) == table
    assert ordered("wine", "sorted", 1000, 3).y.tolist() == sorted(y)
    assert ordered("wine", "sorted", 1000, 3).changes == (59, 130)
    still, moved = (ordered("wine", order, 1000, 3) for order in ("random", "drifting"))
    assert (still.y == moved.y).all()
    (feature,) = np.flatnonzero((still.x != moved.x).any(0))
    gap = (moved.x - still.x)[:, feature] / still.x[:, feature].std()
    np.testing.assert_allclose(gap, DRIFT * np.linspace(0, 1, len(still)), atol=1e-3)


def test_text_becomes_one_feature_per_value() -> None:
    rows = [{"a": "y", "b": 3}, {"a": "x", "b": True}]
    assert one_hot(rows).tolist() == [[0, 1, 3], [1, 0, 1]]


@pytest.mark.parametrize("kind", ["abrupt", "gradual", "recurring"])
def test_a_concept_holds_until_the_next_comes(kind: str) -> None:
    pytest.importorskip("river")
    stream = changing("stagger", kind, 1200, 0)
    # One-hot, in the order of size, colour, shape: small, red; medium or large.
    small, red = stream.x[:, 0] == 1, stream.x[:, 3] == 1
    large = ~small
    concepts = [small & red, large]
    agreed = [(stream.y == concept) for concept in concepts]
    if kind == "abrupt":
        assert stream.changes == (400, 800)
        assert agreed[0][:400].all()
        assert not agreed[0][400:800].all()
        assert agreed[1][800:].all()
    elif kind == "recurring":
        assert stream.changes == (200, 400, 600, 800, 1000)
        for turn in range(6):
            assert agreed[turn % 2][200 * turn : 200 * (turn + 1)].all()
            assert not agreed[1 - turn % 2][200 * turn : 200 * (turn + 1)].all()
    else:
        assert agreed[0][:200].all()
        assert agreed[1][1000:].all()
        assert 0.2 < agreed[1][780:820].mean() < 1


def test_concepts_do_not_draw_the_same_samples_again() -> None:
    pytest.importorskip("river")
    stream = changing("sea", "recurring", 1000, 0)
    assert len(np.unique(stream.x, axis=0)) == 1000


def test_classes_on_the_circle_come_where_others_were() -> None:
    stream = clusters.circle("circle", 1e-3, 4000, 0)
    # A turn is 1,000 samples: a fifth of it later every class is where its neighbour was.
    means = [
        [stream.x[part][stream.y[part] == k].mean(0) for k in range(5)]
        for part in (slice(0, 50), slice(200, 250), slice(1000, 1050))
    ]
    first, later, back = map(np.array, means)
    assert np.abs(later - np.roll(first, -1, axis=0)).max() < 1.5
    assert np.abs(back - first).max() < 1.5
    assert np.abs(later - first).max() > 2


def test_walkers_stay_in_their_box_and_squares_in_their_row() -> None:
    walk = clusters.walk("walk", 20_000, 0)
    assert np.abs(walk.x).max() < clusters.WALK_BOX + 6 * clusters.SPREAD
    squares = clusters.squares("squares", 20_000, 0)
    row = clusters.SQUARES * clusters.SQUARE_GAP
    assert squares.x[:, 0].min() >= 0
    assert squares.x[:, 0].max() <= 2 * row
    for start in range(0, 20_000, 500):
        # Within ten samples they hardly move, and never overlap.
        x, y = squares.x[start : start + 10, 0], squares.y[start : start + 10]
        gaps = x[:, None] - x - clusters.SQUARE_GAP * (y[:, None] - y)
        assert np.abs(gaps).max() < 1.1


def test_blobs_come_one_after_the_other() -> None:
    single = clusters.blobs("single", False, 1000, 0)
    assert single.y.tolist() == [label for label in range(10) for _ in range(100)]
    growing = clusters.blobs("growing", True, 1000, 0)
    assert growing.changes == single.changes == tuple(range(100, 1000, 100))
    for place in range(10):
        part = growing.y[100 * place : 100 * (place + 1)]
        assert set(part) <= set(range(place + 1))
        assert place in part


def test_the_board_never_changes_and_is_shown_in_parts() -> None:
    for make in (board.fields, board.transient):
        stream = make("board", 6400, 0)
        column, row = (8 * stream.x.astype(float)).clip(0, 7.9999).astype(int).T
        assert ((column + row) % 2 == stream.y).mean() > 0.999  # but for rounding at an edge
        bounds = [0, *stream.changes, len(stream)]
        parts = [slice(*pair) for pair in pairwise(bounds)]
        fields = [len(set(zip(column[part], row[part], strict=True))) for part in parts]
        if make is board.fields:
            assert max(fields) <= 2
            assert len(parts) == 2 * 64
        else:
            assert fields[:4] == [1, 1, 1, 1]
            assert fields[4] > 40
            assert len(parts) == 16 * 5


def test_the_plane_is_shown_region_by_region() -> None:
    stream = board.plane("plane", 3600, 0)
    assert set(stream.classes) == {0, 1, 2}
    bounds = [0, *stream.changes, len(stream)]
    for start, end in pairwise(bounds):
        place = np.floor(3 * stream.x[start:end]).clip(0, 2)
        assert len(np.unique(place, axis=0)) == 1
