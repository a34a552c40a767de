"""How long does `gmr serve` take to begin, and to replace a part that was killed, and what memory?

Pairs of services, one after the other, in turn: parts that are forked from a process which has
imported what they import, and parts that begin as `python -m` begins them. Each has a data dir of
its own and learns 500 made-up samples (preset `flat`, d = 16). Measured of each:

* `answers`: from the start of the process to the first 200 of `GET /health/live`;
* `ready`: to the first 200 of `GET /health/ready`;
* `processor`: processor time of all its processes until then;
* `trainer`: from a SIGKILL of the trainer until a batch that is sent at once has been learned;
* `API`: from a SIGKILL of the API to the next 200 of `GET /health/live`;
* `memory`: proportional set sizes of all its processes at the end, the embedded Redis among them.
"""

from __future__ import annotations

import tempfile
import time
from typing import Final

import numpy as np

from benchmarks._service import (
    SERVE,
    answers_at,
    children,
    kill,
    memory_of,
    processor_of,
    served,
    until,
)
from clients.commands.bench import Measurement, Say, Table
from clients.http.client import GMRClient

ALONE: Final = """
from service.supervisor import fork_server
fork_server.adopt_orphans = lambda: False
"""
WAYS: Final = {"forked": SERVE, "python -m": ALONE + SERVE}
FIGURES: Final = ("answers", "ready", "processor", "trainer", "API", "memory")


def measure(quick: bool, say: Say) -> Measurement:
    """Pairs of services."""
    pairs = 1 if quick else 10
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for i in range(pairs):
        for way in list(WAYS)[:: 1 if i % 2 == 0 else -1]:
            say(f"pair {i + 1} of {pairs}: {way}")
            found[way].append(_measured(WAYS[way]))
    rows = [
        (
            f"{figure}, {'MiB' if figure == 'memory' else 's'}",
            *(_spread([life[figure] for life in lives]) for lives in found.values()),
        )
        for figure in FIGURES
    ]
    return Measurement(
        tables=(
            Table("Start and restart: median (least to most)", ("figure", *WAYS), tuple(rows)),
        ),
        values={"pairs": pairs, **found},
        floors=(),
    )


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _measured(program: str) -> dict[str, float]:
    batches = np.random.default_rng(0).normal(size=(6, 100, 16)).astype("f4")
    settings = {"preset": "flat", "device": "cpu"}
    with (
        tempfile.TemporaryDirectory(prefix="gmr-starts-") as name,
        served(name, settings, program) as one,
    ):
        process, url, begun = one
        answers = until(lambda: answers_at(url + "/health/live")) - begun
        ready = until(lambda: answers_at(url + "/health/ready")) - begun
        processor = sum(map(processor_of, (process.pid, *children(process.pid))))
        with GMRClient(url) as client:
            for batch in batches[:5]:
                client.ingest(batch)
            client.wait_until_learned()

            begun = kill(process.pid, "service.trainer")
            client.ingest(batches[5])
            client.wait_until_learned()
            trainer = time.monotonic() - begun

            begun = kill(process.pid, "service.api")
            api = until(lambda: answers_at(url + "/health/live")) - begun
            client.wait_until_learned()
        memory = sum(map(memory_of, (process.pid, *children(process.pid))))
        return dict(zip(FIGURES, (answers, ready, processor, trainer, api, memory), strict=True))
