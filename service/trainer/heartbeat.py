"""Shows, beside the work, that the trainer lives: renews the lease, repeats the status.

Learning a batch, or a whole sub-task again after a boundary, may take longer than a
lease lasts, so this has a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from service.broker.connection import SyncClient, is_transient
from service.broker.lease import LEASE_S, Lease
from service.trainer.journal import encode_status

logger = logging.getLogger(__name__)

BEAT_S: Final = 1.0
RENEW_S: Final = LEASE_S / 5


class Heartbeat:
    """Beats once a second between `__enter__` and `__exit__`.

    Arguments:
        lease: Held; it is renewed, not given up at the end.
        client: Connection that threads may share.
        status_key: Where the status is.
    """

    def __init__(self, lease: Lease, client: SyncClient, status_key: str) -> None:
        self.lost = False  # whether another trainer has the lease now
        self._lease = lease
        self._client = client
        self._key = status_key
        self._status: Mapping[str, object] | None = None
        self._told_at = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="gmr-heart", daemon=True)

    def told(self, status: Mapping[str, object]) -> None:
        """Say which status the trainer has just sent itself."""
        self._status, self._told_at = status, time.monotonic()

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
        renewed_at = time.monotonic()
        while not self._end.wait(BEAT_S / 4):
            now = time.monotonic()
            try:
                if now - renewed_at >= RENEW_S:
                    renewed_at = now
                    if not self._lease.renew():
                        self.lost = True
                        return
                if self._status is not None and now - self._told_at >= BEAT_S:
                    self._told_at = now
                    self._client.set(self._key, encode_status(self._status))
            except Exception as error:
                # The trainer itself meets the same failure and reports it.
                level = logging.DEBUG if is_transient(error) else logging.WARNING
                logger.log(level, "no heartbeat: %s", error)
