"""Shows, beside the work, that the trainer lives: renews leases, repeats statuses.

Learning a batch, or a whole sub-task again after a boundary, may take longer than a
lease lasts, so this has a thread of its own: one, for however many models.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from service.broker.away import AwayNodes
from service.broker.connection import SyncClient, is_transient
from service.broker.lease import Lease
from service.trainer.activity import Activity
from service.trainer.journal import encode_status

logger = logging.getLogger(__name__)

BEAT_S: Final = 1.0
RENEWALS: Final = 5
"""In the time in which a lease runs out."""

REPEAT: Final = """
redis.call('PERSIST', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1])
"""


class Pulse:
    """One model's share of the heartbeat.

    Arguments:
        lease: Held; it is renewed, not given up at the end.
        status_key: Where the status is.
        beat_s: Seconds after which the status is repeated.
    """

    def __init__(self, lease: Lease, status_key: str, beat_s: float = BEAT_S) -> None:
        self.lost = False  # whether another trainer has the lease now
        self.key = status_key
        self._lease = lease
        self._beat_s = beat_s
        self._status: Mapping[str, object] | None = None
        self._told_at = self._renewed_at = time.monotonic()

    def told(self, status: Mapping[str, object]) -> None:
        """Say which status the trainer has just sent itself."""
        self._status, self._told_at = status, time.monotonic()

    def beat(self, repeat: Callable[..., object], facts: Mapping[str, object]) -> None:
        """Do what is due.

        Arguments:
            repeat: The script that sends a status again.
            facts: Of this moment, that the status says as well.
        """
        now = time.monotonic()
        if now - self._renewed_at >= self._lease.seconds / RENEWALS:
            self._renewed_at = now
            if not self._lease.renew():
                self.lost = True
                return
        if self._status is not None and now - self._told_at >= self._beat_s:
            self._told_at = now
            status = encode_status({**self._status, **facts})
            # Also on a Redis that is full, as in `service.broker.fenced`.
            repeat(keys=[self.key], args=[status])


class Heartbeat:
    """Beats for its pulses between `__enter__` and `__exit__`.

    Arguments:
        client: Connection that threads may share.
        away: Nodes whose models have no pulse, and which is told of others; None where nobody asks.
    """

    def __init__(self, client: SyncClient, away: AwayNodes | None = None) -> None:
        self.activity = Activity()
        self._repeat = client.register_script(REPEAT)
        self._away = away
        self._pulses: tuple[Pulse, ...] = ()  # replaced whole, since two threads look at it
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="gmr-heartbeat", daemon=True)

    def add(self, pulse: Pulse) -> None:
        """Beat for a model from here on."""
        self._pulses = (*self._pulses, pulse)

    def remove(self, pulse: Pulse) -> None:
        """Beat for it no longer."""
        self._pulses = tuple(one for one in self._pulses if one is not pulse)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S / 4):
            facts = self.activity.measure()
            for pulse in self._pulses:
                if pulse.lost or (self._away is not None and self._away.has(pulse.key)):
                    continue
                try:
                    pulse.beat(self._repeat, facts)
                except Exception as error:
                    # The trainer itself meets the same failure and reports it.
                    if is_transient(error):
                        self.activity.went_on()  # it waits for Redis, and hangs at nothing
                        if self._away is not None:
                            self._away.missed(pulse.key)
                    level = logging.DEBUG if is_transient(error) else logging.WARNING
                    logger.log(level, "no heartbeat: %s", error)
