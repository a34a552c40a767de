"""Tests for gmr.gaps: places of values among those that are missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmr import gaps
from gmr.gaps import Gaps


@given(st.lists(st.booleans(), max_size=60))
def test_every_value_that_is_learned_has_its_place(missing: list[bool]) -> None:
    found = Gaps()
    for one in missing:
        found.observe(one)
    places = [place for place, one in enumerate(missing) if not one]
    assert [found.place(learned) for learned in range(len(places))] == places


def test_of_many_gaps_the_newest_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "MOST", 10)
    found = Gaps()
    for _ in range(1000):
        found.observe(True)
        found.observe(False)
    assert [found.place(learned) for learned in range(990, 1000)] == list(range(1981, 2000, 2))
    assert len(found._after) <= 20
