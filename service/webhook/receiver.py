"""The other end of the webhook: one attempt to tell it, and what its answer means.

Rules of this module:

1. Redirects are not followed: they would hand signed messages to an address that nobody set.
2. Of an answer only the status and `Retry-After` are read, never the body.
3. Whoever sets the address is the operator, so that private addresses are as good as others:
   most receivers stand beside the service.
4. The address may hold a password or a token: no reason says any part of it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import httpx2

from service.signature import signature
from service.webhook.envelope import CONTENT_TYPE

TIMEOUT: Final = httpx2.Timeout(10.0, connect=5.0)

ABOUT_THE_RECEIVER: Final = frozenset({401, 403, 404, 407, 408, 410, 421, 425, 429})
"""Of 4xx, what says that receiver or address are not ready; another one is about the message."""


class Outcome(StrEnum):
    """The outcome of an attempt; the label of a metric."""

    DELIVERED = "delivered"
    FAILED = "failed"  # the receiver is away or not well: later
    REFUSED = "refused"  # the receiver does not want this message


@dataclass(frozen=True)
class Answer:
    """The outcome of an attempt, and why.

    Arguments:
        outcome: What it means.
        reason: For the log.
        retry_after_s: Seconds that the receiver asks to wait; 0 where it does not ask.
    """

    outcome: Outcome
    reason: str = ""
    retry_after_s: float = 0.0


class Receiver:
    """Takes messages at one address.

    Arguments:
        url: http:// or https://.
        key: That signs.
    """

    def __init__(self, url: str, key: bytes) -> None:
        self._url = url
        self._key = key
        self._http = httpx2.Client(
            timeout=TIMEOUT, follow_redirects=False, headers={"User-Agent": "gmr-stream"}
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def tell(self, message_id: str, body: bytes) -> Answer:
        """Send one message, once."""
        timestamp = int(time.time())
        headers = {
            "Content-Type": CONTENT_TYPE,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._key, message_id, timestamp, body),
        }
        try:
            with self._http.stream("POST", self._url, content=body, headers=headers) as response:
                return meaning(response.status_code, response.headers.get("retry-after"))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return Answer(
                Outcome.FAILED, f"{type(error).__name__}: {without(self._url, str(error))}"
            )


def without(url: str, text: str) -> str:
    """A text with the parts of an address left out.

    Example:
        >>> without("https://u:secret@example.com/hook?key=abc", "no key=abc of example.com")
        'no ... of ...'
    """
    rest = url.partition("://")[2]
    parts = {url, rest, *re.split(r"[/?#@]", rest), *re.split(r"[/?#@:&=]", rest)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) > 2:
            text = text.replace(part, "...")
    return text


def meaning(status: int, retry_after: str | None = None) -> Answer:
    """What a status means.

    Example:
        >>> meaning(204).outcome.value, meaning(503, "7").retry_after_s, meaning(422).outcome.value
        ('delivered', 7.0, 'refused')
    """
    if 200 <= status < 300:
        return Answer(Outcome.DELIVERED)
    if 400 <= status < 500 and status not in ABOUT_THE_RECEIVER:
        return Answer(Outcome.REFUSED, f"status {status}")
    reason = f"status {status}"
    if 300 <= status < 400:
        reason += ", and redirects are not followed: set GMR_WEBHOOK_URL to the final address"
    return Answer(Outcome.FAILED, reason, _seconds(retry_after))


def _seconds(retry_after: str | None) -> float:
    """Seconds of a `Retry-After`; a header with a date counts as none."""
    text = retry_after or ""
    return float(text) if text.isascii() and text.isdecimal() else 0.0
