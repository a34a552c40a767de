"""Tests for the opponents of benchmarks.classification: they learn, and as they are said to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.classification import clusters, registry
from benchmarks.classification.course import Course, course
from benchmarks.classification.engine import Ours
from benchmarks.classification.measures import NOBODY
from benchmarks.classification.nearest import KNN, Scale, squared_distances, vote
from benchmarks.classification.opponent import LastLabel, Majority
from benchmarks.classification.registry import OPPONENTS, make
from benchmarks.classification.rivers import MODELS
from benchmarks.classification.sam_knn import SAMKNN
from benchmarks.classification.stream import LabelledStream
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BatchScored

EVERYBODY = ("mfa", "flat", *OPPONENTS)


def clouds(n: int, seed: int = 0, *, swapped: bool = False) -> LabelledStream:
    """Two far clouds, called 3 and 8, which may change names at the middle."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, n)
    x = (rng.normal(size=(n, 3)) + 6 * which[:, None]).astype(np.float32)
    called = np.where(np.arange(n) < n // 2, which, 1 - which) if swapped else which
    return LabelledStream("clouds", x, np.array([3, 8])[called])


def opponent(name: str, stream: LabelledStream) -> registry.Opponent:
    if name in MODELS:
        pytest.importorskip("river")
    return make(name, stream, 0, {})


@pytest.mark.parametrize("name", EVERYBODY)
def test_everybody_names_known_classes_and_nobody_before(name: str) -> None:
    stream = clouds(200)
    one = opponent(name, stream)
    first = one.predict(stream.x[:5])
    # A forest of River's names a class, 0, before it knows any; it is wrong like nobody's.
    assert set(first.tolist()) <= {NOBODY, 0}
    one.learn(stream.x[:100], stream.y[:100])
    named = one.predict(stream.x[100:])
    assert named.shape == (100,)
    assert named.dtype == np.int64
    assert set(named.tolist()) <= {3, 8}
    if name not in registry.BASELINES:
        assert (named == stream.y[100:]).mean() > 0.95


@pytest.mark.parametrize("name", EVERYBODY)
def test_naming_changes_nothing_and_the_same_comes_out_again(name: str) -> None:
    stream = clouds(120)
    found = []
    for asked in (1, 3):
        one = opponent(name, stream)
        for start in range(0, 80, 40):
            for _ in range(asked):
                one.predict(stream.x[start : start + 40])
            one.learn(stream.x[start : start + 40], stream.y[start : start + 40])
        found.append(one.predict(stream.x[80:]).tolist())
    assert found[0] == found[1]


def test_a_course_by_hand() -> None:
    stream = LabelledStream("made up", np.zeros((6, 1), np.float32), np.array([1, 1, 2, 2, 2, 1]))
    found = course(LastLabel(), stream, 2)
    # Named nobody, nobody; 1, 1; 2, 2.
    assert found.accuracy == pytest.approx(1 / 6)
    assert found.tenths == (0, 0, 0, 0, 1, 0)
    assert (found.worst_tenth, found.boundaries, found.samples) == (0, None, 6)
    assert Course.from_dict(found.to_dict()) == found
    majority = course(Majority(), stream, 1)
    # Named nobody, 1, 1, 1, 1 (of two equal ones), 2.
    assert majority.accuracy == pytest.approx(1 / 6)


def test_ours_is_the_engine_that_tests_before_it_learns() -> None:
    stream = clouds(1500, swapped=True)
    found = course(Ours(preset="flat"), stream, 100)
    engine = Engine(EngineConfig(preset="flat"))
    state, right = engine.start(), 0.0
    for start in range(0, len(stream), 100):
        part = slice(start, start + 100)
        batch = Batch.of(torch.from_numpy(stream.x[part]), stream.y[part].tolist())
        state, events = engine.step(state, batch)
        (scored,) = (event for event in events if isinstance(event, BatchScored))
        right += 100 * (scored.prequential_accuracy or 0.0)
    assert found.accuracy * len(stream) == pytest.approx(right, abs=0.5)


@pytest.mark.parametrize("scaled", [False, True])
def test_neighbours_are_found_in_a_window_of_the_last_samples(scaled: bool) -> None:
    stream = clouds(400, swapped=True)
    short, long = KNN(scaled=scaled, window=100), KNN(scaled=scaled)
    for start in range(0, 400, 50):
        short.learn(stream.x[start : start + 50], stream.y[start : start + 50])
        long.learn(stream.x[start : start + 50], stream.y[start : start + 50])
    asked = clouds(400, seed=1, swapped=True)
    assert (short.predict(asked.x) == asked.y)[200:].mean() > 0.99
    assert (long.predict(asked.x) == asked.y)[200:].mean() < 0.8


def test_neighbours_are_those_of_river() -> None:
    pytest.importorskip("river")
    stream = clusters.walk("walk", 600, 0)
    theirs = course(make("river-knn", stream, 0, {}), stream, 50)
    ours = course(KNN(scaled=False), stream, 50)
    assert ours.accuracy == pytest.approx(theirs.accuracy, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 100))
def test_who_votes_are_the_nearest(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    held, asked, labels = rng.normal(size=(n, 2)), rng.normal(size=(5, 2)), rng.integers(3, size=n)
    distances = squared_distances(asked, held)
    expected = ((asked[:, None] - held) ** 2).sum(-1)
    np.testing.assert_allclose(distances, expected)
    for row, named in zip(expected, vote(distances, labels, k), strict=True):
        near = np.argsort(row)[:k]
        votes = [(1 / np.sqrt(row[near]))[labels[near] == label].sum() for label in range(3)]
        assert votes[named] == pytest.approx(max(votes))


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    offset=st.sampled_from([0.0, 1e3, -50.0]),
)
def test_a_running_scale_is_that_of_all_samples(cuts: list[int], offset: float) -> None:
    rng = np.random.default_rng(len(cuts))
    x = rng.normal(size=(sum(cuts), 2)) * [1, 100] + offset
    x = np.column_stack([x, np.full(len(x), 5.0)])
    scale = Scale()
    for part in np.split(x, np.cumsum(cuts)[:-1]):
        scale.learn(part)
    scaled = scale.apply(x)
    assert (scaled[:, 2] == 0).all()
    if len(x) > 1:
        np.testing.assert_allclose(scaled[:, :2].mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(scaled[:, :2].std(0), 1, atol=1e-6)


# SAM-kNN ----------------------------------------------------------------------------------


def test_sam_knn_follows_clusters_that_move() -> None:
    stream = clusters.circle("circle", 4e-4, 2000, 0)
    majority = course(Majority(), stream, 20).accuracy
    found = course(SAMKNN(), stream, 20).accuracy
    assert found > 0.8 > 0.4 > majority


def test_sam_knn_forgets_what_is_no_longer_so() -> None:
    stream = clouds(1200, swapped=True)
    sam = SAMKNN()
    sam.learn(stream.x[:600], stream.y[:600])
    assert sam.sizes == (600, 0), "nothing has changed: all is short-term"
    sam.learn(stream.x[600:], stream.y[600:])
    short, long = sam.sizes
    assert short <= 600
    assert long < 0.2 * 600, "names of before contradict those of now"
    asked = clouds(1200, seed=1, swapped=True)
    assert (sam.predict(asked.x[600:]) == asked.y[600:]).mean() > 0.99


def test_sam_knn_keeps_what_is_only_not_shown() -> None:
    """A third cloud after two: nothing that was said of those is contradicted."""
    stream, third = clouds(600), clouds(600, seed=1)
    sam = SAMKNN()
    sam.learn(stream.x, stream.y)
    sam.learn(third.x + 30, np.full(600, 5))
    assert sum(sam.sizes) == 1200
    assert set(sam.predict(clouds(100, seed=2).x).tolist()) == {3, 8}


def test_sam_knn_keeps_to_its_size_and_to_the_labels_it_was_told() -> None:
    rng = np.random.default_rng(0)
    sam = SAMKNN(least=20, most=200)
    for _ in range(12):
        # Noise: nothing can be learned, and no memory is better than another.
        x = rng.normal(size=(50, 3)).astype(np.float32)
        sam.learn(x, rng.choice([2, 5, 11], size=50))
        assert sum(sam.sizes) <= 200
        assert sam.sizes[1] <= 80 + 1
        assert set(sam.predict(x).tolist()) <= {2, 5, 11}
    assert sam.sizes[0] >= 20
