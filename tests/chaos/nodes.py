"""`python -m tests.chaos.nodes --seconds 90`: nodes of a Redis Cluster go, and come back.

Three primaries without replicas, a trainer of nine named models, and a sender for each. Nodes that
do not have the service's own model are killed for up to 1.5 s, or stopped for up to 5 s. Every
model is compared with one that has learned the same batches and nothing happened to.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import redis
from pydantic import SecretStr

from benchmarks._redis_cluster import RedisCluster
from service.broker.connection import StreamUnavailable, connect
from service.broker.keys import Keys
from service.broker.stream import Stream
from service.settings import Settings
from service.wire import RawBatch
from tests.service.running import (
    batch,
    learned_directly,
    snapshot_bytes,
    training,
    wait_for_backlog,
)
from tests.service.trainer.test_named_models import published, register
from tests.service.trainer.test_writer import events, history

MODELS: Final = 9
OF_A_CLASS: Final = 60
CLASSES: Final = 5
PAUSE_S: Final = 0.05


def main() -> int:
    """Run it; 0 where every model is as of a plain run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gmr-nodes-") as name:
        folder = Path(name)
        with RedisCluster(folder / "redis", 3, n_replicas=0, node_timeout_ms=60_000) as cluster:
            return _storm(cluster, folder, asked.seconds, random.Random(asked.seed))


def _storm(cluster: RedisCluster, folder: Path, seconds: float, chance: random.Random) -> int:
    settings = Settings(
        redis_url=SecretStr(cluster.url),
        data_dir=folder / "data",
        model="nodes",
        device="cpu",
        n_components=4,
        warm_up=100,
        publish_interval_s=0.02,
        checkpoint_interval_s=0.2,
        settle_after_s=3600,
        snapshot_store="directory",
    )
    models = [register(settings, f"m{number}") for number in range(MODELS)]
    with connect(cluster.url) as client:
        assert isinstance(client, redis.RedisCluster)
        untyped: Any = client
        own = untyped.get_node_from_key(Keys(settings.model).input).name
    others = [one for one in cluster.members if one.name != own]
    ended = threading.Event()
    sent = dict.fromkeys((one.model for one in models), 0)

    async def feed(model: Settings) -> None:
        async with Stream.open(model) as stream:
            while not ended.is_set():
                # Sent again until it is acknowledged; its id lets it in once.
                with suppress(StreamUnavailable):
                    await stream.append(_batch(sent[model.model]))
                    sent[model.model] += 1
                await asyncio.sleep(PAUSE_S)
            # One that may be there without an answer is let in for certain.
            while True:
                with suppress(StreamUnavailable):
                    await stream.append(_batch(sent[model.model]))
                    sent[model.model] += 1
                    return

    threads = [threading.Thread(target=lambda m=one: asyncio.run(feed(m))) for one in models]
    killed = stopped = 0
    with training(settings):
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.2, 2.0))
            member = chance.choice(others)
            if chance.random() < 0.6:
                member.kill()
                time.sleep(chance.uniform(0.05, 1.5))
                member.start()
                killed += 1
            else:
                member.freeze()
                time.sleep(chance.uniform(0.2, 5.0))
                member.thaw()
                stopped += 1
        ended.set()
        for thread in threads:
            thread.join()
        wrong = [fault for one in models for fault in _faults(one, sent[one.model])]
    print(f"{killed} kills, {stopped} stops, {sum(sent.values())} batches of {MODELS} models")
    print("\n".join(wrong) or "none lost, none twice, every model as of a plain run")
    return 1 if wrong else 0


def _batch(number: int) -> RawBatch:
    return batch(number // OF_A_CLASS % CLASSES, number)


def _faults(model: Settings, sent: int) -> list[str]:
    wait_for_backlog(model, 120)
    found = []
    stream = [_batch(number) for number in range(sent)]
    if published(model) != snapshot_bytes(model, learned_directly(model, stream)):
        found.append(f"{model.model}: another model than that of a plain run")
    if [row["batch_index"] for row in history(model)] != list(range(sent)):
        found.append(f"{model.model}: another history")
    if any(event["kind"] == "entry_rejected" for event in events(model)):
        found.append(f"{model.model}: a rejected entry")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
