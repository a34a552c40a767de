"""Yes or no in requests: from JSON, metadata or query to a bool."""

from __future__ import annotations

from core.errors import InvalidRequest

WORDS = {"true": True, "false": False}


def flag_of(name: str, value: object) -> bool:
    """Whether something is wanted.

    Arguments:
        name: Of the field, for the error.
        value: `true` or `false`, as JSON or as text in any case.

    Raises:
        InvalidRequest: It is neither.

    Example:
        >>> flag_of("p_values", "true")
        True
    """
    if isinstance(value, str):
        value = WORDS.get(value.lower())
    if isinstance(value, bool):
        return value
    raise InvalidRequest(
        f"`{name}` is neither true nor false. Send true to be answered with it.", parameter=name
    )
