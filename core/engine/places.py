"""Places that events name: counted in all of the stream, whatever passed by a model at rest.

An engine reckons with places that know nothing of what passed by (`core.engine.state.StreamState`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.engine.state import StreamState
from core.events import Event

BATCHES = ("batch_index", "estimated_start_batch")
SAMPLES = (
    "sample_index",
    "estimated_start_sample",
    "first_sample",
    "last_sample",
    "boundary_sample",
    "burst_start_sample",
)
"""Fields of events that hold a place in the stream."""


def placed(stream: StreamState, events: Sequence[Event]) -> list[Event]:
    """The events, with places counted in all of the stream.

    Arguments:
        stream: Its passages say what passed by.
        events: As the engine reckons.
    """
    if not stream.passages:
        return list(events)
    return [_placed(stream, event) for event in events]


def _placed(stream: StreamState, event: Event) -> Event:
    fields = vars(event)
    moved = {name: stream.batch_place(fields[name]) for name in BATCHES if name in fields}
    moved |= {name: stream.place(fields[name]) for name in SAMPLES if name in fields}
    return replace(event, **moved) if moved else event
