"""A connection of the service to itself, to ask whether it answers."""

from __future__ import annotations

import http.client
import ssl


def connection_to_self(
    host: str, port: int, scheme: str, *, timeout_s: float
) -> http.client.HTTPConnection:
    """A connection to the API of this machine. Connects at the first request.

    Its certificate is for the names that others use, and is not checked here.

    Arguments:
        host: Address of loopback, or one of this machine's.
        port: That the API listens on.
        scheme: `http` or `https`.
        timeout_s: Longest wait for each answer.
    """
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
