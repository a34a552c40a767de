"""What a question asks for beside its samples: in the body, or in the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request

from core.errors import InvalidRequest
from service.wire import RawBatch

T = TypeVar("T")


def one_value(
    name: str, batch: RawBatch, request: Request, read: Callable[[str, object], T], default: object
) -> T:
    """The value that body and query agree on; what is null in the body is not there.

    Arguments:
        name: Of the field of the body, and of the parameter.
        batch: The body.
        request: Whose query is looked at.
        read: Makes a value of what was sent under a name, or raises.
        default: What `read` is given where neither has one.

    Raises:
        InvalidRequest: They disagree, or `read` says so.
    """
    # The body answers where both are there, so that its errors tell what it holds.
    given = [where[name] for where in (batch.fields, request.query_params) if name in where]
    values = [read(name, value) for value in given if value is not None]
    if any(value != values[0] for value in values):
        raise InvalidRequest(
            f"`{name}` is {values[0]} in the body and {values[1]} in the query. Expected one "
            f"value. Name it in one place.",
            parameter=name,
        )
    return values[0] if values else read(name, default)
