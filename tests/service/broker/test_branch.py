"""Tests for the service.broker.branch module."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.broker.branch import MOST_RANGES, Branch, position
from service.broker.entries import next_id


def test_going_forward_again_brings_back_what_was_dropped() -> None:
    start = Branch()
    once = start.rolled_back(start, first="3-0", entry_id="9-0")
    assert once.drops("5-0")
    # Back to a version that was kept before the first rollback, with entries up to 7.
    twice = once.rolled_back(start, first="8-0", entry_id="15-0")
    assert [n for n in range(20) if twice.drops(f"{n}-0")] == list(range(8, 16))
    assert twice.restored == "15-0"


def test_an_upload_drops_all_that_came_before() -> None:
    branch = Branch(boundaries=3).uploaded("9-5")
    assert [branch.drops(entry) for entry in ("0-0", "9-5", "9-6")] == [True, True, False]
    assert branch.boundaries == 0


def test_what_is_dropped_is_bounded_and_the_oldest_goes_first() -> None:
    branch = Branch()
    for i in range(MOST_RANGES + 5):
        branch = branch.rolled_back(branch, f"{2 * i}-0", f"{2 * i}-9")
    assert len(branch.dropped) == MOST_RANGES
    assert (branch.drops("0-5"), branch.drops("10-5")) == (False, True)


ACTIONS = st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=30)


@given(ACTIONS)
def test_what_is_dropped_is_what_the_model_does_not_come_from(actions: list[int | None]) -> None:
    """Entries one by one (None), or a rollback to the state after the k-th step."""
    states: list[tuple[frozenset[int], Branch, int]] = [(frozenset(), Branch(), 0)]
    for entry, action in enumerate(actions, 1):
        learned, branch, _ = states[-1]
        if action is None:
            states.append((learned | {entry}, branch, entry))
            continue
        kept, its_branch, reach = states[action % len(states)]
        after = branch.rolled_back(its_branch, next_id(f"{reach}-0"), f"{entry}-0")
        states.append((kept, after, entry))
        sent = {n for n in range(1, entry) if actions[n - 1] is None}
        assert {n for n in sent if not after.drops(f"{n}-0")} == kept
        assert Branch.from_json(after.to_json(decided="1-1")) == after


@given(st.tuples(st.integers(0, 99), st.integers(0, 99)), st.tuples(st.integers(0, 99)))
def test_ids_compare_as_entries_are_ordered(one: tuple[int, int], other: tuple[int]) -> None:
    assert (position(f"{one[0]}-{one[1]}") < position(f"{other[0]}")) == (one < (*other, 0))
