"""`python -m tests.chaos.frozen --seconds 60`: a trainer is stopped while a second one takes over.

Two processes on one data dir and one Redis, of which the second stands by. The first gets SIGSTOP;
batches come all the while. The second must take over once the lease has run out, and the first,
thawed, must end without having changed anything: what is left is compared with a plain run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import SecretStr

from service.settings import Settings
from tests.chaos.own_redis import own_redis
from tests.service.running import (
    batch,
    learned_directly,
    published_position,
    send,
    snapshot_bytes,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_writer import events, history, published


def main() -> int:
    """Run it; 0 where there was one lineage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lease", type=float, default=15.0)
    asked = parser.parse_args()
    with own_redis() as (url, folder):
        return _freeze(url, folder, asked.seconds, asked.lease)


def _freeze(url: str, folder: Path, seconds: float, lease_s: float) -> int:
    settings = Settings(
        redis_url=SecretStr(url),
        data_dir=folder / "data",
        model="frozen",
        device="cpu",
        n_components=4,
        warm_up=100,
        publish_interval_s=0.02,
        checkpoint_interval_s=0.2,
        settle_after_s=3600,
        standby=True,
        lease_s=lease_s,
    )
    stream = [batch(seed // 15, seed) for seed in range(10)]
    send(settings, *stream)
    first = _trainer(settings, url)
    second = None
    try:
        wait_for_backlog(settings, 60)
        second = _trainer(settings, url)
        time.sleep(3)
        os.kill(first.pid, signal.SIGSTOP)
        stopped, back = time.monotonic(), None
        while time.monotonic() - stopped < seconds:
            seed = len(stream)
            stream.append(batch(seed // 15, seed))
            send(settings, stream[-1])
            time.sleep(0.5)
            if back is None and published_position(settings)[1] > 10:
                back = time.monotonic() - stopped
        wait_for_backlog(settings, 60)
        os.kill(first.pid, signal.SIGCONT)
        status = first.wait(60)
        more = [batch(9, seed) for seed in range(10)]
        send(settings, *more)
        wait_for_backlog(settings, 60)
        wait_until(lambda: len(history(settings)) == len(stream + more))
        second.terminate()
        second.wait(60)
        plain = snapshot_bytes(settings, learned_directly(settings, stream + more))
        told = [
            str({name: value for name, value in one.items() if name != "time"})
            for one in events(settings)
            if one["kind"] != "model_published"
        ]
        wrong = [
            said
            for said, true in (
                ("another took over", back is not None),
                ("the first one ended", status == 1),
                ("the model is that of a plain run", published(settings).to_bytes({}) == plain),
                (
                    "every batch is in the history once, in order",
                    [row["batch_index"] for row in history(settings)]
                    == list(range(len(stream + more))),
                ),
                ("no event is told twice", len(set(told)) == len(told)),
            )
            if not true
        ]
    finally:
        for one in (first, second):
            if one is not None and one.poll() is None:
                one.kill()
    print(
        f"stopped for {seconds:.0f} s, lease of {lease_s:.0f} s: another one read on after "
        f"{back or 0:.1f} s; {len(stream + more)} batches, {len(told)} events"
    )
    print("NOT TRUE: " + "; ".join(wrong) if wrong else "one lineage, as of a plain run")
    return bool(wrong)


def _trainer(settings: Settings, url: str) -> subprocess.Popen[bytes]:
    given = settings.model_dump(exclude={"redis_url"}, include=settings.model_fields_set)
    own = {f"GMR_{name.upper()}": str(value) for name, value in given.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "service.trainer"],
        env={**os.environ, **own, "GMR_REDIS_URL": url},
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    sys.exit(main())
