"""Tests for core.experts.neighbours and core.experts.nearest: clusters that are asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.experts import neighbours as module
from core.experts.fading import FEWEST
from core.experts.nearest import LEAST, SOFTNESS, MicroClusters, condense, vote
from core.experts.neighbours import DOUBT, HORIZONS, NEIGHBOURS, RAW, NeighbourRules, Neighbours
from tests.core.experts.made import cut

RECENT, ALL = range(len(HORIZONS))


def noise(n: int, d: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples (n, d), float64, of classes (n,) that mean nothing."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (n,), generator=generator)


def board(n: int, seed: int, turned: bool = False) -> tuple[Tensor, Tensor]:
    """Samples (n, 2) of a board of eight by eight fields, and their colours."""
    generator = torch.Generator().manual_seed(seed)
    x = 8 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return x, (x.floor().long().sum(1) + turned) % 2


def taught(x: Tensor, codes: Tensor, classes: int, parts: Sequence[int] = (100,)) -> Neighbours:
    found = Neighbours.start(x.shape[1]).grown(classes)
    for part in cut(len(x), parts):
        found = found.learned(x[part], codes[part])
    return found


def right(neighbours: Neighbours, x: Tensor, codes: Tensor) -> list[float]:
    """Accuracy of each horizon."""
    said = neighbours.rules().probabilities(x).argmax(-1)
    return (said == codes).double().mean(1).tolist()


def assert_same(one: Neighbours, two: Neighbours) -> None:
    assert (one.size, one.classes, one.samples) == (two.size, two.classes, two.samples)
    for mine, other in zip(one.clusters, two.clusters, strict=True):
        assert np.array_equal(mine[..., : one.size], other[..., : one.size])


def assert_sound(neighbours: Neighbours) -> None:
    """Nothing lies beyond what is in use, and no more is in use than may be."""
    assert neighbours.size <= len(neighbours.clusters.codes) <= neighbours.most
    own = neighbours.clusters.masses[: neighbours.size]
    assert (own > 0).all()
    for part in neighbours.clusters:
        assert not part[..., neighbours.size :].any()


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_clusters_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    x, codes = noise(1500, 40, 3, seed)
    x = x + codes[:, None]
    assert_same(taught(x, codes, 3, parts), taught(x, codes, 3))


def test_what_is_learned_leaves_the_value_before_as_it_was() -> None:
    x, codes = noise(1100, 64, 3, 0)
    before = taught(x[:1000], codes[:1000], 3)
    kept = [part.copy() for part in before.clusters]
    before.learned(x[1000:], codes[1000:])
    before.without_few()
    before.of_classes(torch.tensor([2, 0]))
    for part, was in zip(before.clusters, kept, strict=True):
        assert np.array_equal(part, was)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_the_nearest_are_asked_by_how_near_they_lie(n: int, d: int, seed: int) -> None:
    x, codes = noise(n, d, 3, seed)
    asked, _ = noise(7, d, 3, seed + 1)
    found = taught(x, codes, 3).rules().probabilities(asked)[ALL]
    known = codes.bincount(minlength=3) > 0
    for sample, said in zip(asked, found, strict=True):
        distances = (x - sample).square().sum(1)
        near = distances.argsort(stable=True)[:NEIGHBOURS]
        weights = 1 / (distances[near] + SOFTNESS * distances[near].mean() + LEAST)
        votes = torch.zeros(3).double()
        votes.index_add_(0, codes[near], len(near) * weights / weights.sum())
        votes = votes * known + DOUBT * known.double() / known.sum()
        torch.testing.assert_close(said, votes / votes.sum(), rtol=1e-9, atol=1e-12)


def test_a_fine_board_is_learned_and_what_has_turned_is_followed() -> None:
    x, codes = board(8000, 0)
    asked, answers = board(500, 1)
    known = taught(x, codes, 2)
    assert min(right(known, asked, answers)) > 0.75
    assert right(known, asked, answers)[ALL] > 0.85
    x, codes = board(500, 2, turned=True)
    turned = known.learned(x, codes)
    recent, everything = right(turned, asked, 1 - answers)
    assert recent > 0.7
    assert everything < 0.5


@given(st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_one_is_made_of_two_only_where_they_are_called_alike_and_none_is_between(
    seed: int,
) -> None:
    x, codes = noise(200, 2, 2, seed)
    made = taught(x, codes, 2)
    room = made.clusters
    places, before = room.places[:, :200].copy(), room.codes[:200].copy()
    left = condense(room, 200, np.ones(200, bool), math.inf, 0)
    assert 100 <= left < 200
    assert room.masses[:left].sum() == 200
    for code in (0, 1):
        mine = room.codes[:left] == code
        assert room.masses[:left][mine].sum() == (before == code).sum()
        # Means stay where the samples' were.
        mean = (room.places[:, :left][:, mine] * room.masses[:left][mine]).sum(1)
        np.testing.assert_allclose(mean, places[:, before == code].sum(1), atol=1e-9)
    distances = np.square(places[:, :, None] - places[:, None]).sum(0)
    other = np.where(before[:, None] != before, distances, np.inf).min(1)
    own = np.where((before[:, None] == before) & ~np.eye(200, dtype=bool), distances, np.inf)
    # Whoever was made one of two moved to the middle of both.
    for p in np.flatnonzero(room.masses[:left] == 2):
        pairs = np.argwhere(
            np.isclose(
                (places[:, :, None] + places[:, None]) / 2, room.places[:, p, None, None]
            ).all(0)
        )
        assert any(own[a, b] <= other[a] or own[a, b] <= other[b] for a, b in pairs if a != b)


@pytest.mark.parametrize("d", [1, 2, 64, 256])
def test_memory_is_bounded_and_samples_count_once(d: int) -> None:
    x, codes = noise(5000, d, 4, d)
    found = taught(x, codes, 4, (250,))
    assert_sound(found)
    assert sum(part.nbytes for part in found.clusters) < 1.2 * 2**20
    assert found.samples == 5000
    assert found.mass[ALL].sum() <= 5000
    assert float(found.mass[RECENT].sum()) >= min(500, found.most // 2)


def test_single_samples_go_after_a_while_whatever_comes() -> None:
    x, codes = noise(3 * RAW, 2, 5, 0)
    found = taught(x, codes, 5)
    own = slice(0, found.size)
    few = found.clusters.masses[own] < FEWEST
    # MicroClusters are looked through whenever there are as many as may be.
    assert found.clusters.newest[own][few].min() >= 3 * RAW - RAW - found.most
    assert found.raw == few.sum()


@given(st.integers(0, 99), st.integers(3, 900), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_at_a_boundary_no_cluster_of_a_sample_or_two_stays(seed: int, n: int, classes: int) -> None:
    x, codes = noise(n, 3, classes, seed)
    kept = taught(x, codes, classes).without_few()
    assert_sound(kept)
    assert kept.raw == 0
    stay = torch.from_numpy(kept.clusters.places[:, : kept.size].T.copy())
    assert not (stay[:, None] == x[None]).all(-1).any()


def test_what_is_known_is_known_beyond_a_boundary() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(6, (1500,), generator=generator)
    x = torch.randn(1500, 2, generator=generator, dtype=torch.float64)
    x[:, 0] += 8 * codes
    assert right(taught(x, codes, 6).without_few(), x, codes)[ALL] > 0.98


def test_clusters_follow_another_scale() -> None:
    x, codes = noise(700, 3, 2, 0)
    factor = torch.tensor([0.1, -3.0, 20.0], dtype=torch.float64)
    offset = torch.tensor([5.0, 0.0, -1.0], dtype=torch.float64)
    found = taught(x, codes, 2).rescaled(factor, offset)
    wanted = taught(x * factor + offset, codes, 2)
    own = slice(0, found.size)
    for mine, other in zip(found.clusters, wanted.clusters, strict=True):
        np.testing.assert_allclose(mine[..., own], other[..., own], rtol=1e-12)


def test_classes_in_another_order_are_named_alike_and_one_left_out_is_gone() -> None:
    x, codes = noise(600, 2, 3, 0)
    plain, order = taught(x, codes, 3), torch.tensor([2, 0, 1])
    moved = plain.of_classes(order)
    asked, _ = noise(50, 2, 3, 1)
    one, two = plain.rules().probabilities(asked), moved.rules().probabilities(asked)
    torch.testing.assert_close(one[..., order], two)
    left = plain.of_classes(torch.tensor([0, -1, 2]))
    assert not bool(left.mass[:, 1].any())
    assert left.size == int((codes != 1).sum())
    assert_sound(left)


def test_before_any_sample_all_classes_are_alike_and_before_any_class_nothing_is_said() -> None:
    asked, _ = noise(4, 3, 2, 0)
    assert (
        Neighbours.start(3).grown(2).rules().probabilities(asked).tolist() == [[[0.5] * 2] * 4] * 2
    )
    assert Neighbours.start(3).rules().probabilities(asked).shape == (2, 4, 0)


def test_rules_survive_their_tensors() -> None:
    x, codes = noise(300, 4, 3, 0)
    rules = taught(x, codes, 3).rules()
    again = NeighbourRules.of(rules.tensors())
    asked, _ = noise(20, 4, 3, 1)
    assert torch.equal(again.probabilities(asked), rules.probabilities(asked))
    assert again.size == 300


@pytest.mark.parametrize("shift", range(1, 8))
def test_where_in_memory_arrays_lie_does_not_change_a_bit(shift: int) -> None:
    x, codes = noise(333, 5, 2, 0)
    found = taught(x, codes, 2)
    asked, _ = noise(20, 5, 2, 1)

    def votes(places: np.ndarray) -> np.ndarray:
        out = np.zeros((2, 20, 2))
        room = MicroClusters(places, *found.clusters[1:])
        vote(room, found.size, asked.numpy(), np.array([0, 100]), NEIGHBOURS, out)
        return out

    plain = found.clusters.places
    memory = np.empty(plain.size + shift)
    moved = memory[shift:].reshape(plain.shape)
    moved[:] = plain
    assert np.array_equal(votes(plain), votes(moved))


def test_a_horizon_counts_what_lies_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HORIZONS", (10.0, math.inf))
    x, codes = noise(30, 2, 2, 0)
    found = taught(x, codes, 2)
    assert found.mass.sum(1).tolist() == [10, 30]
    assert replace(found, samples=100).mass.sum(1).tolist() == [0, 30]
