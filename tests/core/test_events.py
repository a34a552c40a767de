"""Tests for the core.events module: plain values that say what happened."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from core import events
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BatchScored, Event
from tests.core.states import play
from tests.core.streams import batches

KINDS = [
    value
    for _, value in inspect.getmembers(events, inspect.isclass)
    if issubclass(value, Event) and value not in (Event, BatchScored)
]


def test_every_event_has_a_name_of_its_own_on_the_wire() -> None:
    names = [kind.kind for kind in KINDS]
    assert len(set(names)) == len(names) >= 9
    assert not {Event.kind, BatchScored.kind} & set(names)
    assert all(name.islower() and name.isidentifier() for name in names)
    assert sorted(names) == list(events.KINDS)


def leaves_of(hint: Any) -> Iterator[Any]:
    """What a value of a type is made of in the end."""
    parts = typing.get_args(hint)
    if typing.is_typeddict(hint):
        parts = tuple(typing.get_type_hints(hint).values())
    if not parts:
        yield hint
    for part in parts:
        yield from leaves_of(part)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_events_are_frozen_and_hold_numbers_and_text_only(kind: type[Event]) -> None:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name == "explanation":
            continue  # nested; what it holds is looked at below
        allowed = (int, float, str, bool, type(None))
        assert set(leaves_of(hints[field.name])) <= set(allowed), field.name
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert kind.__doc__


def test_whatever_an_engine_reports_is_ready_for_json() -> None:
    engine = Engine(EngineConfig(n_components=6))
    stream = [*batches([0, 1], 12), *batches([2], 8, size=4, seed=5), "settle", *batches([3], 3)]
    _, happened = play(engine, engine.start(), stream)
    kinds = {event.kind for event in happened}
    assert {"batch_learned", "class_discovered", "replay", "boundary"} <= kinds
    for event in happened:
        values = event.to_dict()
        assert values["kind"] == event.kind
        assert json.loads(json.dumps(values, allow_nan=False)) == values
        again = {name: value for name, value in values.items() if name != "kind"}
        assert type(event)(**again) == event
