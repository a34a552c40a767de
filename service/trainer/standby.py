"""A trainer that waits: it takes over when the one at work is gone.

Which of several trainers works on a service's models is decided by the lease in Redis, and by
nothing else: a folder may be on a disk that several machines share, and a lock on it may be held by
a machine that is frozen. Whoever held the lease before is refused by the fence, should it wake up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from core.errors import InvalidSettings
from service.broker.connection import SyncClient, is_transient
from service.broker.keys import Keys
from service.broker.lease import Lease

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""Seconds between two looks at the lease."""


def stand_by(
    client: SyncClient, model: str, wait: Callable[[float], bool], lease_s: float | None = None
) -> Lease | None:
    """The lease of a model, once no other trainer has it.

    Arguments:
        client: Connection to Redis that threads may share.
        model: Name of the service's own model.
        wait: Sleeps for so many seconds; True when the process is to stop.
        lease_s: Seconds after which the lease runs out unless it is renewed.

    Returns:
        The lease, held and to be renewed; None when the process is to stop.
    """
    lease, logged = Lease(client, Keys(model), lease_s), False
    while True:
        try:
            lease.acquire(patience_s=0.0)
            return lease
        except InvalidSettings as error:
            if not logged:
                logged = True
                logger.info("standing by: %s", error)
        except Exception as error:
            if not is_transient(error):
                raise
            logger.warning("standing by, without Redis for the moment: %s", error)
        if wait(LOOK_S):
            return None
