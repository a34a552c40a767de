"""Producers that repeat themselves, and a killer, at one real service.

Kills are random, or aimed at an instant: `AIMED` names what must be seen in the data dir first.
One part is hit at a time, and it must be there to be hit. A long storm needs a service that lets
its parts die more often than eight times a minute (`GMR_DEATHS_PER_MINUTE`).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
from pydantic import SecretStr

from service.wire import MEDIA_TYPE, RawBatch, RawLabels
from tests.chaos.oracle import Outcome, Request
from tests.service.running import D, ask, wait_until
from tests.service.supervisor.test_run import Service

PARTS = ("service.trainer", "service.api", "redis-server")

AIMED = {
    "a checkpoint is being written": "checkpoints/*.tmp",
    "a checkpoint has appeared": "checkpoints/*.safetensors",
    "a snapshot has appeared": "snapshots/*.safetensors",
}
DAMAGED = "the newest checkpoint is damaged"
STOPPED = "stopped for a while"
INSTANTS = (*AIMED, DAMAGED, STOPPED, "killed")

PAUSE_S = 3.0
"""Between two hits, at most."""


class Storm:
    """One service under attack.

    Arguments:
        running: The service, answering.
        seed: Of everything that is random here, but for the clock.
        pause_s: Between two batches of a producer, seconds.
    """

    def __init__(self, running: Service, seed: int, pause_s: float = 0.05) -> None:
        self.running = running
        self._pause_s = pause_s
        self.hits: Counter[str] = Counter()
        self.repeats = 0
        self.sent: dict[str, Request] = {}
        self.acknowledged: dict[str, list[str]] = {}
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._made = 0

    # Producers ------------------------------------------------------------------

    def produce(self, until: Callable[[], bool]) -> None:
        """Send batches, some of them twice, and labels that come later, until it is enough."""
        while not until():
            batch, late = self._next()
            self._deliver(batch)
            if late is not None:
                self._deliver(late)
            time.sleep(self._pause_s)

    def _next(self) -> tuple[RawBatch, RawLabels | None]:
        with self._lock:
            self._made += 1
            number = self._made
        rng = np.random.default_rng(number)
        label = number // 40  # a class for a while: boundaries come by themselves
        centre = np.random.default_rng(label).random(D)
        x = (centre + rng.normal(size=(20, D)) * 0.02).astype("f4")
        if number % 7:
            return RawBatch.of(x, [label] * 20, f"batch-{number}"), None
        ids = [f"{number}/{row}" for row in range(20)]
        late = RawLabels.of(ids[:10], [label] * 10, f"labels-{number}")
        return RawBatch.of(x, None, f"batch-{number}", ids), late

    def _deliver(self, request: Request) -> None:
        """Send until it is acknowledged, as a client would; now and then once more."""
        id = request.batch_id
        assert id is not None
        with self._lock:
            self.sent[id] = request
            times = 2 if self._random.random() < 0.2 else 1
        for _ in range(times):
            while (entry := self._post(request)) is None:
                time.sleep(0.1)
            with self._lock:
                self.acknowledged.setdefault(id, []).append(entry)

    def _post(self, request: Request) -> str | None:
        if isinstance(request, RawBatch):
            path, body, media = "/ingest", request.to_safetensors(), MEDIA_TYPE
        else:
            document = {
                "sample_ids": list(request.sample_ids),
                "labels": list(request.labels),
                "batch_id": request.batch_id,
            }
            path, body, media = "/labels", orjson.dumps(document), "application/json"
        asked = urllib.request.Request(self.running.url + path, body, {"Content-Type": media})
        try:
            with urllib.request.urlopen(asked, timeout=15) as answer:
                document = orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in (429, 503):
                with self._lock:
                    self.repeats += 1
                return None
            raise AssertionError(error.read().decode()) from error
        except OSError:
            with self._lock:
                self.repeats += 1
            return None
        return str(document["entry_id"])

    # The killer -----------------------------------------------------------------

    def hit(self, part: str, instant: str) -> bool:
        """Hit one part; False where it was not there, or the instant did not come."""
        if instant in AIMED and not self._appears(AIMED[instant]):
            return False
        pid = self.running.children().get(part)
        if pid is None:
            return False
        try:
            if instant == STOPPED:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._random.uniform(0.2, 2.0))
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if instant == DAMAGED:
            self._damage()
        self.hits[f"{part}: {instant}"] += 1
        return True

    def _appears(self, pattern: str, timeout_s: float = 5.0) -> bool:
        """Wait for a file that was not there."""
        folder = self.running.settings.data_dir
        there, deadline = set(folder.glob(pattern)), time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if set(folder.glob(pattern)) - there:
                return True
            time.sleep(0.001)
        return False

    def _damage(self) -> None:
        """Turn a bit of the newest checkpoint, while no trainer reads."""
        folder = self.running.settings.data_dir / "checkpoints"
        files = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
        if files:
            data = bytearray(files[-1].read_bytes())
            data[self._random.randrange(len(data))] ^= 1
            files[-1].write_bytes(data)

    # The whole ------------------------------------------------------------------

    def run(self, plan: Sequence[tuple[str, str]], producers: int = 3, rest_s: float = 1.0) -> None:
        """Carry out a plan of hits while producers send; end when the last hit is survived."""
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self.produce(self._ended.is_set)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(producers)]
        for thread in threads:
            thread.start()
        try:
            for part, instant in plan:
                time.sleep(rest_s + self._random.uniform(0, PAUSE_S - rest_s))
                deadline = time.monotonic() + 60
                while not self.hit(part, instant) and time.monotonic() < deadline:
                    time.sleep(0.2)
        finally:
            time.sleep(1.0)
            self._ended.set()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def plan(self, hits: int) -> list[tuple[str, str]]:
        """Hits in random order: half of them at the trainer, which alone is aimed at."""
        plan = []
        for number in range(hits):
            if number % 2:
                plan.append(("service.trainer", INSTANTS[number // 2 % len(INSTANTS)]))
            else:
                plan.append(
                    (PARTS[number // 2 % len(PARTS)], self._random.choice([STOPPED, "killed"]))
                )
        self._random.shuffle(plan)
        return plan

    def outcome(self) -> Outcome:
        """What is left, once everything is learned."""
        running, settings = self.running, self.running.settings
        wait_until(self._settled, 120)
        socket = settings.data_dir / "redis" / "redis.sock"
        model = settings.model_copy(update={"redis_url": SecretStr(f"unix://{socket}")})
        records = ask(model, lambda stream: stream.reports.events("0", count=1_000_000, block_ms=1))
        with urllib.request.urlopen(running.url + "/model/checkpoint", timeout=60) as answer:
            checkpoint = answer.read()
        rows = running.get("/drift/history?last=10000")["history"]
        fates = {}
        for id in self.sent:
            fate = running.get(f"/batches/{id}")
            fates[id] = (fate["state"], fate["accepted"])
        return Outcome(
            self.acknowledged,
            checkpoint,
            [
                (record.data["entry_id"], record.data["kind"])
                for record in records
                if record.data["kind"] != "model_published"
            ],
            [row["entry_id"] for row in rows],
            running.get("/ledger"),
            fates,
        )

    def _settled(self) -> bool:
        try:
            ledger: dict[str, Any] = self.running.get("/ledger")
            ready = self.running.get("/health/ready")["status"] == "ready"
        except OSError:
            return False
        return bool(ready and ledger["waiting_entries"] == 0)
