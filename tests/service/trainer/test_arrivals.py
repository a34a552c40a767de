"""Tests for service.trainer.arrivals, and for what is set aside in a stream that goes slowly."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.batch import Batch
from core.engine.engine import Engine
from core.engine.state import EngineState
from service.broker.entries import Entry
from service.trainer.arrivals import GAPS, KEPT, Arrivals
from service.trainer.own_entries import OwnEntries
from service.wire import Control
from tests.core.states import lived
from tests.core.streams import blob
from tests.service.conftest import MakeSettings

BEGUN = 1_700_000_000_000


@given(st.lists(st.integers(0, 600_000), min_size=1, max_size=40))
def test_silence_is_longer_than_any_gap_of_late(gaps: list[int]) -> None:
    arrivals = Arrivals(f"{BEGUN}-0")
    for moment in accumulate(gaps, initial=BEGUN):
        arrivals.note(f"{moment}-7")
    silence = arrivals.silence_s
    for since, gap in enumerate(reversed(gaps)):
        assert silence >= GAPS * gap / 1000 * KEPT**since * (1 - 1e-9)
    assert silence <= GAPS * max(gaps) / 1000


def test_of_the_first_entry_no_gap_is_known() -> None:
    arrivals = Arrivals()
    arrivals.note(f"{BEGUN}-0")
    assert arrivals.silence_s == 0


class Appended:
    """A stream that remembers what was appended."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def append(self, control: Control) -> None:
        self.kinds.append(control.kind)


def entries_of(
    made: MakeSettings, engine: Engine, state: EngineState, gap_s: int
) -> tuple[OwnEntries, Appended]:
    """Of a stream of which batches have come in these intervals."""
    appended: Any = Appended()
    own = OwnEntries(made(settle_after_s=1), engine, appended, state.stream.samples, f"{BEGUN}-0")
    for count in range(1, 9):
        entry = Entry(f"{BEGUN + 1000 * count * gap_s}-0", {b"kind": b"batch"})
        own.read(entry, applied=True)
    return own, appended


def test_what_is_set_aside_waits_for_a_silence_as_the_stream_goes(settings: MakeSettings) -> None:
    config = settings(window=200, warm_up=300).engine_config()
    engine = Engine(config)
    state = lived(engine, [0, 1], 8)
    state, _ = engine.settle(state)
    suspected = state.with_pending(set_aside=(Batch(blob(7, 1, seed=1)),))
    own, appended = entries_of(settings, engine, state, gap_s=60)
    for quiet_s in (0.5, 2, 60, 170):
        own.settle(suspected, quiet_s=quiet_s)
    assert appended.kinds == []
    own.settle(suspected, quiet_s=181)
    assert appended.kinds == ["settle"]
    # Windows alone wait as long as the settings say, however slowly the stream goes.
    own, appended = entries_of(settings, engine, state, gap_s=60)
    window, _ = engine.step(state, Batch.of(blob(0, 50, seed=3), [0] * 50))
    assert not engine.is_settled(window)
    assert not window.suspected
    own.settle(window, quiet_s=0.5)
    own.settle(window, quiet_s=2)
    assert appended.kinds == ["settle"]
