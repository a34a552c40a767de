"""Where the service listens, and who asks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from urllib.parse import quote

from clients.http.errors import InputError

DEFAULT_URL = "http://127.0.0.1:8000"


def address(url: str | None, model: str | None = None) -> str:
    """Where the service listens: the URL given, `GMR_URL`, or the default.

    Arguments:
        url: As given, if it was.
        model: Name of a model; the address is where that one is asked.

    Raises:
        InputError: it is no address of HTTP.
    """
    chosen = (url or os.environ.get("GMR_URL") or DEFAULT_URL).rstrip("/")
    if not chosen.startswith(("http://", "https://")):
        raise InputError(
            f"The address {chosen!r} is no http:// or https:// address. Expected one like "
            f"{DEFAULT_URL}. Correct it, or the variable GMR_URL."
        )
    return chosen if model is None else f"{chosen}/models/{quote(model, safe='')}"


def user_agent() -> str:
    """What this client calls itself."""
    try:
        return f"gmr-stream/{metadata.version('gmr-stream')}"
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "gmr-stream"


def headers_of(headers: Mapping[str, str] | None, api_key: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {"user-agent": user_agent(), **bearer(api_key), **(headers or {})}


def bearer(api_key: str | None = None) -> dict[str, str]:
    """The header that says who asks; nothing where nobody does, nor in `GMR_API_KEY`."""
    key = api_key or os.environ.get("GMR_API_KEY")
    return {"authorization": f"Bearer {key}"} if key else {}
