"""Tests for the service.trainer.fair_queue module."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trainer.fair_queue import FairQueue

OWNERS = st.sampled_from("abcd")


@given(st.lists(st.tuples(OWNERS, st.floats(0, 10)), max_size=60))
def test_each_owners_values_come_in_order_and_all_of_them(puts: list[tuple[str, float]]) -> None:
    queue: FairQueue[str, tuple[int, float]] = FairQueue()
    wanted, found = defaultdict(list), defaultdict(list)
    for number, (owner, cost) in enumerate(puts):
        queue.put(owner, [(number, cost)])
        wanted[owner].append(number)
    while queue:
        owner, (number, cost) = queue.take()
        found[owner].append(number)
        queue.charge(owner, cost)
    assert found == wanted


@given(
    st.dictionaries(OWNERS, st.floats(0.1, 5), min_size=2),
    st.lists(st.tuples(OWNERS, st.integers(1, 4)), max_size=20),
)
def test_who_has_something_waiting_never_falls_behind_by_more_than_one_value(
    costs: dict[str, float], before: list[tuple[str, int]]
) -> None:
    queue: FairQueue[str, int] = FairQueue()
    for owner, n in before:  # whatever has happened, nobody has a lead from it
        if owner in costs:
            queue.put(owner, range(n))
            while queue:
                queue.charge(queue.take()[0], costs[owner])
    for owner in costs:
        queue.put(owner, range(40))
    spent = dict.fromkeys(costs, 0.0)
    for _ in range(30):
        owner, _ = queue.take()
        spent[owner] += costs[owner]
        queue.charge(owner, costs[owner])
    assert max(spent.values()) - min(spent.values()) <= 2 * max(costs.values()) + 1e-9


def test_who_was_quiet_has_saved_nothing_up() -> None:
    queue: FairQueue[str, int] = FairQueue()
    queue.put("loud", range(100))
    for _ in range(50):
        queue.charge(queue.take()[0], 1.0)
    queue.put("quiet", range(100))
    order = []
    for _ in range(10):
        owner, _ = queue.take()
        order.append(owner)
        queue.charge(owner, 1.0)
    assert order.count("quiet") == 5


def test_what_is_dropped_does_not_come() -> None:
    queue: FairQueue[str, int] = FairQueue()
    queue.put("a", [1, 2])
    queue.put("b", [3])
    queue.drop("a")
    assert (queue.waiting("a"), queue.waiting("b"), len(queue)) == (0, 1, 1)
    assert queue.take() == ("b", 3)
    assert not queue
    with pytest.raises(ValueError):
        queue.take()
