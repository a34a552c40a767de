"""`python -m tests.chaos.net --hits 50 [--cluster]`: a Redis of one's own, and the way to it.

Connections are cut, or fall silent without a word, as a half-open one does; Redis is killed, or in
a cluster of six nodes hands over; and parts of the service are killed in between.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.attacked import Attacked, attacked
from tests.chaos.clustered import ClusteredSet
from tests.chaos.oracle import Plain, faults
from tests.chaos.replicated import Node
from tests.chaos.soak import LONG
from tests.chaos.storm import KILLED, STOPPED, Hit, ServiceGone, Storm

REDIS: Final = "Redis"
OF_THE_SERVICE: Final[tuple[Hit, ...]] = (
    ("service.trainer", KILLED),
    ("service.api", KILLED),
    ("service.trainer", STOPPED),
)
LONGEST_SILENCE_S: Final = 15.0
"""Beyond the time after which a call gives up."""


class Reached(Protocol):
    """A Redis, and the way to it."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def nearby(self) -> str:
        """Its address where nothing is in between."""

    def hit(self) -> str:
        """Do something to it; what that was."""


class Alone:
    """One server behind a proxy.

    Arguments:
        folder: For what it keeps.
        chance: Decides what happens.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._node, self._chance = Node(folder), chance

    @property
    def url(self) -> str:
        """That of the proxy."""
        return f"redis://127.0.0.1:{self._node.link.port}"

    @property
    def nearby(self) -> str:
        """Its own."""
        return f"redis://127.0.0.1:{self._node.port}"

    @contextlib.contextmanager
    def whole(self) -> Iterator[Alone]:
        """The server, from when it answers."""
        self._node.start(None)
        try:
            yield self
        finally:
            self._node.kill()

    def hit(self) -> str:
        """Cut the way to it, let the way fall silent, or kill it."""
        link = self._node.link
        match self._chance.randrange(3):
            case 0:
                link.cut()
                return "connections are cut"
            case 1:
                link.silent.set()
                time.sleep(self._chance.uniform(0.2, LONGEST_SILENCE_S))
                link.silent.clear()
                return "connections fall silent"
        self._node.kill()
        time.sleep(self._chance.uniform(0, 1))
        self._node.start(None)
        return "is killed and comes back"


class NetStorm(Storm):
    """Producers, a Redis that is hard to reach, and parts that die.

    Arguments:
        running: The service.
        redis: That it uses.
        seed: Of all that is random.
        pause_s: Between two batches of a producer.
    """

    def __init__(self, running: Attacked, redis: Reached, seed: int, pause_s: float) -> None:
        began = time.monotonic()

        def told(hit: str) -> None:
            what = self._latest or hit
            print(f"{time.monotonic() - began:7.1f} s  {self.hits.total():4d}  {what}", flush=True)

        super().__init__(running, seed, pause_s, (0.2, 1.5), told)
        self._redis, self._latest = redis, ""

    @property
    def address(self) -> str:
        """Of Redis, without what is in between."""
        return self._redis.nearby

    def hit(self, part: str, what: str) -> bool:
        """Hit Redis, or what a storm hits."""
        if part != REDIS:
            self._latest = ""
            return super().hit(part, what)
        self._latest = f"{part}: {self._redis.hit()}"
        self.hits[self._latest] += 1
        return True

    def plan(self, hits: int, only: str | None = None) -> list[Hit]:
        """Every second hit is at Redis."""
        return [
            (REDIS, "") if number % 2 else self._random.choice(OF_THE_SERVICE)
            for number in range(hits)
        ]


def main() -> int:
    """Run it; 0 where nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hits", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds, of a producer")
    parser.add_argument("--cluster", action="store_true", help="six nodes in place of one")
    parser.add_argument(
        "--elect", action="store_true", help="there: replicas are waited for, and take over"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="net-") as name:
        folder, chance = Path(name), random.Random(asked.seed)
        place: ClusteredSet | Alone = (
            ClusteredSet(folder / "redis", chance, elects=asked.elect)
            if asked.cluster
            else Alone(folder / "redis", chance)
        )
        with place.whole() as redis:
            return _storm(redis, folder / "data", asked)


def _storm(redis: Reached, data_dir: Path, asked: argparse.Namespace) -> int:
    began = time.monotonic()
    replicas = 1 if asked.elect else 0
    with attacked(data_dir, redis_url=redis.url, redis_replicas=replicas, **LONG) as running:
        storm = NetStorm(running, redis, asked.seed, asked.pause)
        try:
            storm.run(storm.plan(asked.hits), asked.producers)
            outcome = storm.outcome()
        except ServiceGone as error:
            print(f"THE SERVICE ENDED BY ITSELF: {error}")
            return 1
        plain = Plain.of(running.settings, storm.sent, storm.acknowledged)
        wrong = faults(plain, storm.sent, outcome)
        if status := running.stop():
            wrong.append(f"the service ended with status {status}")
    print(storm.summary(outcome, time.monotonic() - began))
    print("\n".join(wrong) or "nothing lost, nothing twice, everything as in a plain run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
