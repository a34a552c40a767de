"""Tests for core.engine.decision: what is done with a batch, as a table."""

from __future__ import annotations

from itertools import product

import pytest

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Level
from core.engine.decision import PHASE_AFTER, Decision, decide
from core.engine.engine import Engine
from core.events import ChangeContinued, PriorShift, SamplesRepeated
from tests.core.streams import batches, blob

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
AGAIN = SamplesRepeated(**WHERE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("level", "besides", "decision"),
    [
        (Level.NORMAL, {}, Decision.LEARN),
        (Level.NORMAL, {"burst": True}, Decision.BURST),
        (Level.NORMAL, {"burst": True, "lasting": True}, Decision.BOUNDARY),
        (Level.WARNING, {}, Decision.SET_ASIDE),
        (Level.WARNING, {"full": True}, Decision.GIVE_UP),
        (Level.ALARM, {}, Decision.BOUNDARY),
        (Level.ALARM, {"absorbed": SHIFT}, Decision.PRIOR_SHIFT),
        (Level.ALARM, {"absorbed": MORE}, Decision.CONTINUED),
        (Level.ALARM, {"absorbed": AGAIN}, Decision.REPEATED),
        (Level.NORMAL, {"absorbed": AGAIN}, Decision.LEARN),
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
        assert (decision is Decision.BOUNDARY) is (level is Level.ALARM)


TOLD = {
    "batch_set_aside": Decision.SET_ASIDE,
    "boundary": Decision.BOUNDARY,
    "outlier_burst": Decision.BURST,
    "prior_shift": Decision.PRIOR_SHIFT,
}


def test_phases_follow_from_decisions_as_the_table_says() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=12, experts=False))
    state = engine.start()
    outliers = [Batch(blob(9, 6, seed=5)), *batches([0, 1], 4, seed=6)]
    stream = [*batches([0, 1], 25, seed=1), *outliers, *batches([0], 8, seed=2)]
    stream += [*batches([2, 3], 25, seed=3), *batches([4], 3, seed=4)]
    seen = set()
    for batch in stream:
        before = state.phase
        state, events = engine.step(state, batch)
        taken = {TOLD[event.kind] for event in events if event.kind in TOLD}
        assert len(taken) <= 1
        for decision in taken:
            assert state.phase == PHASE_AFTER[decision]
        if not taken and before != "warning":
            assert state.phase == before or (before, state.phase) == ("learning", "armed")
        seen |= taken
    assert seen == set(TOLD.values())


def test_every_decision_can_be_taken() -> None:
    taken = {
        decide(level, burst=burst, full=full, absorbed=absorbed)
        for level, burst, full, absorbed in product(
            Level, [False, True], [False, True], [None, SHIFT, MORE, AGAIN]
        )
    }
    assert taken == set(Decision)
