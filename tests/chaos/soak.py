"""`python -m tests.chaos.soak --hits 100`: a long storm, its figures, and what was wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.oracle import Plain, faults
from tests.chaos.storm import Storm
from tests.service.supervisor.test_run import service

LONG = {"events_length": 1_000_000, "history_length": 1_000_000, "deaths_per_minute": 1000}


def main() -> int:
    """Run it; 0 where every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--producers", type=int, default=3)
    asked = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        service(Path(folder), **LONG) as running,
    ):
        running.wait_until_it_answers()
        storm = Storm(running, asked.seed)
        storm.run(storm.plan(asked.hits), asked.producers)
        outcome = storm.outcome()
        plain = Plain.of(running.settings, storm.sent, storm.acknowledged)
        wrong = faults(plain, storm.sent, outcome)
        if status := running.stop():
            wrong.append(f"the service ended with status {status}")
    for name, count in sorted(storm.hits.items()):
        print(f"{count:5d}  {name}")
    print(
        f"{sum(storm.hits.values())} hits in {time.monotonic() - began:.0f} s; {len(storm.sent)} "
        f"requests acknowledged, {storm.repeats} sent again for want of an answer; "
        f"{len(outcome.events)} events, {outcome.ledger['accepted']} samples"
    )
    print("\n".join(wrong) or "nothing lost, nothing twice, everything as in a plain run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
