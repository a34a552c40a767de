"""Tests for core.engine.decision: what is done with a batch, as a table."""

from __future__ import annotations

from itertools import product

import pytest

from core.drift.detector import Level
from core.engine.decision import Decision, decide
from core.events import ChangeContinued, PriorShift

WHERE = {
    "sub_task": 0,
    "batch_index": 1,
    "sample_index": 100,
    "estimated_start_batch": 1,
    "estimated_start_sample": 100,
    "detector": "sequential",
    "signal": "occupancy",
    "evidence": {},
    "model_version": 1,
}
SHIFT = PriorShift(**WHERE)  # type: ignore[arg-type]
MORE = ChangeContinued(**WHERE, boundary_sample=50)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("level", "besides", "decision"),
    [
        (Level.NORMAL, {}, Decision.LEARN),
        (Level.NORMAL, {"burst": True}, Decision.BURST),
        (Level.WARNING, {}, Decision.SET_ASIDE),
        (Level.WARNING, {"full": True}, Decision.GIVE_UP),
        (Level.BOUNDARY, {}, Decision.BOUNDARY),
        (Level.BOUNDARY, {"instead": SHIFT}, Decision.PRIOR_SHIFT),
        (Level.BOUNDARY, {"instead": MORE}, Decision.CONTINUED),
    ],
)
def test_what_is_done_follows_from_what_was_found(
    level: Level, besides: dict[str, object], decision: Decision
) -> None:
    assert decide(level, **besides) == decision  # type: ignore[arg-type]


@pytest.mark.parametrize("level", Level)
def test_every_finding_has_a_decision_and_only_boundaries_begin_a_sub_task(level: Level) -> None:
    for burst, full in product([False, True], repeat=2):
        decision = decide(level, burst=burst, full=full)
        assert (decision is Decision.BOUNDARY) is (level is Level.BOUNDARY)


def test_every_decision_can_be_taken() -> None:
    taken = {
        decide(level, burst=burst, full=full, instead=instead)
        for level, burst, full, instead in product(
            Level, [False, True], [False, True], [None, SHIFT, MORE]
        )
    }
    assert taken == set(Decision)
