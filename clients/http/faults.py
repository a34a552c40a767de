"""What went wrong with a connection, in our terms, whichever library made it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

from clients.http.errors import ServiceUnreachable
from clients.http.retry import NotSent, NotTrusted

_OTHER_NAME: Final = (62, 64)
"""Codes of OpenSSL: the certificate is for another host, or another address."""

_EXPIRED: Final = (9, 10)
"""Its time has not come, or is over."""

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""Reasons of OpenSSL: what answers is no TLS."""


def not_connected(error: BaseException, url: str) -> ServiceUnreachable:
    """Our error where no connection was made.

    Arguments:
        error: Of the library that tried.
        url: Where the service was to be.
    """
    reason = str(error) or type(error).__name__
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NotTrusted(_no_trust(cause, url))
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            return NotTrusted(
                f"What answers at {url} speaks no TLS ({cause.reason}). Expected a service with a "
                f"certificate, as the address begins with https://. If it has none, give it as "
                f"http:// with --url or GMR_URL."
            )
    return NotSent(
        f"No service answers at {url} ({reason}). Expected one to listen there. Start it with "
        f"`gmr serve`, or give its address with --url or GMR_URL."
    )


def broken_off(error: BaseException, url: str) -> ServiceUnreachable:
    """Our error where a connection broke before an answer was complete.

    Arguments:
        error: Of the library that waited for it.
        url: Where the service was asked.
    """
    reason = str(error) or type(error).__name__
    # A port with TLS hangs up on whoever speaks plain HTTP to it, and says nothing.
    tls = " If it speaks TLS, its address begins with https://." if url.startswith("http:") else ""
    return ServiceUnreachable(
        f"The connection to {url} broke before the answer was complete ({reason}). Expected a "
        f"whole answer. Look at the service's log.{tls}"
    )


def _no_trust(error: ssl.SSLCertVerificationError, url: str) -> str:
    told = error.verify_message or str(error)
    if error.verify_code in _OTHER_NAME:
        return (
            f"A service answers at {url}, but its certificate is for another name ({told}). "
            f"Expected one for the host in the address. Ask by a name that the certificate has, "
            f"with --url or GMR_URL, or give the service one that has this name."
        )
    if error.verify_code in _EXPIRED:
        return (
            f"A service answers at {url}, but its certificate does not count at this time "
            f"({told}). Expected one that does. Give the service a new one, or set the clock."
        )
    return (
        f"A service answers at {url}, but its certificate is not trusted ({told}). Expected one of "
        f"an authority that this machine knows. Name an authority of your own by the variable "
        f"SSL_CERT_FILE: the PEM file with its certificate, or with that of the service itself "
        f"where it is self-signed."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
