"""How much longer does POST /classify take by p-values, the default, than by the log-likelihood?

Two private services, one with default settings and one with `GMR_OUTLIER_C=2`, learn the same
10,000 made-up samples of d = 784. Then the same samples are sent to both, in changing order; what
counts is the ratio within a pair, so that whatever else the machine does falls on both alike.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._streams import made_up
from clients.commands.bench import Measurement, Say, Table, milliseconds
from clients.evaluation.local import LocalService
from clients.http.client import GMRClient
from core.config import EngineConfig

SAMPLES = (1, 100, 1000)  # per request
BATCH = 100


def measure(quick: bool, say: Say) -> Measurement:
    """Every size of a request."""
    pairs, warm_up = (10, 2_000) if quick else (300, 10_000)
    x, y = made_up(20_000)
    rows, values = [], []
    with (
        LocalService() as by_p_values,
        LocalService(settings={"outlier_c": "2"}) as by_likelihood,
        GMRClient(by_p_values.url) as long,
        GMRClient(by_likelihood.url) as short,
    ):
        for client in (long, short):
            for start in range(0, warm_up, BATCH):
                client.ingest(x[start : start + BATCH], y[start : start + BATCH])
            client.wait_until_learned()
        for samples in SAMPLES[:2] if quick else SAMPLES:
            say(f"{samples} samples per request")
            found = _case({True: long, False: short}, x, samples, pairs)
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
    columns = ("samples", "by c, ms", "by p-value, ms", "ratio, median", "quartiles")
    title = f"POST /classify by p-values and by c, preset {EngineConfig().preset}, d = 784"
    table = Table(title, columns, tuple(rows))
    return Measurement((table,), {"pairs": pairs, "cases": values})


def _case(
    clients: dict[bool, GMRClient], x: NDArray[Any], samples: int, pairs: int
) -> dict[str, Any]:
    rng = np.random.default_rng(samples)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for index in range(pairs):
        first = int(rng.integers(0, len(x) - samples))
        for asked in (False, True) if index % 2 else (True, False):
            sent = time.perf_counter()
            clients[asked].classify(x[first : first + samples])
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
