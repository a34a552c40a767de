"""Tests for the core.drift.evidence module: the fast recursion is the plain one, and it is fair."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.drift.evidence import SLACK, Evidence

SAMPLES = 12

gains = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([-700.0, -40.0, -1e-12, 0.0, 1e-12, 40.0, 700.0]),
)
lives = st.integers(1, 3).flatmap(
    lambda n_bets: st.lists(
        st.lists(gains, min_size=n_bets, max_size=n_bets), min_size=1, max_size=SAMPLES
    )
)


def table(life: list[list[float]]) -> Tensor:
    """Gains with shape (J, N)."""
    return torch.tensor(life, dtype=torch.float64).T


def even(n_bets: int) -> Tensor:
    return torch.full((n_bets,), -math.log(n_bets), dtype=torch.float64)


def log_plus_one(log_r: float) -> float:
    return max(log_r, 0.0) + math.log1p(math.exp(-abs(log_r)))


def naive(life: list[float]) -> tuple[float, float, int, float]:
    """Of one bet, sample by sample: log R, height, span and top."""
    total, path = -math.inf, [0.0]
    for gain in life:
        total = log_plus_one(total) + gain
        path.append(path[-1] + gain)
    lowest = path.index(min(path))
    since = path[lowest:]
    # Before that point heights count from lowest points of their own.
    low = [n for n, value in enumerate(path) if value - min(path[: n + 1]) < SLACK]
    return total, path[-1] - path[lowest], len(path) - 1 - low[-1], max(since) - path[lowest]


def tops(life: list[float]) -> list[float]:
    """Of one bet, from each of its lowest points that lie closer than rounding can tell."""
    path = [math.fsum(life[:n]) for n in range(len(life) + 1)]
    lowest = min(path)
    return [max(path[n:]) - value for n, value in enumerate(path) if value - lowest < 1e-9]


def played(life: Tensor, sizes: list[int]) -> tuple[Evidence, Tensor]:
    """The evidence after a life that comes in pieces, and log R of all bets after each sample."""
    evidence, sums = Evidence.none(len(life)), []
    for piece in life.split(sizes, 1):
        evidence, together = evidence.added(piece, even(len(life)))
        sums.append(together)
    return evidence, torch.cat(sums)


def assert_close(one: Evidence, other: Evidence) -> None:
    for field in fields(Evidence):
        torch.testing.assert_close(
            getattr(one, field.name), getattr(other, field.name), atol=1e-6, rtol=1e-9
        )


@settings(deadline=None)
@given(life=lives)
def test_it_is_the_plain_recursion_whatever_the_gains(life: list[list[float]]) -> None:
    evidence, sums = played(table(life), [len(life)])
    for bet, own in enumerate(table(life).tolist()):
        total, height, _, _ = naive(own)
        assert float(evidence.totals[bet]) == pytest.approx(total, abs=1e-6)
        assert float(evidence.heights[bet]) == pytest.approx(height, abs=1e-6)
        # Where a path comes back to its lowest point, rounding decides which of the two it is.
        assert any(float(evidence.tops[bet]) == pytest.approx(one, abs=1e-6) for one in tops(own))
    assert bool(sums.isfinite().all())
    ends = torch.logsumexp(evidence.totals + even(len(evidence.totals)), 0)
    assert float(sums[-1]) == pytest.approx(float(ends), abs=1e-9)


@settings(deadline=None)
@given(steps=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_spans_heights_and_tops_are_counted_from_the_lowest_point(steps: list[int]) -> None:
    """In whole numbers, where no rounding can move a lowest point."""
    evidence, _ = played(table([[float(step)] for step in steps]), [len(steps)])
    _, height, span, top = naive([float(step) for step in steps])
    told = evidence.heights, evidence.spans, evidence.tops
    assert tuple(map(float, told)) == (height, span, top)


@settings(deadline=None)
@given(life=lives, data=st.data())
def test_it_does_not_matter_how_a_stream_is_cut(
    life: list[list[float]], data: st.DataObject
) -> None:
    left, sizes = len(life), []
    while left:
        sizes.append(data.draw(st.integers(1, left)))
        left -= sizes[-1]
    evidence, sums = played(table(life), sizes)
    whole, together = played(table(life), [len(life)])
    torch.testing.assert_close(evidence.totals, whole.totals, atol=1e-6, rtol=1e-9)
    torch.testing.assert_close(evidence.heights, whole.heights, atol=1e-6, rtol=1e-9)
    # At the lowest point itself, where rounding decides which one it is, there is no top.
    risen = whole.heights > 1e-6
    torch.testing.assert_close(evidence.tops[risen], whole.tops[risen], atol=1e-6, rtol=1e-9)
    torch.testing.assert_close(sums, together, atol=1e-6, rtol=1e-9)


def test_spans_do_not_depend_on_the_cut_where_the_lowest_point_is_clear() -> None:
    life = torch.randn(4, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, _ = played(life, [300])
    assert_close(played(life, [1] * 300)[0], whole)
    assert_close(played(life, [7] * 42 + [6])[0], whole)
    assert whole.spans.tolist() == [naive(own)[2] for own in life.tolist()]


def test_it_starts_with_nothing() -> None:
    none = Evidence.none(3)
    assert none.totals.tolist() == [-math.inf] * 3
    assert none.heights.tolist() == none.spans.tolist() == none.tops.tolist() == [0.0] * 3
    evidence, sums = none.added(torch.zeros(3, 1, dtype=torch.float64), even(3))
    # R = (1 + 0) e, and e is one.
    assert evidence.totals.tolist() == pytest.approx([0] * 3)
    assert sums.tolist() == pytest.approx([0])


def test_bets_that_neither_gain_nor_lose_count_samples() -> None:
    _, sums = played(torch.zeros(2, 1000, dtype=torch.float64), [300, 700])
    torch.testing.assert_close(sums.exp(), torch.arange(1, 1001).double())


def test_a_long_loss_is_forgotten_and_a_long_gain_never_overflows() -> None:
    worse, better = torch.full((1, 5000), -3.0).double(), torch.full((1, 5000), 3.0).double()
    evidence, _ = Evidence.none(1).added(worse, even(1))
    assert float(evidence.spans) == float(evidence.heights) == 0
    evidence, sums = evidence.added(better, even(1))
    assert float(evidence.spans) == 5000
    assert float(sums[-1]) == pytest.approx(15_000, abs=1)
    evidence, _ = evidence.added(worse[:, :4000], even(1))
    assert float(evidence.tops) == pytest.approx(15_000)
    assert float(evidence.heights) == pytest.approx(3000)


def test_it_grows_by_one_a_sample_on_average_as_long_as_nothing_changes() -> None:
    """R - n is a martingale: 20,000 streams of 25 samples."""
    generator = torch.Generator().manual_seed(1)
    e_values = 0.5 + torch.rand(20_000, 25, generator=generator, dtype=torch.float64)
    evidence, _ = Evidence.none(20_000).added(e_values.log(), even(20_000))
    final = evidence.totals.exp()
    error = float(final.std()) / 20_000**0.5
    assert float(final.mean()) == pytest.approx(25, abs=4 * error)
    assert error < 0.3


def test_the_threshold_in_samples_is_passed_after_as_many_or_more() -> None:
    generator = torch.Generator().manual_seed(2)
    run_times = []
    for _ in range(300):
        gains = (0.5 + torch.rand(1, 3000, generator=generator, dtype=torch.float64)).log()
        _, sums = Evidence.none(1).added(gains, even(1))
        passed = (sums >= math.log(100)).nonzero()
        assert len(passed)
        run_times.append(int(passed[0]) + 1)
    mean = sum(run_times) / len(run_times)
    assert 95 < mean < 150
