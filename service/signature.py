"""Proof that a message is ours and was not changed: Standard Webhooks, symmetric signatures.

What is signed is `id.timestamp.body`, so that a message cannot be sent again later under
another id or time. See https://www.standardwebhooks.com.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

PREFIX: Final = "whsec_"
LEAST_BYTES: Final = 24
MOST_BYTES: Final = 64


def key_of(secret: str) -> bytes:
    """The key in a secret as it is written down: `whsec_` and base64.

    Raises:
        ValueError: It is no such secret; the message does not repeat it.

    Example:
        >>> len(key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
        24
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise ValueError(
            f"expected {PREFIX} followed by {LEAST_BYTES} to {MOST_BYTES} random bytes in base64; "
            f"`echo {PREFIX}$(openssl rand -base64 32)` makes one"
        )
    return key


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature`.

    Arguments:
        key: From `key_of`.
        message_id: Value of `webhook-id`, without a full stop.
        timestamp: Value of `webhook-timestamp`, Unix seconds.
        body: As it is sent.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.digest(key, signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
