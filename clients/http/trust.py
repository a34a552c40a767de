"""The authorities that a client trusts: those of the machine, or of SSL_CERT_FILE."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

import httpx2


def trusted() -> ssl.SSLContext:
    """The authorities that are trusted now, read once for all clients of a process.

    Reading those of a machine takes longer than most requests do.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=2)
def _read(file: str | None, folder: str | None) -> ssl.SSLContext:
    """As httpx reads them, by these variables."""
    return httpx2.create_ssl_context()
