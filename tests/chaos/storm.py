"""Producers that repeat themselves, and a killer, at one real service.

Kills are random, or aimed at an instant within a part (`tests.chaos.inside.INSTANTS`), at which it
or Redis dies. One part is hit at a time, and it must be there to be hit. A long storm needs a
service that lets its parts die more often than eight times a minute (`GMR_DEATHS_PER_MINUTE`).
"""

from __future__ import annotations

import http.client
import math
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from pydantic import SecretStr

from service.broker.stream import Stream
from service.wire import MEDIA_TYPE, RawBatch, RawLabels
from tests.chaos.attacked import SUPERVISOR, Attacked
from tests.chaos.inside import INSTANTS
from tests.chaos.oracle import Outcome, Request
from tests.chaos.preloaded import COMPILER
from tests.service.running import D, ask, wait_until

PARTS: Final = ("service.trainer", "service.api", "redis-server")

HUNG: Final = "the disk hangs as "
"""Before an instant."""

DAMAGED: Final = "the newest checkpoint is damaged"
STOPPED: Final = "stopped for a while"
KILLED: Final = "killed"
POWER: Final = "the power fails"
CLOCK: Final = "the clock jumps"
TORN: Final = "the power fails in the middle of a command of Redis"

AT_A_DISK: Final = ("a checkpoint is to be written", "a model is to be published")

LONGEST_JUMP_S: Final = 3600.0

TRIES_S: Final = 60.0
"""Seconds for which a hit that finds nothing to hit is tried again."""

EVENTS_AT_A_TIME: Final = 5_000

Hit = tuple[str, str]
"""A part, and what happens to it, or at which instant it is killed."""


async def _waiting_messages(stream: Stream) -> int:
    """Messages for the webhook that it has not got yet."""
    return int(await stream.client.xlen(stream.keys.outbox))


class ServiceGone(Exception):
    """The service ended, as nobody had asked it to; with its last words."""


class Storm:
    """One service under attack.

    Arguments:
        running: The service, answering.
        seed: Of everything that is random here, but for the clock.
        pause_s: Between two batches of a producer, seconds.
        rest_s: Between two hits, seconds, at least and at most.
        told: Of each hit, as it is survived.
        patience_s: For the service to have learned everything in the end, seconds.
        batches_of_a_class: That come before those of the next.
    """

    def __init__(
        self,
        running: Attacked,
        seed: int,
        pause_s: float = 0.05,
        rest_s: tuple[float, float] = (1.0, 3.0),
        told: Callable[[str], None] = lambda _: None,
        patience_s: float = 300.0,
        batches_of_a_class: int = 40,
    ) -> None:
        self.running = running
        self._patience_s, self._batches_of_a_class = patience_s, batches_of_a_class
        self._pause_s, self._rest_s, self._told = pause_s, rest_s, told
        self.hits: Counter[str] = Counter()
        self.missed = 0
        self._damaged_ns = 0
        self.repeats = 0
        self.sent: dict[str, Request] = {}
        self.acknowledged: dict[str, list[str]] = {}
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.refusal = ""  # the latest
        self._ended = threading.Event()
        self._until = math.inf  # when producers no longer wait for an answer
        self._made = 0

    # Producers ------------------------------------------------------------------

    def produce(self, until: Callable[[], bool]) -> None:
        """Send batches, some of them twice, and labels that come later, until it is enough."""
        while not until() and not self.running.is_gone:
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
        label = number // self._batches_of_a_class  # so that boundaries come by themselves
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
                if self.running.is_gone or time.monotonic() > self._until:
                    return
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
                    self.refusal = error.read().decode()
                return None
            raise AssertionError(error.read().decode()) from error
        except (OSError, http.client.HTTPException):  # it died, or in the middle of its answer
            with self._lock:
                self.repeats += 1
            return None
        return str(document["entry_id"])

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether every request was, in the end."""
        return set(self.sent) == set(self.acknowledged)

    # The killer -----------------------------------------------------------------

    def hit(self, part: str, what: str) -> bool:
        """Hit one part; False where it was not there, or the instant did not come."""
        if what == DAMAGED and not self._may_damage():
            return False
        if what in INSTANTS:
            done = self.running.strike(what, part)
        elif what == CLOCK:
            done = self._jump()
        elif what.startswith(HUNG):
            done = self.running.hang(what.removeprefix(HUNG))
        elif what == STOPPED:
            done = self.running.send(part, signal.SIGSTOP) is not None
            time.sleep(self._random.uniform(0.2, 2.0))
            self.running.send(part, signal.SIGCONT)
        elif what in (POWER, TORN):
            done = self.running.fail_power(self._random, torn=what == TORN)
        elif part == SUPERVISOR:
            self.running.kill()
            done = True
        else:
            done = self.running.send(part, signal.SIGKILL) is not None
        if done and what == DAMAGED:
            self._damage()
        if done:
            self.hits[f"{part}: {what}"] += 1
            if not self.running.webhook.script:  # once: it is tried again ever more rarely
                self.running.webhook.answering(503)
        return done

    def _jump(self) -> bool:
        """Set the clock of all processes forward or back, by up to an hour."""
        if self.running.clock is None:
            return False
        self.running.clock.jump(self._random.uniform(-LONGEST_JUMP_S, LONGEST_JUMP_S))
        return True

    def _checkpoints(self) -> list[Path]:
        """Checkpoints that are on disk, the newest first."""
        folder = self.running.settings.data_dir / "checkpoints"
        found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.safetensors")]
        return [path for _, path in sorted(found, reverse=True)]

    def _may_damage(self) -> bool:
        """Whether one more damaged file is one fault, and not the second of two."""
        try:
            newest = [path.stat().st_mtime_ns for path in self._checkpoints()[:2]]
        except FileNotFoundError:  # one was deleted meanwhile
            return False
        return len(newest) == 2 and min(newest) > self._damaged_ns

    def _damage(self) -> None:
        """Turn a bit of the newest checkpoint, while no trainer reads."""
        newest = self._checkpoints()[0]
        data = bytearray(newest.read_bytes())
        data[self._random.randrange(len(data))] ^= 1
        newest.write_bytes(data)
        self._damaged_ns = newest.stat().st_mtime_ns

    # The whole ------------------------------------------------------------------

    def run(self, plan: Sequence[Hit], producers: int = 3, ends: float = math.inf) -> None:
        """Carry out a plan of hits while producers send; end when the last hit is survived.

        Arguments:
            plan: Of hits.
            producers: How many send at once.
            ends: When no more hits follow, by `time.monotonic`.
        """
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self.produce(self._ended.is_set)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(producers)]
        for thread in threads:
            thread.start()
        try:
            for part, what in plan:
                if time.monotonic() > ends:
                    break
                time.sleep(self._random.uniform(*self._rest_s))
                deadline = time.monotonic() + TRIES_S
                while not (done := self.hit(part, what)) and time.monotonic() < deadline:
                    if self.running.is_gone:
                        return
                    time.sleep(0.1)
                if self.running.is_gone:
                    return  # it gave up; `outcome` says so
                self.missed += not done
                self._told(f"{part}: {what}{'' if done else ' (did not come)'}")
        finally:
            time.sleep(1.0)
            self._ended.set()
            self._until = time.monotonic() + self._patience_s
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def plan(self, hits: int, only: str | None = None) -> list[Hit]:
        """Hits in random order: a third at random, the others aimed.

        Arguments:
            hits: How many.
            only: What the names of all hits have in them; None for all kinds.
        """
        aimed: list[Hit] = [(instant.part, name) for name, instant in INSTANTS.items()]
        aimed += [("redis-server", name) for name in INSTANTS]
        aimed += [("service.trainer", DAMAGED)] * 4
        at_random: list[Hit] = [(part, what) for part in PARTS for what in (KILLED, STOPPED)]
        at_random += [("service.trainer", KILLED), (SUPERVISOR, KILLED)]
        if COMPILER is not None:
            at_random += [(SUPERVISOR, what) for what in (POWER, TORN, CLOCK, CLOCK)]
        at_random += [("service.trainer", HUNG + instant) for instant in AT_A_DISK]
        if only is not None:
            some = [hit for hit in at_random + aimed if only in hit[1]]
            return [self._pick(some) for _ in range(hits)]
        plan = []
        for number in range(hits):
            some = at_random if number % 3 == 0 else aimed
            plan.append(some[number // 3 % len(some)] if number % 3 == 0 else self._pick(some))
        self._random.shuffle(plan)
        return plan

    def _pick(self, hits: list[Hit]) -> Hit:
        return self._random.choice(hits)

    def outcome(self) -> Outcome:
        """What is left, once everything is learned."""
        running, settings = self.running, self.running.settings
        try:
            wait_until(lambda: running.is_gone or self._settled(), self._patience_s)
        except AssertionError as error:
            last = "".join(running.lines[-20:])
            raise AssertionError(f"not everything was learned; it says: {last}") from error
        if self.running.is_gone:
            raise ServiceGone("".join(self.running.lines[-20:]))
        told = {"redis_url": SecretStr(self.address), "accept_weak_durability": True}
        model = settings.model_copy(update=told)
        events, after = [], "0"
        while records := ask(
            model,
            lambda stream, after=after: stream.reports.events(
                after, count=EVENTS_AT_A_TIME, block_ms=1
            ),
        ):
            events += records
            after = records[-1].id
        with urllib.request.urlopen(running.url + "/model/checkpoint", timeout=60) as answer:
            checkpoint = answer.read()
        contents = [
            one for one in (record.data for record in events) if one["kind"] != "model_published"
        ]
        rows = ask(model, lambda stream: stream.reports.history(10_000_000))
        boundaries = ask(model, lambda stream: stream.reports.boundaries())
        wait_until(lambda: not ask(model, _waiting_messages), self._patience_s)
        delivered = {one["id"]: one["data"] for one in running.webhook.events}
        return Outcome(
            self.acknowledged,
            checkpoint,
            [(told["entry_id"], told["kind"]) for told in contents],
            contents,
            [row.data["entry_id"] for row in rows],
            [row.data for row in rows],
            [one.data for one in boundaries],
            [*delivered.values()],
            self._get("/ledger"),
            {id: self._fate(id) for id in self.sent},
        )

    @property
    def address(self) -> str:
        """Of Redis, in the end."""
        settings = self.running.settings
        socket = settings.data_dir / "redis" / "redis.sock"
        return settings.redis_address() or f"unix://{socket}"

    def summary(self, outcome: Outcome, seconds: float) -> str:
        """What was done, and how much came of it, for people.

        Arguments:
            outcome: Of this storm.
            seconds: That it took.
        """
        hits = [f"{count:5d}  {name}" for name, count in sorted(self.hits.items())]
        return "\n".join(
            (
                *hits,
                f"{self.hits.total()} hits in {seconds:.0f} s; {len(self.sent)} requests "
                f"acknowledged, {self.repeats} sent again for want of an answer; "
                f"{len(outcome.events)} events, {outcome.ledger['accepted']} samples",
            )
        )

    def _fate(self, id: str) -> tuple[str, int]:
        try:
            fate = self._get(f"/batches/{id}")
        except urllib.error.HTTPError as error:
            return f"status {error.code}", 0
        return fate["state"], fate["accepted"]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.running.url + path, timeout=30) as answer:
            return orjson.loads(answer.read())

    def _settled(self) -> bool:
        try:
            ledger: dict[str, Any] = self._get("/ledger")
            ready = self._get("/health/ready")["status"] == "ready"
        except OSError:
            return False
        return bool(ready and ledger["waiting_entries"] == 0)
