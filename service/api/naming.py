"""The one id of a request that puts something into the stream, from wherever it stands."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request

from core.errors import InvalidBatch
from service.wire import MAX_ID_LENGTH

ID: Final = "batch_id"
ID_HEADER: Final = "Idempotency-Key"
ID_SCHEMA: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
ID_PARAMETERS: Final[list[dict[str, Any]]] = [
    {
        "name": name,
        "in": location,
        "description": "The same as `batch_id` in the body.",
        "schema": ID_SCHEMA,
    }
    for name, location in ((ID, "query"), (ID_HEADER, "header"))
]


def one_name(in_body: str | None, request: Request) -> str | None:
    """The id that body, query and header agree on; None where none of them has one.

    Raises:
        InvalidBatch: They disagree, or it cannot be used.
    """
    # Not declared as parameters: resolving those takes a good part of the time of a request.
    names = (in_body, request.query_params.get(ID), request.headers.get(ID_HEADER))
    given = {name for name in names if name is not None}
    if len(given) > 1:
        raise InvalidBatch(
            f"The batch has {len(given)} different ids: body, query and the header "
            f"Idempotency-Key disagree. Expected one id. Name it in one place."
        )
    if in_body is not None or not given:
        return in_body
    (name,) = given
    if not 0 < len(name) <= MAX_ID_LENGTH or not name.isprintable():
        raise InvalidBatch(
            f"The batch id has {len(name)} characters; expected 1 to {MAX_ID_LENGTH} that can be "
            f"printed. Send a UUID, for example."
        )
    return name
