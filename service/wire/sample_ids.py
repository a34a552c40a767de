"""The sender's names for samples, by which labels find them later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from core.counted import counted
from core.errors import InvalidBatch
from service.wire.json_type import json_type

SampleId = int | str
SampleIds = tuple[SampleId | None, ...]

MAX_SAMPLE_ID_LENGTH: Final = 128


def check_sample_ids(values: object, n: int) -> SampleIds | None:
    """N names, each an integer, text or None; None where no sample has one.

    Arguments:
        values: A list or an array.
        n: How many samples there are.

    Raises:
        InvalidBatch: They are of a wrong number or type, or name two samples alike.
    """
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InvalidBatch(
            f"`sample_ids` is a JSON {json_type(values)}; expected a list with one integer, string "
            f"or null per sample."
        )
    if len(values) != n:
        raise InvalidBatch(
            f"{counted(n, 'sample')} came with {counted(len(values), 'sample id')}; expected one "
            f"per sample. Send null for a sample that will get no label.",
            samples=n,
            sample_ids=len(values),
        )
    ids = tuple(_checked(value, position) for position, value in enumerate(values))
    named = [id for id in ids if id is not None]
    if len(set(named)) < len(named):
        places = {id: index for index, id in reversed(list(enumerate(ids)))}
        position = next(i for i, id in enumerate(ids) if id is not None and places[id] < i)
        raise InvalidBatch(
            f"The sample id at position {position} names a second sample of this request; expected "
            f"one sample per id. Give every sample an id of its own.",
            position=position,
        )
    return ids if named else None


def read_sample_ids(text: str | bytes, n: int) -> SampleIds | None:
    """Names that came as a JSON list.

    Raises:
        InvalidBatch: The text is no JSON, or as `check_sample_ids`.
    """
    try:
        values: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidBatch(
            f"`sample_ids` is no JSON: {error}. Send a JSON list with one integer, string or null "
            f"per sample."
        ) from None
    return check_sample_ids(values, n)


def _checked(value: object, position: int) -> SampleId | None:
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidBatch(
            f"The sample id at position {position} is a JSON {json_type(value)}; expected an "
            f"integer, a string or null. Convert it before sending.",
            position=position,
        )
    if isinstance(value, str) and not 0 < len(value) <= MAX_SAMPLE_ID_LENGTH:
        raise InvalidBatch(
            f"The sample id at position {position} has {len(value)} characters; expected 1 to "
            f"{MAX_SAMPLE_ID_LENGTH}. Send a short name, for example a UUID.",
            position=position,
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidBatch(
            f"The sample id at position {position} is {value}; integers must fit 64 bits with a "
            f"sign. Send it as a string.",
            position=position,
        )
    return value
