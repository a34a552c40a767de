"""Ids of samples as files hold them, by which labels find their samples later.

Rules of this module:

1. An id is the same from whichever format it comes: text that is a whole number as numbers
   are written ("7", not "007" or "7.0") is that number, other text is itself.
2. Every sample has one, and no two have the same: both are checked before anything is sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from clients.http.errors import InputError
from service.wire import MAX_SAMPLE_ID_LENGTH, SampleId

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")

ID_NAMES: Final = ("id", "sample_id", "ids", "sample_ids")
"""Columns and arrays that hold ids where none is named, in this order."""


def as_ids(values: Iterable[Any], *, path: Path, start: int = 0) -> list[SampleId]:
    """N cells or array elements as ids.

    Arguments:
        values: Integers, whole floats or text.
        path: For messages.
        start: Row number of the first, for messages.

    Raises:
        InputError: one is empty, too long, or neither a whole number nor text.
    """
    return [_id(value, path, start + row) for row, value in enumerate(values)]


def check_unique(pieces: Callable[[], Iterator[list[SampleId]]], *, path: Path) -> None:
    """Raise `InputError` where an id names two samples of a file.

    Arguments:
        pieces: Begins to read all ids, in order; called again only where two look alike, so
            that of a long file no more is held than eight bytes per sample.
        path: For messages.
    """
    hashes = [np.fromiter(map(hash, ids), np.int64, len(ids)) for ids in pieces()]
    if not hashes:
        return
    values, counts = np.unique(np.concatenate(hashes), return_counts=True)
    alike = set(values[counts > 1].tolist())
    if not alike:
        return
    first: dict[SampleId, int] = {}
    row = 0
    for ids in pieces():
        for id in ids:
            if hash(id) in alike:
                before = first.setdefault(id, row)
                if before != row:
                    raise InputError(
                        f"{path}: the id {id!r} at row {row} was that of row {before}; expected "
                        f"one sample per id. Give every row an id of its own, or drop repeated "
                        f"rows.",
                        row=row,
                    )
            row += 1


def sent_ids(ids: Sequence[SampleId], as_text: bool) -> Sequence[SampleId]:
    """Ids as they are sent; as text where the program that labels the samples sends text."""
    return [str(id) for id in ids] if as_text else ids


def _id(value: Any, path: Path, row: int) -> SampleId:
    id: object = _plain(value)
    if id is None:
        raise InputError(
            f"{path}: the id at row {row} is empty; expected a whole number or text for every "
            f"sample. Drop the rows without an id, or give them one.",
            row=row,
        )
    if isinstance(id, bool) or not isinstance(id, int | str):
        raise InputError(
            f"{path}: the id at row {row} is {value!r} of type {type(value).__name__}; expected a "
            f"whole number or text. Convert the column, or name another one with --id-column.",
            row=row,
        )
    if isinstance(id, int) and not -(2**63) <= id < 2**63:
        id = str(id)  # a long number is a name all the same
    if isinstance(id, str) and len(id) > MAX_SAMPLE_ID_LENGTH:
        raise InputError(
            f"{path}: the id at row {row} has {len(id)} characters; expected "
            f"{MAX_SAMPLE_ID_LENGTH} at most. Use a shorter name, for example a UUID.",
            row=row,
        )
    return id


def _plain(value: Any) -> Any:
    """The value by rule 1; None where there is none."""
    if isinstance(value, str):
        text = value.strip()
        return int(text) if _INTEGER.fullmatch(text) else text or None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None if math.isnan(value) else value
    return value
