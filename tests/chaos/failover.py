"""`python -m tests.chaos.failover --times 100`: fail-overs under load, with WAIT and without."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.attacked import Attacked, attacked
from tests.chaos.oracle import Plain, faults
from tests.chaos.replicated import ReplicatedSet
from tests.chaos.soak import LONG
from tests.chaos.storm import ServiceGone, Storm

FAIL_OVER = ("the primary", "fail-over")


class FailOvers(Storm):
    """Producers, and a replicated set whose primary dies."""

    def __init__(self, running: Attacked, nodes: ReplicatedSet, seed: int, pause_s: float) -> None:
        began = time.monotonic()

        def told(hit: str) -> None:
            print(f"{time.monotonic() - began:7.1f} s  {self.hits.total():4d}  {hit}", flush=True)

        super().__init__(running, seed, pause_s, (0.5, 1.5), told)
        self._nodes = nodes

    def hit(self, part: str, what: str) -> bool:
        """Fail over."""
        self._nodes.fail_over()
        self.hits[f"{part}: {what}"] += 1
        return True


def main() -> int:
    """Run it; 0 where nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds, of a producer")
    parser.add_argument("--wait-for", type=int, default=1, help="replicas that must have an entry")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="failover-") as name:
        wrong = fail_over(
            Path(name), asked.times, asked.seed, asked.producers, asked.pause, asked.wait_for
        )
    print("\n".join(wrong) or "nothing lost, nothing twice, everything as in a plain run")
    return 1 if wrong else 0


def fail_over(
    folder: Path, times: int, seed: int, producers: int, pause_s: float, wait_for: int
) -> list[str]:
    """What is wrong after so many fail-overs."""
    began = time.monotonic()
    with (
        ReplicatedSet(folder / "redis") as nodes,
        attacked(folder / "data", redis_url=nodes.url, redis_replicas=wait_for, **LONG) as running,
    ):
        storm = FailOvers(running, nodes, seed, pause_s)
        try:
            storm.run([FAIL_OVER] * times, producers)
            outcome = storm.outcome()
        except AssertionError:
            print("".join(running.lines[-300:]))
            raise
        except ServiceGone as error:
            return [f"the service ended by itself: {error}"]
        wrong = faults(
            Plain.of(running.settings, storm.sent, storm.acknowledged), storm.sent, outcome
        )
        lost = [id for id, (state, _) in outcome.fates.items() if state.startswith("status")]
        print(
            f"{storm.hits.total()} fail-overs in {time.monotonic() - began:.0f} s, waiting for "
            f"{wait_for} replicas: {len(storm.sent)} requests acknowledged, {storm.repeats} sent "
            f"again, {len(lost)} not known any more"
        )
        if wait_for == 0:
            return wrong
        if status := running.stop():
            wrong.append(f"the service ended with status {status}")
        return wrong


if __name__ == "__main__":
    sys.exit(main())
