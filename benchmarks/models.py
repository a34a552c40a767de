"""How many models does one trainer bear: time, memory, and what a loud one does to the quiet ones?

A real trainer process on an embedded Redis, with named models of preset `mfa` (D = 16, K = 20,
4 factors, one Gaussian blob of three classes each, unlabelled, batches of 100). *Learned* compares
the processor time of the trainer per batch with that of a lone engine on the same batches, in
turns, three times. *Quiet* counts the trainer's processor time and Redis' commands while nothing
comes. *Memory* is the trainer's resident memory beyond that without models. *Loud* is the time from
an append to the snapshot that holds it, of models that get a batch now and then, with and without
one that gets as many as it can take.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import orjson
import torch
from pydantic import SecretStr

from clients.commands.bench import Measurement, Say, Table
from core.batch import Batch
from core.engine.engine import Engine
from service.broker.connection import SyncClient, connect
from service.broker.keys import Keys
from service.broker.lease import DirectoryLock
from service.broker.registry import DOORBELL_LENGTH, REGISTER, NamedModel
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.wire import RawBatch

D: Final = 16
B: Final = 100
ROUNDS: Final = 3
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Arguments:
        loaded: Models that learn.
        batches: That each of them gets.
        many: Models that learn a little each, at the same time.
        few_batches: That each of these gets.
        registered: Models of which the trainer knows while nothing comes.
        quiet_s: Seconds of that.
        full: Models whose windows are filled.
        fill: Batches that fill one.
        asks: Batches of quiet models whose way is timed.
    """

    loaded: int = 50
    batches: int = 40
    many: int = 300
    few_batches: int = 8
    registered: int = 1000
    quiet_s: float = 20.0
    full: int = 40
    fill: int = 45
    asks: int = 60


QUICK: Final = Size(3, 3, 4, 2, 20, 1.0, 2, 3, 3)


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: a few models and batches."""
    size = QUICK if quick else Size()
    learned = [_learned(size) for _ in range(1 if quick else ROUNDS)]
    say("  ".join(f"packed / lone {one['ratio']:.2f}" for one in learned))
    few = replace(size, loaded=size.many, batches=size.few_batches)
    many = [_learned(few) for _ in range(1 if quick else ROUNDS)]
    say(f"{size.many} models: " + "  ".join(f"{one['ratio']:.2f}" for one in many))
    quiet = _quiet(size)
    say(f"quiet: {100 * quiet['share']:.2f} % of a core, {quiet['commands']:.1f} commands/s")
    memory = _memory(size)
    say(f"memory: {memory['mib']:.2f} MiB a model")
    loud = _loud(size)
    say(f"p99 of quiet models: {loud['without']:.3f} s, beside a loud one {loud['with']:.3f} s")
    rows = (
        (f"processor time per batch, {size.loaded} models: trainer / lone engine", _shown(learned)),
        (f"the same, {size.many} models, {size.few_batches} batches each", _shown(many)),
        (
            f"processor time of {size.registered} models that are quiet",
            f"{100 * quiet['share']:.2f} % of a core",
        ),
        ("commands of Redis meanwhile", f"{quiet['commands']:.1f} a second"),
        ("memory of a loaded model, window full", f"{memory['mib']:.2f} MiB"),
        ("models per GiB", f"{1024 / memory['mib']:.0f}"),
        ("append to served, quiet models, p99", f"{loud['without']:.2f} s"),
        ("the same beside a loud one", f"{loud['with']:.2f} s"),
        ("ratio", f"{loud['with'] / loud['without']:.2f}"),
    )
    table = Table("One trainer and many models", ("what", "figure"), rows)
    results = {"learned": learned, "many": many, "quiet": quiet, "memory": memory, "loud": loud}
    return Measurement((table,), {"results": results})


def _shown(rounds: list[dict[str, float]]) -> str:
    ratios = sorted(one["ratio"] for one in rounds)
    return f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _batches(model: int, n: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(model)
    centres = 4 * random.normal(size=(3, D))
    return [
        (centres[random.integers(3, size=B)] + random.normal(size=(B, D))).astype("f4")
        for _ in range(n)
    ]


# The service ------------------------------------------------------------------------


class Bench:
    """A trainer process with named models, and how to reach it.

    Arguments:
        settings: Of the service.
        client: Connection to its Redis.
        process: Its trainer.
    """

    def __init__(
        self, settings: Settings, client: SyncClient, process: subprocess.Popen[bytes]
    ) -> None:
        self.settings = settings
        self.client = client
        self.process = process
        self._keys = Keys(settings.model)

    def make(self, n: int) -> None:
        """Register n models more."""
        register = self.client.register_script(REGISTER)
        keys = [self._keys.models, self._keys.doorbell]
        there = int(self.client.hlen(self._keys.models))
        for i in range(there, there + n):
            model = NamedModel.made_now(f"m{i}", {}, "")
            register(keys=keys, args=[model.name, model.to_json(), 10**6, DOORBELL_LENGTH])

    def send(self, model: int, x: np.ndarray[Any, Any]) -> None:
        """Append a batch to a model's stream."""
        entry: dict[Any, Any] = {**RawBatch.of(x).to_entry(), "id": uuid.uuid4().hex.encode()}
        self.client.xadd(self._keys.named(f"m{model}").input, entry)

    def learned(self, model: int) -> int:
        """Batches that a model has learned."""
        text = self.client.get(self._keys.named(f"m{model}").status)
        return 0 if text is None else int(orjson.loads(text)["stream_batches"])

    def served(self, model: int) -> int:
        """Entries that a model's published snapshot holds."""
        rows: Any = self.client.xrevrange(self._keys.named(f"m{model}").published, count=1)
        return int(rows[0][1][b"entries_applied"]) if rows else 0

    def wait(self, models: range, batches: int) -> None:
        """Wait until each model has learned so many batches."""
        deadline = time.monotonic() + TIMEOUT_S
        for model in models:
            while self.learned(model) < batches:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"m{model} has learned {self.learned(model)} batches")
                time.sleep(0.05)

    def seconds(self) -> float:
        """Processor time of the trainer."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / TICKS_PER_S

    def resident(self) -> float:
        """Resident memory of the trainer, MiB."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text("ascii")
        return int(statm.split()[1]) * PAGE / 2**20

    def commands(self) -> int:
        """Commands that Redis has carried out."""
        info: Any = self.client.info("stats")
        return int(info["total_commands_processed"])


@contextlib.contextmanager
def _bench(**overrides: Any) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="gmr-models-") as name:
        folder = Path(name)
        with DirectoryLock(folder, "benchmark") as lock:
            redis = EmbeddedRedis(folder, find_binary(None), 2048, lock)
            redis.start()
            settings = Settings(
                redis_url=SecretStr(redis.url),
                data_dir=folder,
                device="cpu",
                n_components=20,
                n_factors=4,
                max_models=10**5,
                loaded_models_mib=10**6,
                **overrides,
            )
            process = subprocess.Popen(
                [sys.executable, "-m", "service.trainer"],
                env={**os.environ, **settings.environment()},
                stderr=subprocess.DEVNULL,
            )
            try:
                with connect(redis.url) as client:
                    bench = Bench(settings, client, process)
                    while not client.exists(Keys(settings.model).status):
                        time.sleep(0.1)
                    yield bench
            finally:
                process.terminate()
                process.wait(120)
                redis.stop()


# What is measured -------------------------------------------------------------------


def _learned(size: Size) -> dict[str, float]:
    """Processor time per batch: the trainer with many models, and a lone engine."""
    # Not settled, and not unloaded: that is not learning.
    with _bench(settle_after_s=3600.0, unload_after_s=3600.0) as bench:
        models = range(size.loaded)
        streams = [_batches(model, size.batches + 1) for model in models]
        bench.make(size.loaded)
        for model in models:
            bench.send(model, streams[model][0])
        bench.wait(models, 1)  # loaded, and compiled
        time.sleep(2.0)
        before = bench.seconds()
        for i in range(size.batches):
            for model in models:
                bench.send(model, streams[model][1 + i])
        bench.wait(models, 1 + size.batches)
        packed = (bench.seconds() - before) / (size.loaded * size.batches)
        config = bench.settings.engine_config()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    engine = Engine(config)
    spent = 0.0
    for stream in streams:
        state, _ = engine.step(engine.start(), Batch.of(torch.from_numpy(stream[0])))
        began = time.process_time()
        for x in stream[1:]:
            state, _ = engine.step(state, Batch.of(torch.from_numpy(x)))
        spent += time.process_time() - began
    lone = spent / (size.loaded * size.batches)
    return {"packed_s": packed, "lone_s": lone, "ratio": packed / lone}


def _quiet(size: Size) -> dict[str, float]:
    with _bench() as bench:
        bench.make(size.registered)
        time.sleep(20.0 if size.quiet_s > 5 else 1.0)  # each is looked at once
        seconds, commands, began = bench.seconds(), bench.commands(), time.monotonic()
        time.sleep(size.quiet_s)
        passed = time.monotonic() - began
        return {
            "share": (bench.seconds() - seconds) / passed,
            "commands": (bench.commands() - commands) / passed,
        }


def _memory(size: Size) -> dict[str, float]:
    with _bench(unload_after_s=3600.0) as bench:
        bench.make(1)
        for x in _batches(0, 3):
            bench.send(0, x)
        bench.wait(range(1), 3)
        time.sleep(2.0)
        without = bench.resident()
        models = range(1, 1 + size.full)
        bench.make(size.full)
        for i in range(size.fill):
            for model in models:
                bench.send(model, _batches(model, size.fill)[i])
        bench.wait(models, size.fill)
        time.sleep(2.0)
        return {"without_mib": without, "mib": (bench.resident() - without) / size.full}


def _loud(size: Size) -> dict[str, float]:
    found = {}
    for name in ("without", "with"):
        with _bench(unload_after_s=3600.0, publish_interval_s=0.0) as bench:
            quiet, loud = range(5), 5
            bench.make(6)
            streams = [_batches(model, 2 + size.asks) for model in range(6)]
            for model in range(6):
                bench.send(model, streams[model][0])
            bench.wait(range(6), 1)
            times = []
            for i in range(size.asks):
                if name == "with":
                    waiting = Keys(bench.settings.model).named(f"m{loud}").input
                    for x in streams[loud][: max(0, 60 - int(bench.client.xlen(waiting)))]:
                        bench.send(loud, x)
                model = quiet[i % len(quiet)]
                before, began = bench.served(model), time.monotonic()
                bench.send(model, streams[model][1 + i])
                while bench.served(model) == before:
                    time.sleep(0.002)
                times.append(time.monotonic() - began)
            found[name] = float(np.quantile(times, 0.99))
            found[f"{name}_median"] = median(times)
    return found
