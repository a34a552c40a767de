"""How many classes there may be."""

from __future__ import annotations

from collections.abc import Iterable

from core.batch import Label, distinct
from core.engine.state import EngineState
from core.errors import InvalidLabels


def check_classes(state: EngineState, labels: Iterable[Label], limit: int) -> None:
    """Raise `InvalidLabels` if these labels, with those not learned yet, are too many.

    Arguments:
        limit: Classes at most, those that are known included.
    """
    awaiting = state.pending.awaiting
    new = {
        *map(distinct, labels),
        *(distinct(one.label) for one in awaiting.early),
        *(
            distinct(label)
            for one in state.pending.undecided
            for label in state.model.new_labels(one)
        ),
    } - set(map(distinct, state.model.classes))
    total = len(state.model.classes) + len(new)
    if total > limit:
        raise InvalidLabels.too_many_classes(total, limit)
