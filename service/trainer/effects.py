"""What an entry does to a state, where no version that is kept is needed for it."""

from __future__ import annotations

import torch

from core.batch import Batch
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import EmptySubTask
from core.events import Event
from service.wire import Control, RawBatch, RawLabels, RawName

Asked = RawBatch | RawLabels | RawName | Control
"""What an entry asks for."""


def effect(engine: Engine, state: EngineState, asked: Asked) -> tuple[EngineState, list[Event]]:
    """The state after an entry other than `rollback` and `restore`, and what happened.

    Raises:
        GMRError: The entry cannot be used.
    """
    if isinstance(asked, RawBatch):
        return engine.step(state, _batch(asked))
    if isinstance(asked, RawLabels):
        return engine.label(state, asked.sample_ids, asked.labels)
    if isinstance(asked, RawName):
        return engine.name(state, asked.proposal, asked.label)
    by = asked.by
    match asked.kind:
        case "boundary":
            state, events = engine.declare_boundary(state, by, asked.note)
            if not events:
                raise EmptySubTask.of(state.sub_task.number)
            return state, events
        case "settle":
            return engine.settle(state)
        case "aim":
            return engine.aim(state, asked.samples or None, asked=by is not None, by=by)
        case "mode":
            return engine.change_mode(state, Mode(asked.mode or ""), by, asked.note)
        case "settings":
            return engine.change_settings(state, asked.settings or {}, by, asked.note)
        case "rename" if asked.labels is not None:
            return engine.rename_class(state, *asked.labels, by, asked.note)
        case "merge" if asked.labels is not None:
            return engine.merge_classes(state, *asked.labels, by, asked.note)
        case "expire":
            return engine.expire(state, asked.samples or 0)
    return state, []


def _batch(raw: RawBatch) -> Batch:
    """A batch as core takes it."""
    # uint8 and the shape of images go on as they are: they tell images from tables.
    features = raw.features
    if not features.flags.writeable:  # a view of what Redis sent, which torch cannot share
        features = features.copy()
    codes = None if raw.codes is None else torch.from_numpy(raw.codes.copy())
    return Batch(torch.from_numpy(features), codes, raw.vocabulary, raw.sample_ids)
