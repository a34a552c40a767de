"""False-positive rates in requests: from JSON, metadata or query to a share."""

from __future__ import annotations

from typing import Any, Final

from core.errors import InvalidRequest

RATE: Final[dict[str, Any]] = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
"""Schema of a rate in a JSON body."""


def rate_of(name: str, value: object) -> float | None:
    """The rate as a number, not compared with its limits yet; None where there is none.

    Raises:
        InvalidRequest: It is no number.

    Example:
        >>> rate_of("unknown_rate", "0.01")
        0.01
    """
    if value is None:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        return float(value)
    except (OverflowError, ValueError):
        raise InvalidRequest(
            f"`{name}` is no number. Expected a share of inliers, like 0.01. Correct it.",
            parameter=name,
        ) from None
