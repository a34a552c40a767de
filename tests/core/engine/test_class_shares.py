"""Tests for how the engine follows the shares of classes."""

from __future__ import annotations

from core.config import EngineConfig
from core.engine.engine import Engine
from tests.core.states import lived

SIZE = 100


def test_classes_are_compared_with_samples_of_a_model_that_knows_them() -> None:
    """The reference begins with the window of the 3,000th sample; that window is full by then."""
    engine = Engine(EngineConfig(preset="flat", n_components=8, detector="none", experts=False))

    def told(samples: int) -> tuple[int, int]:
        state = lived(engine, [0, 1], samples // SIZE, size=SIZE)
        found = state.sub_task.class_shares.told([0, 1], 2)
        return found["samples"], found["reference_samples"]

    window, reference = told(3000)
    assert window >= 1000
    assert reference == 0
    window, reference = told(5000)
    # Of the first 2,000 samples nothing is left.
    assert 1500 < reference <= 5000 - 2000
    assert window >= 1000
