"""How many samples per second does the service learn, from POST /ingest to the published model?

For each preset, the default one first, one client sends batches of d = 784 uint8 features
one after the other over one connection, to a private service. The clock runs from the first
timed request until GET /model says that everything is learned and served; before it, a
warm-up that fixes D and starts the components is learned. The samples are drawn from ten
made-up classes of 28 x 28 images, all labelled.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._streams import D, made_up
from clients.commands.bench import Floor, Measurement, Say, Table, milliseconds
from clients.evaluation.local import LocalService
from clients.evaluation.scores import Latency
from clients.http.client import GMRClient
from core.config import EngineConfig

PRESETS = {EngineConfig().preset: 20_000, "flat": 150_000}
"""Preset to samples. The default first: what a user gets who sets nothing."""

QUICK = 800  # samples of any preset

FLOOR = 20_000.0  # samples per second, on two cores
FLOOR_PRESET, FLOOR_BATCH = "flat", 100


def measure(quick: bool, say: Say) -> Measurement:
    """One fresh service per preset and batch size."""
    warm_up = 200 if quick else 10_000
    samples = dict.fromkeys(PRESETS, QUICK) if quick else PRESETS
    x, y = made_up(max(samples.values()) + warm_up)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for preset, n in samples.items():
        for batch_size in (100,) if quick else (100, 500, 1000):
            say(f"{preset}, batches of {batch_size}: {n:,} samples")
            found = _one(preset, x[: n + warm_up], y[: n + warm_up], warm_up, batch_size)
            values.setdefault(preset, {})[f"batch_{batch_size}"] = {"samples": n, **found}
            rows.append(
                (
                    preset,
                    f"{n:,}",
                    str(batch_size),
                    f"{found['learned_per_second']:,.0f}",
                    f"{found['accepted_per_second']:,.0f}",
                    milliseconds(found["ingest"]["p50"]),
                    milliseconds(found["ingest"]["p99"]),
                )
            )
    learned = values[FLOOR_PRESET][f"batch_{FLOOR_BATCH}"]["learned_per_second"]
    columns = ("preset", "samples", "per request", "learned/s", "accepted/s", "p50, ms", "p99, ms")
    return Measurement(
        tables=(Table(f"d = {D}, uint8, one connection", columns, tuple(rows)),),
        values={"features": D, **values},
        floors=(Floor(f"end to end, {FLOOR_PRESET}", learned, FLOOR, "samples/s"),),
    )


def _one(
    preset: str, x: NDArray[np.uint8], y: NDArray[np.int64], warm_up: int, batch_size: int
) -> dict[str, Any]:
    with LocalService(settings={"preset": preset}) as service, GMRClient(service.url) as client:
        for start in range(0, warm_up, batch_size):
            chosen = slice(start, min(start + batch_size, warm_up))
            client.ingest(x[chosen], y[chosen])
        client.wait_until_learned()

        seconds = []
        begun = time.perf_counter()
        for start in range(warm_up, len(x), batch_size):
            sent = time.perf_counter()
            client.ingest(x[start : start + batch_size], y[start : start + batch_size])
            seconds.append(time.perf_counter() - sent)
        accepted = time.perf_counter() - begun
        info = client.wait_until_learned()
        learned = time.perf_counter() - begun
    n = len(x) - warm_up
    return {
        "learned_per_second": n / learned,
        "accepted_per_second": n / accepted,
        "seconds": learned,
        "ingest": asdict(Latency.of(seconds)),
        "model_version": info.model_version,
        "samples_seen": info.samples_seen,
    }
