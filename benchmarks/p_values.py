"""How much longer does POST /classify take when p-values are asked for?

A private service learns 10,000 made-up samples of d = 784. Then one connection sends the same
samples twice, once with and once without `p_values`, the order changing from pair to pair; what
counts is the ratio within a pair, so that whatever else the machine does falls on both alike.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._streams import made_up
from clients.bench import Measurement, Say, Table, milliseconds
from clients.client import GMRClient
from clients.local import LocalService

SAMPLES = (1, 100, 1000)  # per request
BATCH = 100


def measure(quick: bool, say: Say) -> Measurement:
    """Every size of a request."""
    pairs, warm_up = (10, 2_000) if quick else (300, 10_000)
    x, y = made_up(20_000)
    rows, values = [], []
    with LocalService() as service, GMRClient(service.url) as client:
        for start in range(0, warm_up, BATCH):
            client.ingest(x[start : start + BATCH], y[start : start + BATCH])
        client.wait_until_learned()
        for samples in SAMPLES[:2] if quick else SAMPLES:
            say(f"{samples} samples per request")
            found = _case(client, x, samples, pairs)
            values.append(found)
            rows.append(
                (
                    str(samples),
                    milliseconds(found["without"]),
                    milliseconds(found["with"]),
                    f"{found['ratio']:.2f}",
                    f"{found['ratio_quartiles'][0]:.2f} to {found['ratio_quartiles'][1]:.2f}",
                )
            )
    columns = ("samples", "without, ms", "with, ms", "ratio, median", "quartiles")
    table = Table("POST /classify with p-values and without, d = 784", columns, tuple(rows))
    return Measurement((table,), {"pairs": pairs, "cases": values})


def _case(client: GMRClient, x: NDArray[Any], samples: int, pairs: int) -> dict[str, Any]:
    rng = np.random.default_rng(samples)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for index in range(pairs):
        first = int(rng.integers(0, len(x) - samples))
        for asked in (False, True) if index % 2 else (True, False):
            sent = time.perf_counter()
            client.classify(x[first : first + samples], p_values=asked)
            taken[asked].append(time.perf_counter() - sent)
    ratios = [long / short for long, short in zip(taken[True], taken[False], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "samples": samples,
        "without": statistics.median(taken[False]),
        "with": statistics.median(taken[True]),
        "ratio": middle,
        "ratio_quartiles": (low, high),
    }
