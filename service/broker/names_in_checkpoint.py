"""Names of features in the text of a checkpoint that travels from one service to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from core.counted import counted
from core.errors import InvalidCheckpoint
from service.wire import fault_of_names

NAMES: Final = "feature_names"
"""Key of the names there: D texts in order, as JSON. A checkpoint that stays has none."""


def with_them(text: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The text of a checkpoint with the names of its features.

    Example:
        >>> with_them({}, ["load", "speed"])
        {'feature_names': '["load","speed"]'}
    """
    return {**text, NAMES: orjson.dumps(list(names)).decode()}


def names_in(text: Mapping[str, str], n_features: int | None) -> tuple[str, ...] | None:
    """The names that travel with a checkpoint; None where it has none.

    Arguments:
        text: Of the checkpoint, from anywhere.
        n_features: D of its model; None where that is not known: then there is nothing to name.

    Raises:
        InvalidCheckpoint: They are no names, or not D of them.

    Example:
        >>> names_in({"feature_names": '["load","speed"]'}, 2)
        ('load', 'speed')
    """
    if NAMES not in text:
        return None
    try:
        found = orjson.loads(text[NAMES])
    except ValueError:
        found = None
    if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise _refused("they are no list of texts.")
    if n_features is None:
        return None
    if len(found) != n_features:
        raise _refused(
            f"a sample has {counted(n_features, 'feature')}, and there are "
            f"{counted(len(found), 'name')}."
        )
    if fault := fault_of_names(found):
        raise _refused(fault)
    return tuple(found)


def _refused(fault: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"The names of features in the checkpoint cannot be used: {fault} Nothing was changed. "
        f"Take another copy."
    )
