"""The benchmark of accuracy without labels asks about the samples whose accuracy it knows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.label_free import BATCH, TURN, WINDOW, Hidden, _shown, cases
from core.config import EngineConfig


def stream(*parts: tuple[int, bool]) -> Hidden:
    """Two clouds that overlap, some labels of which are sent."""
    shown = np.concatenate([np.full(n, sent) for n, sent in parts])
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, len(shown))
    x = (rng.normal(size=(len(shown), 3)) + 1.5 * y[:, None]).astype(np.float32)
    return Hidden("made up", "parts", x, y, shown)


@pytest.mark.parametrize(
    ("parts", "windows"),
    [
        ([(1500, True), (WINDOW, False)], 1),
        ([(1500, True), (WINDOW - BATCH, False), (BATCH, True), (WINDOW - BATCH, False)], 0),
        ([(1500, True), (BATCH, False), (BATCH, True), (WINDOW, False)], 1),
    ],
)
def test_no_window_goes_on_behind_labels(parts: list[tuple[int, bool]], windows: int) -> None:
    """The estimate is of the newest samples, which labels have come for since."""
    found = cases(stream(*parts), EngineConfig(preset="flat", n_components=8))
    assert len(found) == windows
    assert all(case.estimate is not None and 0 < case.accuracy < 1 for case in found)


def test_windows_go_on_where_each_batch_has_some_labels() -> None:
    hidden = stream((1000, True), (2000, False))
    hidden.shown[1000::10] = True
    found = cases(hidden, EngineConfig(preset="flat", n_components=8))
    assert len(found) == 1


@pytest.mark.parametrize("seed", range(3))
def test_turns_are_of_whole_batches(seed: int) -> None:
    shown = _shown("turns", 12_000, seed).reshape(-1, BATCH)
    assert (shown.all(1) | ~shown.any(1)).all()
    (began,) = np.nonzero(np.diff(shown[:, 0].astype(int)))
    assert set(np.diff(began)) == {TURN}
