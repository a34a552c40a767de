"""What may be shown of settings that hold secrets."""

from __future__ import annotations

import re
from typing import Final


def masked(name: str, text: str) -> str:
    """What may be shown of a setting.

    Example:
        >>> masked("webhook_url", "https://hooks.example:8443/a/token?x=1")
        'https://hooks.example:8443/***'
        >>> masked("checkpoints", "s3://id:s3cret@bucket/models")
        's3://***'
    """
    match name:
        case "redis_url":
            return mask_url(text)
        case "webhook_url":
            # Such addresses often hold a token, anywhere but in the host; with an @ nothing
            # is certain, since it may end a password that holds a slash, too.
            found = re.match(r"(https?://)(?:([A-Za-z0-9.-]+(?::\d+)?)(?=[/?#]|$))?", text)
            if found is None:
                return "***"
            host = "" if found[2] is None or "@" in text else found[2] + "/"
            return f"{found[1]}{host}***"
        case "checkpoints":
            # One that is refused may hold a key, where others have a password or a query.
            return re.sub(r"//.*[@?#].*", "//***", text, flags=re.DOTALL)
        case "webhook_secret" | "admin_key":
            return "***"
    return text


def mask_url(url: str) -> str:
    """The address without a password. What cannot be told from one is replaced by stars.

    Example:
        >>> mask_url("rediss://trainer:s3cret@redis.example:6380/0")
        'rediss://trainer:***@redis.example:6380/0'
        >>> mask_url("unix:///run/redis.sock?password=s3cret&db=1")
        'unix:///run/redis.sock?password=***'
        >>> mask_url("redis+sentinel://:s3cret@one,two:26380/orders")
        'redis+sentinel://:***@one,two:26380/orders'
        >>> mask_url("s3cret")
        '***'
    """
    # By text, not by a URL parser: a password may hold characters that confuse one.
    found = re.fullmatch(r"([a-z][a-z+]*://)(.*)", url, re.DOTALL)
    if found is None:
        return "***"
    scheme, rest = found.groups()
    query = re.search(r"[?&](sentinel_)?password=", rest, re.IGNORECASE)
    if rest.startswith("/"):
        return scheme + (rest if query is None else f"{rest[: query.end()]}***")
    login, at, where = rest.rpartition("@")
    if query is not None or not _WHERE.fullmatch(where):
        return f"{scheme}***"
    user, colon, _ = login.partition(":")
    return f"{scheme}{user}{':***' if colon else ''}{at}{where}"


_PLACE: Final = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])?(:\w*)?"
_WHERE: Final = re.compile(
    rf"{_PLACE}(,{_PLACE})*(/[A-Za-z0-9._/-]*)?(\?[A-Za-z0-9_=&.-]*)?",
)
"""Of an address what comes after user and password."""
