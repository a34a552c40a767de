"""How many classes there may be."""

from __future__ import annotations

from collections.abc import Iterable

from core.batch import Label, distinct
from core.engine.state import EngineState
from core.errors import InvalidLabels


def check_classes(state: EngineState, labels: Iterable[Label], limit: int) -> None:
    """Raise `InvalidLabels` if these labels, with those not learned yet, are too many.

    Where none of them is new, nothing is: what came before fits a version that is served again no
    more, perhaps, and must not hold up the stream.

    Arguments:
        limit: Classes at most, those that are known included.
    """
    known = set(map(distinct, state.model.classes))
    brought = set(map(distinct, labels)) - known
    if not brought:
        return
    awaiting = state.pending.awaiting
    new = {
        *brought,
        *(distinct(one.label) for one in awaiting.early),
        *(
            distinct(label)
            for one in state.pending.undecided
            for label in state.model.new_labels(one)
        ),
    } - known
    total = len(state.model.classes) + len(new)
    if total > limit:
        raise InvalidLabels.too_many_classes(total, limit)
