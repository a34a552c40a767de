"""Ports of loopback for servers that start in a moment."""

from __future__ import annotations

import random
import socket
from typing import Final

PORTS: Final = range(10_240, 22_528)
"""Whatever Redis adds for the bus of a cluster, below those that Linux gives to connections."""

_given: set[int] = set()


def free_port(*, companion: int = 0) -> int:
    """A port that nobody listens on, and that this process gives only once.

    A port that the system chooses may be a connection's before its server starts. The system
    chooses none of these: by default from 32,768 on Linux, from 49,152 elsewhere.

    Arguments:
        companion: A server that listens on a second port, so much higher, needs both.

    Raises:
        OSError: None is left.
    """
    # Chosen by the system's randomness: processes beside this one may have its seeds.
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        wanted = {port, port + companion}
        if not wanted & _given and all(map(_free, wanted)):
            _given.update(wanted)
            return port
    raise OSError(f"No port from {PORTS.start} to {PORTS.stop} is free.")


def _free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
