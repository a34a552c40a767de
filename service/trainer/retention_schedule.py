"""When the model is asked how well it holds the past: often enough, and for little time.

Rules of this module:

1. Asking takes at most `SHARE` of the time while the stream flows, whatever the model
   costs. In between, the latest answers stand, and name the version that gave them.
2. When the stream is quiet it is asked once more, so that the last word is about the
   model that is served.
3. The model does not depend on when it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.batch import Label, distinct
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory.retention import RetentionSets, SubTaskRetention

SHARE: Final = 0.01


class RetentionSchedule:
    """Asks the model about past sub-tasks, in one life: not across a rollback.

    Arguments:
        engine: Whose states are given.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows: tuple[SubTaskRetention, ...] = ()
        self._asked: tuple[RetentionSets, int] | None = None  # about what, and which version
        self._classes: tuple[Label, ...] = ()  # what its classes were called
        self._next = 0.0  # when there is time to ask again

    def is_fresh(self, state: EngineState) -> bool:
        """Whether the latest answers are about this very model."""
        return not state.past.retention.sets or self._asked == (
            state.past.retention,
            state.model.version,
        )

    def take(self, state: EngineState, rows: tuple[SubTaskRetention, ...]) -> None:
        """Take over answers that somebody else asked of this very model."""
        if not self.is_fresh(state):
            self._rows, self._asked = rows, (state.past.retention, state.model.version)
            self._classes = state.model.classes

    def rows(self, state: EngineState, *, quiet: bool) -> tuple[SubTaskRetention, ...]:
        """The latest answers, oldest sub-task first; asked now if it is time to.

        Arguments:
            state: With the model.
            quiet: Whether there is nothing else to do.
        """
        if self.is_fresh(state):
            return self._rows
        moment = time.monotonic()
        if quiet or moment >= self._next:
            self._rows = self._engine.held(state)
            self._asked = state.past.retention, state.model.version
            self._classes = state.model.classes
            self._next = moment + (time.monotonic() - moment) / SHARE
        else:
            names, before = state.model.classes, self._classes
            # A class keeps its place, whatever it is called, but where two have become one.
            now = (
                zip(map(distinct, before), names, strict=False) if len(names) >= len(before) else ()
            )
            self._rows = state.past.retention.carried(_called(self._rows, dict(now)), names)
            self._classes = names
        return self._rows


def _called(
    rows: Sequence[SubTaskRetention], names: Mapping[tuple[type, Label], Label]
) -> tuple[SubTaskRetention, ...]:
    """The same answers, where classes go by the names that they have by now."""
    return tuple(
        replace(
            row,
            classes=tuple(
                replace(one, label=names.get(distinct(one.label), one.label)) for one in row.classes
            ),
        )
        for row in rows
    )
