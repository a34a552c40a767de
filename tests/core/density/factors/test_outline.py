"""Tests for scoring in two stages: core.density.factors.outline and .refining."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.density.density import Parts
from core.density.factor_mixture import FactorMixture, log_joint, shared_out, whitened_form
from core.density.factors.density import FactorDensity
from core.density.factors.outline import (
    CANDIDATES,
    DIRECTIONS,
    among_likeliest,
    directions_of,
    pays,
)
from core.density.factors.part import FactorPart
from core.density.factors.refining import FIRST, MOST, by_component, longlist, pick, shortlist
from tests.core.states import assert_identical

FLOOR = 0.05
D, L = 256, 8
SIZES = (90, 30)
K = sum(SIZES)


def wide(seed: int = 0) -> tuple[FactorDensity, FactorDensity]:
    """A mixture in two parts of which most lies in a few directions, in two stages and exactly."""
    generator = torch.Generator().manual_seed(seed)
    few = torch.linalg.qr(torch.randn(D, 40, generator=generator)).Q.T
    mixture = FactorMixture(
        torch.randn(K, generator=generator),
        3 * torch.randn(K, 40, generator=generator) @ few,
        (torch.randn(K, L, 40, generator=generator) @ few).transpose(1, 2).contiguous(),
        torch.rand(K, D, generator=generator) / 4 + FLOOR,
    )
    columns = zip(*(torch.split(column, SIZES) for column in mixture), strict=True)
    parts = tuple(FactorPart(FactorMixture(*map(torch.clone, part)), FLOOR) for part in columns)
    return FactorDensity(parts, directions_of(mixture.means)), FactorDensity(parts)


@pytest.fixture(scope="module")
def both() -> tuple[FactorDensity, FactorDensity]:
    return wide()


@pytest.fixture(scope="module")
def samples(both: tuple[FactorDensity, FactorDensity]) -> Tensor:
    """600 samples, more than are scored at a time."""
    generator = torch.Generator().manual_seed(1)
    return both[1].sample(torch.randint(K, (600,), generator=generator), generator)


def test_it_pays_for_many_wide_components_only() -> None:
    assert pays(400, 784, 20)
    assert not pays(99, 784, 20)
    assert not pays(400, 255, 20)
    assert not pays(400, 784, 7)


@pytest.mark.parametrize("k", [100, 400])
def test_directions_are_orthonormal_and_hold_what_means_differ_by(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    few = torch.randn(30, 300, generator=generator)
    means = torch.randn(k, 30, generator=generator) @ few + 5
    directions = directions_of(means)
    assert directions.shape == (300, DIRECTIONS)
    torch.testing.assert_close(directions.T @ directions, torch.eye(DIRECTIONS), atol=1e-5, rtol=0)
    away = means - means.mean(0)
    torch.testing.assert_close(away @ directions @ directions.T, away, atol=1e-3, rtol=1e-3)


def test_the_likeliest_components_and_the_likelihood_are_exact(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    rough, exact = (density.score(samples) for density in both)
    torch.testing.assert_close(rough.log_likelihood, exact.log_likelihood, atol=2e-2, rtol=0)
    assert torch.equal(rough.joint.argmax(-1), exact.joint.argmax(-1))
    heard = exact.joint > exact.joint.amax(-1, keepdim=True) - 20
    torch.testing.assert_close(rough.joint[heard], exact.joint[heard], atol=2e-2, rtol=0)
    # It is no exact pass under another name: most others are estimated, if not far off.
    assert float(((rough.joint - exact.joint).abs() > 0.1).float().mean()) > 0.5
    torch.testing.assert_close(
        torch.softmax(rough.joint / 10, -1), torch.softmax(exact.joint / 10, -1), atol=0.02, rtol=0
    )


def test_what_is_exact_does_not_depend_on_the_samples_beside(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    density, exact = both
    together = density.score(samples).joint
    best = together.argmax(-1)
    for row in (0, 3, 599):
        alone = density.score(samples[row : row + 1]).joint
        assert alone[0, best[row]] == together[row, best[row]]
        torch.testing.assert_close(alone[0], together[row], atol=1e-2, rtol=0)
    assert exact.score(samples).joint.shape == together.shape
    # Whoever takes them in blocks is told the same, to the bit.
    blocks = torch.cat([density.score(part).joint for part in torch.split(samples, 512)])
    assert torch.equal(blocks, together)


def test_samples_are_projected_once_and_parts_joined_once(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    density, x = both[0], samples[:50]
    known: Parts = {}
    first = density.score(x, known)
    assert list(known) == [density.directions]
    parts = density.parts[0], wide(seed=5)[0].parts[1]
    later = FactorDensity(parts, density.directions)
    apart = FactorDensity(tuple(FactorPart(one.mixture, FLOOR) for one in parts), later.directions)
    assert torch.equal(later.score(x, known).joint, apart.score(x).joint)
    assert torch.equal(density.score(x, known).joint, first.joint)
    assert later.directions is not None
    outlines = [part.outline(later.directions) for part in parts]
    assert outlines[0].beside(outlines[1:]) is outlines[0].beside([*outlines[1:]])
    # In other directions the same parts are estimated otherwise.
    other = FactorDensity(density.parts, torch.linalg.qr(torch.randn(D, DIRECTIONS)).Q)
    assert torch.equal(other.score(x, known).joint, other.score(x).joint)


def test_versions_that_take_turns_work_nothing_out_twice(
    both: tuple[FactorDensity, FactorDensity],
    samples: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frozen model has directions of its own, its successor other parts beside the same."""
    learning = both[0]
    turned = torch.linalg.qr(
        torch.randn(D, DIRECTIONS, generator=torch.Generator().manual_seed(3))
    ).Q
    frozen = FactorDensity(learning.parts, turned)
    successor = FactorDensity((learning.parts[0], wide(seed=5)[0].parts[1]), turned)
    versions = (learning, frozen, successor)
    expected = [version.score(samples[:50]).joint for version in versions]

    def again(*_: object) -> None:
        raise AssertionError("what lasts is worked out once more")

    monkeypatch.setattr("core.density.factors.outline.Seen", again)
    monkeypatch.setattr("core.density.factors.part.exact", again)
    for _ in range(2):
        for version, joint in zip(versions, expected, strict=True):
            assert torch.equal(version.score(samples[:50]).joint, joint)


def test_traits_are_those_of_the_exact_way(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    scored = both[1].score(samples)
    rough, exact = (density.conformity(samples, scored) for density in both)
    torch.testing.assert_close(rough, exact, atol=1e-3, rtol=1e-4)


def test_directions_are_kept_in_files_and_when_parts_are_gathered(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    density, exact = both
    again = FactorDensity.of(density.tensors(), json.loads(json.dumps(density.facts())))
    assert_identical(again, density)
    assert torch.equal(again.score(samples).joint, density.score(samples).joint)
    assert density.gathered().directions is density.directions
    joint = density.gathered().score(samples).joint
    torch.testing.assert_close(joint, density.score(samples).joint, atol=1e-2, rtol=0)
    assert "directions" not in exact.tensors()


def test_a_round_of_em_keeps_to_what_was_likeliest_in_the_one_before(
    both: tuple[FactorDensity, FactorDensity], samples: Tensor
) -> None:
    mixture, before = both[1].mixture, both[1].score(samples).joint
    form = whitened_form(mixture)
    moved = mixture._replace(means=mixture.means + 0.01)
    joint = among_likeliest(moved, whitened_form(moved), samples, before)
    kept = joint > -torch.inf
    assert (kept.sum(-1) == CANDIDATES).all()
    assert torch.equal(kept, torch.zeros_like(kept).scatter(1, before.topk(CANDIDATES).indices, 1))
    exact = log_joint(whitened_form(moved), samples)
    torch.testing.assert_close(joint[kept], exact[kept], atol=2e-2, rtol=1e-5)
    same = among_likeliest(mixture, form, samples, before)
    torch.testing.assert_close(shared_out(same), shared_out(before), atol=5e-3, rtol=0)


# Loops ------------------------------------------------------------------------------------


def table(n: int, k: int, seed: int = 2) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed))


def test_the_largest_numbers_of_a_row_are_picked_in_order() -> None:
    (row,) = table(1, 30)
    places, values = np.empty(5, np.int64), np.empty(5, np.float32)
    pick(places, values, row.numpy(), -np.inf)
    expected = row.topk(5)
    assert places.tolist() == expected.indices.tolist()
    assert values.tolist() == expected.values.tolist()
    pick(places, values, row.numpy(), float(expected.values[2]))
    assert places.tolist() == [*expected.indices[:3].tolist(), -1, -1]
    pick(places, values, torch.full((30,), torch.nan).numpy(), -np.inf)
    assert places.tolist() == [-1] * 5


def listed(order: Array, starts: Array) -> list[tuple[int, int]]:
    """Pairs of sample and component."""
    return sorted(
        (int(row), k) for k in range(len(starts) - 1) for row in order[starts[k] : starts[k + 1]]
    )


def test_samples_are_listed_by_component() -> None:
    places = np.array([[2, 0], [-1, 2], [0, -1]])
    order, starts = np.empty(6, np.int64), np.full(4, 9)
    by_component(order, starts, places)
    assert starts.tolist() == [0, 2, 2, 4]
    assert order[:4].tolist() == [0, 2, 0, 1]


def test_first_the_likeliest_few_are_listed_then_whatever_may_be_heard() -> None:
    estimates = table(7, 200)
    order, starts = np.empty(7 * MOST, np.int64), np.empty(201, np.int64)
    places, values = np.empty((7, FIRST), np.int64), np.empty((7, FIRST), np.float32)
    shortlist(order, starts, places, values, estimates.numpy())
    top = estimates.topk(FIRST, 1).indices
    assert listed(order, starts) == sorted((row, int(k)) for row in range(7) for k in top[row])
    # One of the few turns out to be half a nat better than it was estimated: so may others.
    short = 0.5
    refined = estimates.clone()
    refined[:, top[:, 1]] = torch.where(
        torch.eye(7, dtype=torch.bool), estimates[:, top[:, 1]] + short, refined[:, top[:, 1]]
    )
    longlist(order, starts, places, values, refined.numpy(), 0.3)
    expected = []
    for row in range(7):
        best = refined[row, top[row]].max()
        heard = (estimates[row] >= best - short - 0.3).nonzero()[:, 0].tolist()
        expected += [(row, k) for k in heard if k not in top[row].tolist()]
    found = listed(order, starts)
    assert found == sorted(expected)
    assert len(found) > 0
    longlist(order, starts, places, values, refined.numpy(), 100.0)
    assert starts[-1] == 7 * MOST  # never more
