"""Tests for core.memory.fingerprints: what was learned before is told from what is new."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.memory.fingerprints import FEWEST, MOST, Fingerprints, fingerprints
from tests.core import simulated_device


def rows(n: int, d: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def none(x: Tensor) -> Tensor:
    return torch.full((len(x),), -1)


def learned(*parts: Tensor) -> Fingerprints:
    known = Fingerprints()
    for x in parts:
        known = known.learned(fingerprints(x), none(x))
    return known


def repeating(known: Fingerprints, x: Tensor) -> bool:
    return known.heard(fingerprints(x), none(x)).repeating


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 2)), min_size=1, max_size=30),
        max_size=12,
    )
)
def test_every_sample_is_counted_once_and_called_what_it_was_called_first(
    parts: list[list[tuple[int, int]]],
) -> None:
    known, counts, names = Fingerprints(), Counter[int](), dict[int, int]()
    for part in parts:
        x = torch.tensor([[float(value), 1.0] for value, _ in part])
        codes = torch.tensor([code for _, code in part])
        known = known.learned(fingerprints(x), codes)
        for mark, code in zip(fingerprints(x).tolist(), codes.tolist(), strict=True):
            counts[mark] += 1
            if names.get(mark, -1) < 0:
                names[mark] = code
    assert known.marks.tolist() == sorted(counts)
    assert known.counts.tolist() == [counts[mark] for mark in sorted(counts)]
    assert known.codes.tolist() == [names[mark] for mark in sorted(counts)]


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 9))
def test_a_fingerprint_is_of_the_sample_alone(d: int, n: int, seed: int) -> None:
    x = rows(n, d, seed)
    alone = [int(fingerprints(one[None])[0]) for one in x]
    assert fingerprints(x).tolist() == alone
    assert fingerprints(x.to(simulated_device.DEVICE)).tolist() == alone
    assert fingerprints(x.T.contiguous().T).tolist() == alone


def test_the_order_of_features_and_every_one_of_them_count() -> None:
    x = rows(1, 8)
    marks = {int(fingerprints(x.roll(shift))[0]) for shift in range(8)}
    for feature in range(8):
        other = x.clone()
        other[0, feature] += 1e-6
        marks.add(int(fingerprints(other)[0]))
    assert len(marks) == 16


def test_small_whole_numbers_have_fingerprints_of_their_own() -> None:
    # Their lowest bits are zero, so that sums alone would share theirs.
    grid = torch.cartesian_prod(*[torch.arange(12.0)] * 4)
    marks = fingerprints(grid)
    assert len(set(marks.tolist())) > len(grid) - 3
    assert torch.tensor(marks % 64).bincount(minlength=64).min() > 0.7 * len(grid) / 64


def test_samples_that_come_again_are_told_and_new_ones_are_not() -> None:
    x = rows(500)
    known = learned(x[:250], x[250:])
    assert repeating(known, x[100:200])
    assert not repeating(known, rows(100, seed=1))
    assert not repeating(known, torch.cat([x[:80], rows(20, seed=1)]))
    assert repeating(known, torch.cat([x[:95], rows(5, seed=1)]))  # a file changed a little
    assert not repeating(Fingerprints(), x)


def test_samples_that_come_one_by_one_are_told_after_a_few() -> None:
    x = rows(50)
    known, told = learned(x), []
    for one in [*x[:6], rows(1, seed=1)[0], x[6]]:
        known = known.heard(fingerprints(one[None]), torch.tensor([-1]))
        told.append(known.repeating)
    assert told == [False] * (FEWEST - 1) + [True] * (7 - FEWEST) + [False, False]


def test_each_round_is_a_repetition_whatever_came_before() -> None:
    x = rows(300)
    known = learned(x)
    for _ in range(3):
        for part in x.split(50):
            known = known.heard(fingerprints(part), none(part))
            assert known.repeating
            known = known.learned(fingerprints(part), none(part))


def test_what_comes_more_often_than_a_round_brings_it_is_no_repetition() -> None:
    x = rows(300)
    known = learned(x)
    assert not repeating(known, x[:1].expand(30, -1))  # a sensor that is stuck
    first = fingerprints(x[:50]), none(x[:50])
    known = known.heard(*first).learned(*first)
    assert repeating(known, x[50:100])
    assert not repeating(known, x[:50])  # a sender that goes round in a small circle


@pytest.mark.parametrize("shares", [[1.0] * 30, [0.5**k for k in range(12)]])
def test_combinations_of_categories_are_no_repetition(shares: list[float]) -> None:
    generator = torch.Generator().manual_seed(3)

    def drawn(n: int, weights: list[float]) -> Tensor:
        values = torch.multinomial(torch.tensor(weights), n, True, generator=generator)
        return torch.stack([values, values.square()], 1).float()

    known = learned(drawn(1000, shares))
    for weights in (shares, shares[::-1], shares[:3]):
        assert not repeating(known, drawn(100, weights))


@pytest.mark.parametrize("values", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 10])
def test_a_stream_of_few_values_repeats_nothing(values: int, size: int) -> None:
    generator, known = torch.Generator().manual_seed(4), Fingerprints()
    for _ in range(300):
        x = torch.randint(values, (size, 1), generator=generator).float()
        known = known.heard(fingerprints(x), none(x))
        assert not known.repeating
        known = known.learned(fingerprints(x), none(x))


def test_a_few_that_come_twice_by_chance_do_not_hide_a_repetition() -> None:
    x = rows(300)
    x[280:] = x[:20]
    known = learned(*x.split(50))
    assert (known.twice, known.tells) == (20, True)
    assert repeating(known, x[30:130])
    assert not learned(*x.split(50), x[:50]).tells


def test_another_name_makes_another_sample_and_none_makes_none() -> None:
    x, ones = rows(60), torch.ones(60, dtype=torch.int64)
    own = fingerprints(x)
    named = Fingerprints().learned(own, ones)
    assert named.heard(own, ones).repeating
    assert named.heard(own, none(x)).repeating
    assert not named.heard(own, 2 * ones).repeating
    unnamed = learned(x)
    assert unnamed.heard(own, ones).repeating
    assert not unnamed.learned(own, ones).heard(own, 2 * ones).repeating


def test_what_is_kept_is_bounded_and_still_tells() -> None:
    x = rows(20 * MOST)
    known = learned(*x.split(500))
    assert MOST / 2 < len(known.marks) <= MOST
    assert (known.marks % 2**known.level == 0).all()
    assert repeating(known, x[:1000])
    assert not repeating(known, rows(1000, seed=1))
    some, few = fingerprints(x[:1000]), fingerprints(x[:2])
    assert known.share_known(some, none(x[:1000])) == 1.0
    assert known.share_known(few, none(x[:2])) is None


def test_of_too_few_samples_nothing_is_said() -> None:
    x = rows(50)
    known, own, nothing = learned(x), fingerprints(x), fingerprints(x[:0])
    assert known.share_known(own[:3], none(x[:3])) is None
    assert not repeating(known, x[:3])
    assert known.told().repeating
    assert known.heard(nothing, none(x[:0])) is known
    assert known.learned(nothing, none(x[:0])) is known
