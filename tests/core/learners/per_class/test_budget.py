"""Tests for core.learners.per_class.budget: who may have how many components, decisions only."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.density.owned import NO_CLASS
from core.learners.per_class.budget import Budget

relaxed = settings(deadline=None, max_examples=150, derandomize=True)


@dataclass
class Somebody:
    """Who has what, written down."""

    mass: dict[int, float]
    active: set[int] = field(default_factory=set)
    frozen: dict[int, int] = field(default_factory=dict)
    sub_tasks_of: dict[int, int] = field(default_factory=dict)
    pool_allowance: int = 0

    @property
    def owners(self) -> set[int]:
        return set(self.mass)

    def mass_of(self, owner: int | None) -> float:
        return sum(self.mass.values()) if owner is None else self.mass.get(owner, 0.0)

    def n_frozen_of(self, owner: int) -> int:
        return self.frozen.get(owner, 0)

    def is_active(self, owner: int) -> bool:
        return owner in self.active


masses = st.dictionaries(st.integers(-1, 30), st.floats(0, 1e6), min_size=1, max_size=20)


# Shares -----------------------------------------------------------------------------------


@relaxed
@given(
    mass=masses, spare=st.integers(0, 200), incoming=st.tuples(st.integers(0, 100), st.just(100))
)
def test_everybody_gets_one_at_least_and_all_together_get_all(
    mass: dict[int, float], spare: int, incoming: tuple[int, int]
) -> None:
    budget, state = Budget(len(mass) + spare), Somebody(mass)
    state.pool_allowance = budget.pool_allowance(state, incoming)
    allowance = budget.allowance(state)
    assert set(allowance) == set(mass)
    assert min(allowance.values()) >= 1
    total = sum(allowance.values())
    # A pool without classes beside it gets by its share, which is everything.
    assert total == budget.n_components or set(mass) == {NO_CLASS}
    classes = [allowance[owner] for owner in sorted(mass) if owner != NO_CLASS]
    assert not classes or max(classes) - min(classes) <= 1
    assert classes == sorted(classes, reverse=True)


@pytest.mark.parametrize(
    ("pool", "classes", "incoming", "expected"),
    [
        (300.0, 700.0, (0, 0), 30),
        (0.0, 900.0, (100, 100), 10),  # what is about to be learned counts
        (1000.0, 0.0, (0, 0), 99),  # the class keeps one
        (1.0, 1e6, (0, 0), 1),
        (0.0, 0.0, (0, 0), 99),
    ],
)
def test_the_pool_gets_by_its_share_of_the_samples(
    pool: float, classes: float, incoming: tuple[int, int], expected: int
) -> None:
    state = Somebody({NO_CLASS: pool, 3: classes})
    assert Budget(100).pool_allowance(state, incoming) == expected


def test_without_unlabelled_samples_the_pool_gets_nothing() -> None:
    state = Somebody({0: 10.0, 1: 10.0})
    assert Budget(10).pool_allowance(state, (0, 100)) == 0
    assert Budget(10).allowance(state) == {0: 5, 1: 5}


def test_a_pool_that_is_alone_gets_everything() -> None:
    assert Budget(10).pool_allowance(Somebody({NO_CLASS: 5.0}), (5, 5)) == 10


# Frozen and active ------------------------------------------------------------------------


@relaxed
@given(
    allowed=st.integers(1, 100),
    sub_tasks=st.integers(0, 30),
    frozen=st.integers(0, 100),
    active=st.booleans(),
)
def test_an_allowance_is_split_without_rest(
    allowed: int, sub_tasks: int, frozen: int, active: bool
) -> None:
    frozen = min(frozen, allowed)
    state = Somebody({0: 1.0}, {0} if active else set(), {0: frozen}, {0: sub_tasks})
    most_frozen, most_active = Budget(allowed).split(state, 0, allowed)
    assert most_frozen + most_active == allowed
    assert most_frozen >= 0
    assert most_active >= 1 if active else most_active == 0
    if active and sub_tasks and allowed > 1:
        # Nobody is asked for more than a fair part, and nothing lies idle.
        assert most_active >= allowed - frozen
        assert most_frozen <= frozen
        assert most_active <= max(allowed - frozen, round(allowed / (sub_tasks + 1)), 1)


def test_all_sub_tasks_fade_alike() -> None:
    state = Somebody({0: 1.0}, {0}, {0: 60}, {0: 2})
    assert Budget(60).split(state, 0, 60) == (40, 20)
    state.sub_tasks_of[0] = 5
    assert Budget(60).split(state, 0, 60) == (50, 10)


def test_what_frozen_ones_do_not_use_is_for_the_active_ones() -> None:
    state = Somebody({0: 1.0}, {0}, {0: 3}, {0: 1})
    assert Budget(60).split(state, 0, 60) == (3, 57)


def test_most_active_is_the_active_part_of_ones_allowance() -> None:
    state = Somebody({0: 1.0, 1: 1.0}, {0}, {0: 2, 1: 4}, {0: 1, 1: 1})
    assert Budget(8).most_active(state, 0) == 2
    assert Budget(8).most_active(state, 1) == 0


# More owners than components --------------------------------------------------------------


@relaxed
@given(
    mass=st.dictionaries(st.integers(-1, 12), st.floats(1, 1e6), max_size=13),
    arriving=st.sets(st.integers(-1, 20), min_size=1),
    k=st.integers(1, 12),
)
def test_pooling_leaves_no_more_owners_than_components(
    mass: dict[int, float], arriving: set[int], k: int
) -> None:
    for owner in sorted(mass, reverse=True)[k:]:
        del mass[owner]  # as many as there may be
    state = Somebody(mass)
    pooled, brings = Budget(k).pooled(state, arriving)
    after = {NO_CLASS if owner in pooled else owner for owner in set(mass) | arriving}
    assert len(after) <= k
    assert NO_CLASS not in pooled
    if brings is None:
        assert not pooled & set(mass)  # whoever has components of its own keeps them
    else:
        assert pooled & set(mass) == {brings}
        own = {owner: one for owner, one in mass.items() if owner != NO_CLASS}
        assert own[brings] == min(own.values())
        assert NO_CLASS not in mass
    if len(set(mass) | arriving) <= k:
        assert (pooled, brings) == (set(), None)


def test_the_last_place_is_the_pools() -> None:
    state = Somebody({0: 5.0, 1: 9.0})
    assert Budget(4).pooled(state, {2, 3}) == (set(), None)
    assert Budget(4).pooled(state, {2, 3, 4}) == ({3, 4}, None)
    assert Budget(3).pooled(state, {2, 3}) == ({2, 3}, None)
    assert Budget(2).pooled(state, {2}) == ({0, 2}, 0)


def test_of_two_classes_of_the_same_size_the_younger_one_is_pooled() -> None:
    assert Budget(2).pooled(Somebody({0: 5.0, 1: 5.0}), {7}) == ({1, 7}, 1)
