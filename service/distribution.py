"""The distribution that this code belongs to."""

from __future__ import annotations

from importlib import metadata


def own_version() -> str:
    """Its version; `0` where the code runs from a bare checkout."""
    try:
        return metadata.version("gmr-stream")
    except metadata.PackageNotFoundError:
        return "0"
