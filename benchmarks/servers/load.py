"""A load: connections that ask one door without pause, and the time that each answer took."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from benchmarks.servers.door import Door, Labels

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Load:
    """What came of it.

    Arguments:
        durations: Seconds of each request.
        elapsed_s: Of all together.
    """

    durations: tuple[float, ...]
    elapsed_s: float

    @property
    def per_second(self) -> float:
        """Requests."""
        return len(self.durations) / self.elapsed_s


def ask(port: int, door: Door, body: bytes) -> Labels:
    """The labels that a door answers.

    Raises:
        RuntimeError: It answers something else.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        return door.read(_answer(connection, door, body))
    finally:
        connection.close()


def load(port: int, door: Door, bodies: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Ask for some seconds.

    Arguments:
        port: Of the server, on loopback.
        door: Where and how.
        bodies: Asked in turn.
        connections: At once, each kept open.
        seconds: How long.
    """
    until = time.perf_counter() + seconds

    def client(first: int) -> list[float]:
        taken, turn = [], first
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            while (sent := time.perf_counter()) < until:
                _answer(connection, door, bodies[turn % len(bodies)])
                taken.append(time.perf_counter() - sent)
                turn += 1
        finally:
            connection.close()
        return taken

    begun = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        taken = [one for each in pool.map(client, range(connections)) for one in each]
    return Load(tuple(taken), time.perf_counter() - begun)


def _answer(connection: http.client.HTTPConnection, door: Door, body: bytes) -> bytes:
    connection.request("POST", door.path, body, door.headers)
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{door.path}: {answer.status} {read[:200]!r}")
    return read
