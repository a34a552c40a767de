"""Tests for core.drift.sequential.record: dataclasses that are frozen by the type checker."""

from __future__ import annotations

from dataclasses import replace

from mypy import api

from core.drift.sequential.record import record


@record
class Pair:
    first: int
    second: int


def test_it_is_a_dataclass_that_is_compared_by_identity() -> None:
    pair = Pair(1, second=2)
    changed = replace(pair, first=3)
    assert (changed.first, changed.second, pair.first) == (3, 2, 1)
    assert pair == pair
    assert pair != Pair(1, 2)
    assert len({pair, Pair(1, 2)}) == 2


CHANGED = """
from core.drift.sequential.record import record

@record
class Pair:
    first: int
    second: int

Pair(1, 2).first = 3
"""


def test_the_type_checker_lets_nobody_change_it() -> None:
    said, _, status = api.run(["--config-file=", "--strict", "-c", CHANGED])
    assert status == 1
    assert 'Property "first" defined in "Pair" is read-only' in said
    assert "Found 1 error" in said
