"""How long is a model without its Redis when a primary dies, and what is lost with it?

A Redis Cluster of three primaries on one machine, node timeout 2 s, without full coverage. *Back*:
each primary has two replicas; a trainer process works on named models (D = 16, K = 20, batches of
100), two on each primary; one client, as an API process has it, appends ten batches a second to
each and waits for one replica. A primary that does not hold the service's own model dies by
SIGKILL, or is frozen by SIGSTOP; or nothing happens, for comparison. *Acknowledged* is the time
from then until a batch is, *learned* until a batch sent since is in the trainer's status, which is
written about once a second: the longest of two models, and of the four whose primaries live.
*Lost*: each primary has one replica;
eight senders without a trainer fill one model, whose replica hears nothing of its primary for the
last 0.3 s before that one dies, as where the network fails first. An entry is lost that was
acknowledged and that the replica, elected, does not have.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import redis
from pydantic import SecretStr

from benchmarks._redis_cluster import NODE_TIMEOUT_MS, Member, RedisCluster
from benchmarks._service import until
from clients.commands.bench import Measurement, Say, Table
from service.broker.connection import TRANSIENT, StreamUnavailable, connect
from service.broker.keys import Keys
from service.broker.registry import DOORBELL_LENGTH, REGISTER, NamedModel
from service.broker.stream import Stream
from service.settings import Settings
from service.wire import RawBatch

D: Final = 16
B: Final = 100
PAUSE_S: Final = 0.1
OF_EACH: Final = 2
SENDERS: Final = 8
UNHEARD_S: Final = 0.3
NOTHING: Final = "nothing happens"
FAULTS: Final = ("primary dies", NOTHING, "primary frozen")


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one primary that dies, and one shorter round of losses."""
    faults = []
    for fault in FAULTS[:1] if quick else FAULTS:
        faults.append(_fault(fault))
        say(str(faults[-1]))
    losses = []
    for replicas in (1, 0):
        losses.append(_lost(replicas, 1.0 if quick else 5.0))
        say(str(losses[-1]))
    back = [
        (
            f"{one['fault']}: {whose}",
            f"{one[whose]['acked']:.1f} s",
            f"{one[whose]['learned']:.1f} s",
        )
        for one in faults
        for whose in ("its models", "others")
    ]
    lost = [
        (
            f"`GMR_REDIS_REPLICAS={one['replicas']}`",
            str(one["acknowledged"]),
            str(one["unsure"]),
            str(one["lost"]),
        )
        for one in losses
    ]
    tables = (
        Table("A primary that goes", ("what", "acknowledged", "learned"), tuple(back)),
        Table("What is lost with it", ("what", "acknowledged", "503", "lost"), tuple(lost)),
    )
    return Measurement(tables, {"faults": faults, "losses": losses})


# Back ---------------------------------------------------------------------------------------------


class Fed:
    """One model to which batches are sent for as long as it lasts.

    Arguments:
        name: Of the model.
        stream: Its own, over connections of all.
        seed: Of what it gets.
    """

    def __init__(self, name: str, stream: Stream, seed: int) -> None:
        self.name, self.stream = name, stream
        self.acked: list[tuple[float, float]] = []
        self._random = np.random.default_rng(seed)
        self._centres = 4 * self._random.normal(size=(3, D))

    async def feed(self, ended: asyncio.Event) -> None:
        """Send until the end; a batch that is not acknowledged is sent again."""
        while not ended.is_set():
            of = self._centres[self._random.integers(3, size=B)]
            features = of + self._random.normal(size=(B, D))
            batch = RawBatch.of(features.astype("f4"), batch_id=f"{len(self.acked)}")
            sent = time.monotonic()
            while not ended.is_set():
                with suppress(StreamUnavailable):
                    await self.stream.append(batch)
                    self.acked.append((sent, time.monotonic()))
                    break
            await asyncio.sleep(PAUSE_S)

    def acked_since(self, instant: float) -> float:
        """Seconds until a batch was acknowledged that was sent since.

        One that was under way counts from the instant, too.
        """
        return next(acked - instant for sent, acked in self.acked if acked > instant)


def _fault(fault: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gmr-primary-") as name:
        folder = Path(name)
        with RedisCluster(folder / "redis", n_replicas=2) as cluster:
            settings = _settings(cluster, folder / "data", redis_replicas=1)
            with connect(cluster.url) as client:
                assert isinstance(client, redis.RedisCluster)
                own = _node(client, Keys(settings.model).input).name
                models = _spread(settings, client)
                _register(settings, client, [one for some in models.values() for one in some])
            [dying, *_] = [one for one in cluster.primaries if one.name != own]
            with _trainer(settings):
                return asyncio.run(_hit(fault, dying, settings, models))


async def _hit(
    fault: str, dying: Member, settings: Settings, models: dict[str, list[str]]
) -> dict[str, Any]:
    ended = asyncio.Event()
    async with Stream.open(settings) as stream:
        fed = {
            name: Fed(name, Stream.beside(stream, settings.for_model(name, {})), number)
            for number, name in enumerate(name for some in models.values() for name in some)
        }
        tasks = [asyncio.create_task(one.feed(ended)) for one in fed.values()]
        watch = Watch(settings, list(fed))
        try:
            async with asyncio.timeout(120):
                while not all(watch.latest[name] >= 20 for name in fed):
                    await asyncio.sleep(0.1)
                sent = {name: len(one.acked) for name, one in fed.items()}
                began = time.monotonic()
                if fault != NOTHING:
                    dying.kill() if fault == "primary dies" else dying.freeze()
                while not all(
                    watch.since(name, began, sent[name] + 1) is not None
                    and one.acked[-1][1] > began
                    for name, one in fed.items()
                ):
                    await asyncio.sleep(0.05)
        finally:
            ended.set()
            watch.end()
        if fault == "primary frozen":
            dying.thaw()
        await asyncio.gather(*tasks)
    found: dict[str, Any] = {"fault": fault}
    for whose, names in (
        ("its models", models[dying.name]),
        ("others", [one for at, some in models.items() if at != dying.name for one in some]),
    ):
        found[whose] = {
            "acked": max(fed[name].acked_since(began) for name in names),
            "learned": max(watch.since(name, began, sent[name] + 1) or 0 for name in names),
        }
    return found


class Watch:
    """Looks at how many batches models have learned, each on a thread of its own.

    Arguments:
        settings: Of the service.
        names: Of the models.
    """

    def __init__(self, settings: Settings, names: list[str]) -> None:
        self._keys = Keys(settings.model)
        self._url = str(settings.redis_address())
        self._seen: dict[str, list[tuple[float, int]]] = {name: [(0.0, 0)] for name in names}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(name,)) for name in names]
        for thread in self._threads:
            thread.start()

    @property
    def latest(self) -> dict[str, int]:
        """Batches that each model has learned."""
        return {name: seen[-1][1] for name, seen in self._seen.items()}

    def since(self, name: str, instant: float, batches: int) -> float | None:
        """Seconds from an instant until a model had learned so many; None: not yet."""
        return next((at - instant for at, n in self._seen[name] if n >= batches), None)

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _look(self, name: str) -> None:
        with connect(self._url, timeout_s=1.0) as client:
            while not self._ended.wait(0.02):
                with suppress(*TRANSIENT):
                    text: Any = client.get(self._keys.named(name).status)
                    n = 0 if text is None else int(orjson.loads(text)["stream_batches"])
                    if n > self._seen[name][-1][1]:
                        self._seen[name].append((time.monotonic(), n))


def _spread(settings: Settings, client: redis.RedisCluster) -> dict[str, list[str]]:
    """Names of models, as many on each primary."""
    found: dict[str, list[str]] = defaultdict(list)
    number = 0
    while len(found) < 3 or min(map(len, found.values())) < OF_EACH:
        name = f"m{number}"
        at = _node(client, Keys(settings.model).named(name).input).name
        if len(found[at]) < OF_EACH:
            found[at].append(name)
        number += 1
    return dict(found)


def _node(client: redis.RedisCluster, key: str) -> Any:
    untyped: Any = client
    return untyped.get_node_from_key(key)


def _register(settings: Settings, client: redis.RedisCluster, names: list[str]) -> None:
    keys, register = Keys(settings.model), client.register_script(REGISTER)
    for name in names:
        text = NamedModel.made_now(name, {}, "").to_json()
        register(keys=[keys.models, keys.doorbell], args=[name, text, 10**6, DOORBELL_LENGTH])


@contextmanager
def _trainer(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "service.trainer"]
    environment = {**os.environ, **settings.environment()}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _settings(cluster: RedisCluster, folder: Path, **overrides: Any) -> Settings:
    return Settings(
        redis_url=SecretStr(cluster.url),
        data_dir=folder,
        device="cpu",
        n_components=20,
        n_factors=4,
        max_models=10**5,
        settle_after_s=3600.0,
        **overrides,
    )


# Lost -----------------------------------------------------------------------------------------


def _lost(replicas: int, seconds: float, node_timeout_ms: int = NODE_TIMEOUT_MS) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="gmr-primary-") as name:
        folder = Path(name)
        with RedisCluster(folder / "redis", node_timeout_ms=node_timeout_ms) as cluster:
            settings = _settings(cluster, folder / "data", redis_replicas=replicas)
            acknowledged, unsure, heir = asyncio.run(_send(cluster, settings, seconds))
            kept = {id.decode() for id, _ in heir.client.xrange(Keys(settings.model).input)}
    return {
        "replicas": replicas,
        "acknowledged": len(acknowledged),
        "unsure": unsure,
        "lost": len(set(acknowledged) - kept),
    }


async def _send(
    cluster: RedisCluster, settings: Settings, seconds: float
) -> tuple[list[str], int, Member]:
    """Entries that were acknowledged until a primary died, how many were not, and its heir."""
    acknowledged: list[str] = []
    unsure, ended = 0, asyncio.Event()
    async with Stream.open(settings) as stream:

        async def send(number: int) -> None:
            nonlocal unsure
            features = np.random.default_rng(number).normal(size=(B, D)).astype("f4")
            count = 0
            while not ended.is_set():
                batch = RawBatch.of(features, batch_id=f"{number}-{count}")
                try:
                    entry_id = (await stream.append(batch)).entry_id
                except StreamUnavailable:
                    unsure += 1
                else:
                    if not ended.is_set():  # else it may be the heir's
                        acknowledged.append(entry_id)
                count += 1

        await stream.append(RawBatch.of(np.zeros((B, D), "f4"), batch_id="first"))
        with connect(cluster.url) as client:
            assert isinstance(client, redis.RedisCluster)
            at = _node(client, stream.keys.input).name
        [dying] = [one for one in cluster.members if one.name == at]
        [replica] = cluster.replicas_of(dying)
        tasks = [asyncio.create_task(send(number)) for number in range(SENDERS)]
        await asyncio.sleep(seconds)
        replica.freeze()
        dying.told("CLIENT", "KILL", "TYPE", "REPLICA")
        await asyncio.sleep(UNHEARD_S)
        dying.kill()
        ended.set()
        replica.thaw()
        await asyncio.gather(*tasks)
        await asyncio.to_thread(until, lambda: replica.is_primary)
    return acknowledged, unsure, replica
