"""Tests for the benchmarks.renames module."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import renames
from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Features, LabelledStream, Labels
from benchmarks.renames import NEXT, _found, _measured


@pytest.mark.parametrize(
    ("right", "after"),
    [
        ([True] * NEXT, 0),
        ([False] * 7 + [True] * 40, 2),  # five wrong ones of twenty may be among the next
        ([False] * 40, None),
        ([True] * (NEXT - 1), None),  # too few to tell
    ],
)
def test_a_new_name_is_found_where_most_of_the_next_samples_have_it(
    right: list[bool], after: int | None
) -> None:
    assert _found(np.array(right)) == after


class Table:
    """Names a sample, which is a class by itself, as it was called last; or for the first time."""

    def __init__(self, first: bool) -> None:
        self.first, self.names = first, dict[int, int]()

    def predict(self, x: Features) -> Labels:
        return np.array([self.names.get(int(one), NOBODY) for one in x[:, 0]])

    def learn(self, x: Features, y: Labels) -> None:
        for one, name in zip(x[:, 0], y, strict=True):
            if not (self.first and int(one) in self.names):
                self.names[int(one)] = int(name)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        # 25 of a batch of 100 are of the class, and the first batch is named before it is heard:
        # of the twenty from the twentieth on fifteen are.
        (lambda: Table(False), {"found": 20, "new": 1.0, "others": 1.0, "kept": 1.0}),
        (lambda: Table(True), {"found": None, "new": 0.0, "others": 1.0, "kept": 1.0}),
    ],
)
def test_who_hears_the_last_name_and_who_keeps_the_first(
    make: Callable[[], Table], expected: dict[str, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.arange(2400) % 4
    stream = LabelledStream("made up", y[:, None].astype(np.float32), y)
    monkeypatch.setattr(renames, "_opponent", lambda *_: make())
    assert _measured("table", stream, 1) == expected
