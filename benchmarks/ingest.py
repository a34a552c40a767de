"""How many samples per second does the service learn, from POST /ingest to the published model?

One client sends batches of d = 784 uint8 features one after the other over one
connection, to a private service with the fastest preset (`flat`, K = 100). The clock runs
from the first timed request until GET /model says that everything is learned and
served; before it, a warm-up that fixes D and starts the components is learned.
The samples are drawn from ten made-up classes of 28 x 28 images, all labelled.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._streams import D, made_up
from clients.bench import Floor, Measurement, Say, Table, milliseconds
from clients.client import GMRClient
from clients.local import LocalService
from clients.scores import Latency

FLOOR = 20_000.0  # samples per second, on two cores
FLOOR_BATCH = 100


def measure(quick: bool, say: Say) -> Measurement:
    """One fresh service per batch size."""
    n, warm_up = (2_000, 1_000) if quick else (150_000, 10_000)
    x, y = made_up(n + warm_up)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for batch_size in (100,) if quick else (100, 500, 1000):
        say(f"batches of {batch_size}: {n:,} samples")
        found = _one(x, y, warm_up, batch_size)
        values[f"batch_{batch_size}"] = found
        rows.append(
            (
                str(batch_size),
                f"{found['learned_per_second']:,.0f}",
                f"{found['accepted_per_second']:,.0f}",
                milliseconds(found["ingest"]["p50"]),
                milliseconds(found["ingest"]["p99"]),
            )
        )
    learned = values[f"batch_{FLOOR_BATCH}"]["learned_per_second"]
    return Measurement(
        tables=(
            Table(
                f"{n:,} samples, d = {D}, uint8, one connection",
                ("samples per request", "learned per s", "accepted per s", "p50, ms", "p99, ms"),
                tuple(rows),
            ),
        ),
        values={"samples": n, "features": D, **values},
        floors=(Floor("end to end", learned, FLOOR, "samples/s"),),
    )


def _one(
    x: NDArray[np.uint8], y: NDArray[np.int64], warm_up: int, batch_size: int
) -> dict[str, Any]:
    with LocalService(settings={"preset": "flat"}) as service, GMRClient(service.url) as client:
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
