"""The sender's name for a batch, by which a repeat is recognised."""

from __future__ import annotations

import uuid
from typing import Final

from core.errors import InvalidBatch
from service.wire.json_type import json_type

MAX_ID_LENGTH: Final = 200


def new_batch_id() -> str:
    """A fresh name for a batch that came without one."""
    return uuid.uuid4().hex


def check_id(batch_id: object) -> str | None:
    """The name, if it may be one; None stays None.

    Raises:
        InvalidBatch: It is no text, too long, or cannot be printed.
    """
    if batch_id is None:
        return None
    if not isinstance(batch_id, str) or not 0 < len(batch_id) <= MAX_ID_LENGTH:
        got = f"is a JSON {json_type(batch_id)}"
        if isinstance(batch_id, str):
            got = f"has {len(batch_id)} characters"
        raise InvalidBatch(
            f"The batch_id {got}; expected text of 1 to {MAX_ID_LENGTH} characters, for example "
            f"a UUID."
        )
    if not batch_id.isprintable():
        raise InvalidBatch(
            f"The batch_id {batch_id!r} holds characters that cannot be printed; expected plain "
            f"text, for example a UUID."
        )
    return batch_id
