"""Tests for the core.memory.marginals module: whether features are distributed as they were."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.memory import marginals as module
from core.memory.marginals import Marginals


def normal(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def sparse(n: int, d: int, seed: int) -> Tensor:
    """Features that are zero but for one sample in a hundred, as at an image's edge."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, d, generator=generator) < 0.01).float()


def clumped(n: int, d: int, seed: int) -> Tensor:
    """Features that all follow one number."""
    return normal(n, 1, seed) + 0.1 * normal(n, d, seed + 1)


def tailed(n: int, d: int, seed: int) -> Tensor:
    """With Student's t of five degrees: a kurtosis of nine."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(5, n, d, generator=generator).square().mean(0)
    return normal(n, d, seed + 1) / square.sqrt()


def of(x: Tensor, size: int = 100) -> Marginals:
    kept = Marginals()
    for part in torch.split(x, size):
        kept = kept.observed(part)
    return kept


def differ(kept: Marginals, x: Tensor, unit: float = 1.0) -> bool:
    return kept.differ(x, torch.full((x.shape[1],), unit))


@given(
    seed=st.integers(0, 999),
    sizes=st.lists(st.integers(1, 300), min_size=2, max_size=6),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_moments_are_those_of_all_samples_however_they_are_cut(
    seed: int, sizes: list[int], scale: float
) -> None:
    x = scale * (normal(sum(sizes), 3, seed) + 5)
    kept = Marginals()
    for part in torch.split(x, sizes):
        kept = kept.observed(part)
    assert kept.samples == len(x)
    torch.testing.assert_close(kept.mean, x.double().mean(0), rtol=1e-5, atol=1e-6 * scale)
    # Deviations are from the mean of the time, which is not yet that of all.
    assert bool((kept.square >= 0.2 * x.double().var(0, correction=0)).all())
    once = of(x, len(x))
    torch.testing.assert_close(once.square, x.double().var(0, correction=0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("draw", [normal, sparse, clumped, tailed])
@pytest.mark.parametrize("d", [1, 40, 400])
def test_samples_of_the_same_kind_hardly_ever_differ(draw, d: int) -> None:  # type: ignore[no-untyped-def]
    kept = of(draw(2000, d, 1))
    found = [differ(kept, draw(n, d, 100 + seed)) for n in (30, 100, 400) for seed in range(10)]
    assert sum(found) <= 1


@pytest.mark.parametrize(
    ("change", "n"),
    [
        (lambda x: x + torch.eye(x.shape[1])[3], 60),  # one sensor is off
        (lambda x: x * (1 - torch.eye(x.shape[1])[3]), 60),  # one sensor sticks at its mean
        (lambda x: x * (1 + 1.5 * torch.eye(x.shape[1])[3]), 100),  # one sensor is noisy
        (lambda x: x + 0.4, 100),  # all are off a little
        (lambda x: x * 1.5, 60),
    ],
    ids=["off", "stuck", "noisy", "all a little", "all wider"],
)
@pytest.mark.parametrize("d", [8, 40, 150])
def test_what_has_changed_differs(change, n: int, d: int) -> None:  # type: ignore[no-untyped-def]
    kept = of(normal(2000, d, 1))
    assert all(differ(kept, change(normal(n, d, 100 + seed))) for seed in range(5))


def test_a_change_of_a_tenth_of_a_deviation_is_none() -> None:
    kept = of(normal(2000, 20, 1))
    assert not differ(kept, normal(50_000, 20, 2) + 0.1)
    assert differ(kept, normal(50_000, 20, 2) + 0.3)


def test_a_feature_that_stood_still_may_move_in_one_sample_and_not_in_many() -> None:
    kept = of(torch.zeros(2000, 30))
    x = torch.zeros(100, 30)
    assert not differ(kept, x)
    x[0, 5] = 1.0
    assert not differ(kept, x)
    x[:20, 5] = 1.0
    assert differ(kept, x)


def test_other_shares_of_classes_move_what_is_expected() -> None:
    def of_shares(share: float, n: int, seed: int) -> tuple[Tensor, Tensor]:
        codes = (torch.arange(n) < share * n).long()
        return normal(n, 12, seed) + 3 * codes[:, None], codes

    kept = of(of_shares(0.5, 2000, 1)[0])
    x, _ = of_shares(0.8, 200, 2)
    drawn, codes = of_shares(0.5, 256, 3)
    unit = torch.ones(12)
    known = kept.moved(drawn.double(), codes, torch.tensor([-0.3, 0.3]))
    torch.testing.assert_close(known.values[0], torch.full((12,), 0.9).double(), rtol=0.2, atol=0)
    assert kept.differ(x, unit)
    assert not kept.differ(x, unit, known)
    x[:, 4] += 1.5
    assert kept.differ(x, unit, known)


def test_of_samples_too_wide_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FEATURES", 3)
    assert Marginals().observed(normal(10, 4, 0)).samples == 0
    assert Marginals().observed(normal(10, 3, 0)).samples == 10


def test_what_is_kept_for_long_says_the_same() -> None:
    kept = of(1e-3 * normal(2000, 8, 1) + 1e3)
    for seed in range(5):
        x = 1e-3 * normal(60, 8, 50 + seed) + 1e3
        x[:, 2] += 2e-3 * (seed % 2)
        assert differ(kept.compact(), x, 1e-3) == differ(kept, x, 1e-3) == bool(seed % 2)
