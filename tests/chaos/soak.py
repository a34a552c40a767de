"""`python -m tests.chaos.soak --hits 100`: a long storm, its figures, and what was wrong."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.attacked import attacked
from tests.chaos.oracle import Plain, faults, faults_of_archive
from tests.chaos.sabotage import EXPOSED_BY, SABOTAGES
from tests.chaos.storm import ServiceGone, Storm

LONG = {
    "events_length": 10_000_000,
    "history_length": 10_000_000,
    "deaths_per_minute": 1000,
    "trainer_niceness": 0,
    "checkpoint_interval_s": 0.5,
    "publish_interval_s": 0.3,
    "archive_mib": 65_536,
    "stall_s": 4.0,
}


def main() -> int:
    """Run it; 0 where every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.4, help="seconds, of a producer")
    parser.add_argument("--rest", type=float, default=1.0, help="seconds between hits, at most")
    parser.add_argument(
        "--controls",
        nargs="*",
        choices=SABOTAGES,
        help="services that break a promise, each to be caught; all of them where none is named",
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it ends")
    parser.add_argument("--join", type=int, default=1, help="GMR_JOIN_SAMPLES of the service")
    parser.add_argument("--only", help="hits whose name has this in it")
    parser.add_argument("--folder", type=Path, help="where to keep the data dir and the log")
    asked = parser.parse_args()
    if asked.folder and asked.folder.exists() and any(asked.folder.iterdir()):
        # A log that begins with entries of another storm has told another webhook of them.
        parser.error(f"{asked.folder} is not empty; expected a new folder")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        if asked.controls is not None:
            chosen = asked.controls or SABOTAGES
            missed = [
                one for one in chosen if not _is_caught(one, Path(name) / one.replace(" ", "-"))
            ]
            print(f"not caught: {', '.join(missed)}" if missed else "every control was caught")
            return bool(missed)
        return _soak(asked, asked.folder or Path(name))


def _soak(asked: argparse.Namespace, folder: Path) -> int:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with attacked(folder / "data", **LONG, join_samples=asked.join) as running:
        rest_s = (min(0.2, asked.rest), asked.rest)
        storm = Storm(running, asked.seed, asked.pause, rest_s, _teller(began))
        try:
            plan = storm.plan(asked.hits, asked.only)
            storm.run(plan, asked.producers, began + 60 * asked.minutes)
            outcome = storm.outcome()
            rows = outcome.history if asked.join > 1 else None
            plain = Plain.of(running.settings, storm.sent, storm.acknowledged, rows)
            wrong = faults(plain, storm.sent, outcome)
            if not storm.is_all_acknowledged:
                wrong.append(f"the latest refusal: {storm.refusal}")
            if status := running.stop():
                wrong.append(f"the service ended with status {status}")
            wrong += faults_of_archive(running.settings, outcome)
        except ServiceGone as error:
            print(f"THE SERVICE ENDED BY ITSELF: {error}")
            return 1
        finally:
            (folder / "service.log").write_text("".join(running.lines), "utf-8")
    print(storm.summary(outcome, time.monotonic() - began))
    print("\n".join(wrong) or "nothing lost, nothing twice, everything as in a plain run")
    return 1 if wrong else 0


def _is_caught(sabotage: str, folder: Path) -> bool:
    folder.mkdir()
    with attacked(folder / "data", sabotage, **LONG) as running:
        storm = Storm(running, 0, 0.1, (2.0, 2.5), patience_s=40.0)
        try:
            storm.run(EXPOSED_BY[sabotage], 2)
            outcome = storm.outcome()
        except (ServiceGone, AssertionError) as error:
            wrong = [str(error)]
        else:
            plain = Plain.of(running.settings, storm.sent, storm.acknowledged)
            wrong = faults(plain, storm.sent, outcome)
            if not storm.is_all_acknowledged:
                wrong.append(f"the latest refusal: {storm.refusal}")
    print(f"{sabotage}: {'; '.join(wrong)[-500:] or 'NOT CAUGHT'}", flush=True)
    return bool(wrong)


def _teller(began: float) -> Callable[[str], None]:
    n = 0

    def tell(hit: str) -> None:
        nonlocal n
        n += 1
        print(f"{time.monotonic() - began:7.1f} s  {n:5d}  {hit}", flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
