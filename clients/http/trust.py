"""The authorities that a client trusts: those of the machine, or of SSL_CERT_FILE."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

import httpx2


def trusted() -> ssl.SSLContext:
    """The authorities that are trusted now, read once for all clients of a process.

    Reading those of a machine takes longer than most requests do. A file that is named is read
    again once it has changed.
    """
    file = os.environ.get("SSL_CERT_FILE")
    return _read(file, _changed_at(file) if file else None, os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=2)
def _read(file: str | None, changed_at: int | None, folder: str | None) -> ssl.SSLContext:
    """As httpx reads them, by these variables."""
    return httpx2.create_ssl_context()


def _changed_at(file: str) -> int | None:
    """When a file was last written, in nanoseconds; None where there is none."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None
