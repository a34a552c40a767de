"""Where a range of records begins."""

from __future__ import annotations

import math
import re

from core.errors import InvalidRequest


def start_of(since: str | None) -> str:
    """Where a range of records begins, in Redis' words.

    Example:
        >>> start_of(None), start_of("1700000000000-20003"), start_of("1700000000.25")
        ('-', '(1700000000000-20003', '1700000000250')
    """
    if since is None:
        return "-"
    if re.fullmatch(r"[0-9]{1,15}-[0-9]{1,18}", since):
        return f"({since}"
    try:
        seconds = float(since)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e12:
        raise InvalidRequest(
            "`since` is neither an id nor a time. Expected an id like 1700000000000-20003 or Unix "
            "seconds. Correct it.",
            parameter="since",
        )
    return str(int(seconds * 1000))
