"""How much each key may ask and send in a second: one bucket per key and kind, in each API process.

A bucket holds what a key may use in `BURST_S` seconds and fills at its rate. A request is admitted
while there is something in it, and takes what it turns out to have used: the last one may leave a
debt, which is paid before the next is admitted. So a batch that is larger than a bucket is sent
more rarely, not never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from service.api.errors import RateLimited
from service.settings import Settings

BURST_S: Final = 10.0
MOST_KEYS: Final = 2048
"""Of which something is remembered; who asked longest ago is forgotten first."""

Kind = Literal["requests", "samples", "bytes"]


class KeyRates:
    """What each key has left.

    Arguments:
        rates: In a second, for each key; a kind without one is not limited.
        now: A clock, in seconds.

    Example:
        >>> rates = KeyRates({"samples": 10.0}, now=lambda: 0.0)
        >>> rates.charge("camera", "samples", 150)
        >>> rates.admit("another")
        >>> rates.admit("camera")
        Traceback (most recent call last):
        service.api.errors.RateLimited: The key has used ...
    """

    def __init__(
        self, rates: Mapping[Kind, float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates
        self._now = now
        self._left: dict[str, tuple[float, dict[Kind, float]]] = {}

    def admit(self, key: str) -> None:
        """Count one request of a key.

        Raises:
            RateLimited: It has nothing left of one kind.
        """
        if not self._rates:
            return
        left = self._filled(key)
        for kind, rate in self._rates.items():
            if left[kind] <= 0:
                raise RateLimited.of(kind, rate, 1 / rate if not left[kind] else -left[kind] / rate)
        self.charge(key, "requests", 1)

    def charge(self, key: str, kind: Kind, n: int) -> None:
        """Count what a request has used."""
        if kind in self._rates:
            self._filled(key)[kind] -= n

    def _filled(self, key: str) -> dict[Kind, float]:
        """What a key has left now."""
        now = self._now()
        before, left = self._left.pop(key, (now, None))
        if left is None:
            left = {kind: rate * BURST_S for kind, rate in self._rates.items()}
        for kind, rate in self._rates.items():
            left[kind] = min(rate * BURST_S, left[kind] + rate * (now - before))
        self._left[key] = (now, left)  # at the end: asked last
        if len(self._left) > MOST_KEYS:
            del self._left[next(iter(self._left))]
        return left


def rates_of(settings: Settings) -> dict[Kind, float]:
    """The rates that are set."""
    wanted: dict[Kind, float | None] = {
        "requests": settings.key_requests_per_s,
        "samples": settings.key_samples_per_s,
        "bytes": settings.key_bytes_per_s,
    }
    return {kind: rate for kind, rate in wanted.items() if rate is not None}
