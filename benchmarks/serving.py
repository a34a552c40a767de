"""How fast is POST /classify, and how much slower while the model is learning?

For each preset, the default one first, a private service learns 10,000 made-up samples of
d = 784; then one or several
connections classify without pause for a few seconds, first while nothing else
happens ("idle"), then while another process sends new samples in batches of 100 as fast as they
are learned, so that the trainer always has some ("learning"). Every request is timed by the client.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._streams import endless, made_up
from clients.commands.bench import Measurement, Say, Table, milliseconds
from clients.evaluation.local import LocalService
from clients.evaluation.scores import Latency
from clients.http.client import GMRClient
from core.config import EngineConfig

PRESETS = (EngineConfig().preset, "flat")
"""The default first: what a user gets who sets nothing."""

CASES = ((1, 1), (1, 100), (4, 1), (4, 100))  # connections, samples per request
INGEST_BATCH = 100
WAITING = 300
"""Batches that wait to be learned: more than are learned in the second between two models."""

MOST_S = 120.0
"""Seconds for these to be sent."""


def measure(quick: bool, say: Say) -> Measurement:
    """Every preset and case, idle, then learning."""
    seconds, warm_up = (0.5, 2_000) if quick else (5.0, 10_000)
    cases = CASES[:2] if quick else CASES
    x, y = made_up(20_000)
    rows: list[tuple[str, ...]] = []
    values: list[dict[str, Any]] = []
    for preset in PRESETS:
        with LocalService(settings={"preset": preset}) as service:
            _teach(service.url, x[:warm_up], y[:warm_up])
            for learning, (connections, samples) in itertools.product((False, True), cases):
                state = "learning" if learning else "idle"
                say(f"{preset}, {state}: {connections} connection(s), {samples} samples each")
                found = _case(service.url, x, connections, samples, learning, seconds)
                values.append({"preset": preset, "state": state, **found})
                latency = found["latency"]
                rows.append(
                    (
                        preset,
                        state,
                        str(connections),
                        str(samples),
                        f"{found['requests_per_second']:,.0f}",
                        f"{found['samples_per_second']:,.0f}",
                        milliseconds(latency["p50"]),
                        milliseconds(latency["p99"]),
                        f"{found['learned_per_second']:,.0f}" if learning else "",
                    )
                )
    return Measurement(
        tables=(
            Table(
                "POST /classify, d = 784, uint8, safetensors bodies",
                (
                    "preset",
                    "state",
                    "connections",
                    "samples",
                    "requests/s",
                    "samples/s",
                    "p50, ms",
                    "p99, ms",
                    "learned/s",
                ),
                tuple(rows),
            ),
        ),
        values={"seconds_per_case": seconds, "cases": values},
    )


def _teach(url: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    with GMRClient(url) as client:
        for start in range(0, len(x), INGEST_BATCH):
            chosen = slice(start, start + INGEST_BATCH)
            client.ingest(x[chosen], y[chosen])
        client.wait_until_learned()


def _case(
    url: str,
    x: NDArray[Any],
    connections: int,
    samples: int,
    learning: bool,
    seconds: float,
) -> dict[str, Any]:
    stop = threading.Event()

    def classify(number: int) -> list[float]:
        taken = []
        with GMRClient(url) as client:
            rng = np.random.default_rng(number)
            while not stop.is_set():
                first = int(rng.integers(0, len(x) - samples))
                sent = time.perf_counter()
                client.classify(x[first : first + samples])
                taken.append(time.perf_counter() - sent)
        return taken

    with (
        GMRClient(url) as client,
        ThreadPoolExecutor(connections) as pool,
        _fed(url, connections * samples) if learning else nullcontext(),
    ):
        before = _read_samples(client)
        begun = time.perf_counter()
        asking = [pool.submit(classify, number) for number in range(connections)]
        time.sleep(seconds)
        stop.set()
        taken = [duration for future in asking for duration in future.result()]
        elapsed = time.perf_counter() - begun
        learned = _read_samples(client) - before
    return {
        "connections": connections,
        "samples": samples,
        "requests_per_second": len(taken) / elapsed,
        "samples_per_second": samples * len(taken) / elapsed,
        "latency": asdict(Latency.of(taken)),
        "learned_per_second": learned / elapsed,
    }


def _read_samples(client: GMRClient) -> int:
    """Samples that the trainer has taken in, published or not."""
    return int(client.drift().raw["stream_samples"])


@contextmanager
def _fed(url: str, number: int) -> Iterator[None]:
    """A process that keeps the trainer at work; at the end all that it sent is learned."""
    context = multiprocessing.get_context("spawn")
    plenty, stop = context.Event(), context.Event()
    feeder = context.Process(target=_feed, args=(url, number, plenty, stop), daemon=True)
    feeder.start()
    try:
        if not plenty.wait(MOST_S):
            raise TimeoutError(f"fewer than {WAITING} batches wait after {MOST_S:.0f} s")
        yield
    finally:
        stop.set()
        feeder.join(MOST_S)
    with GMRClient(url) as client:
        client.wait_until_learned()


def _feed(url: str, number: int, plenty: Event, stop: Event) -> None:
    with GMRClient(url) as client:
        for x, y in endless(INGEST_BATCH, number):
            if client.ingest(x, y).backlog >= WAITING:
                plenty.set()
                stop.wait(0.05)
            if stop.is_set():
                return
