"""Does it pay to score small requests that come together in one pass?

Two private services learn the same samples, one with micro-batches and one without
(GMR_MICRO_BATCH_ROWS=0). Connections then ask POST /classify without pause, of one service and of
the other in turn, three pairs for each case, first of `made_up` images (784 features, uint8), then
of scikit-learn's digits as a table. Bodies are made beforehand, so that client and service, which
share the cores, spend little on them. Processor time is that of the API process.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from sklearn.datasets import load_digits

from benchmarks._streams import made_up
from clients.commands.bench import Measurement, Say, Table
from clients.evaluation.local import LocalService
from clients.http.client import GMRClient

CONNECTIONS = (1, 4, 16, 64)
ROWS = (1, 10)
PAIRS = 3
BATCH = 100


class Asked(NamedTuple):
    """A few seconds of one service."""

    per_second: float
    p50: float  # seconds
    p99: float
    processor: float  # seconds of the API process for a request


def measure(quick: bool, say: Say) -> Measurement:
    """Both kinds of data, every case, in pairs."""
    seconds, pairs = (0.3, 1) if quick else (1.0, PAIRS)
    cases = [(16, 1)] if quick else [(n, rows) for rows in ROWS for n in CONNECTIONS]
    digits = load_digits()
    images = made_up(2_000)
    kinds = {
        "images, 784": images,
        "table, 64": (np.tile(digits.data, (2, 1)).astype("f4")[:2_000], np.tile(digits.target, 2)),
    }
    rows, values = [], []
    for kind, (x, y) in kinds.items():
        with LocalService(settings={"micro_batch_rows": 0}) as alone, LocalService() as together:
            for service in (alone, together):
                _teach(service.url, x[: 1_000 if quick else len(x)], y)
            for connections, n in cases:
                say(f"{kind}: {connections} connections, {n} rows each")
                bodies = _bodies(x, n)
                found: dict[str, list[Asked]] = {"alone": [], "together": []}
                for pair in range(pairs):
                    both = [("alone", alone), ("together", together)]
                    for name, service in both if pair % 2 == 0 else both[::-1]:
                        found[name].append(_ask(service, bodies, connections, seconds))
                rows.append(_row(kind, connections, n, found))
                values.append(
                    {"data": kind, "connections": connections, "rows": n, **_plain(found)}
                )
    head = (
        *("data", "connections", "rows", "requests/s alone", "together", "times as many"),
        *("p99 alone, ms", "together", "processor alone, ms a request", "together"),
    )
    table = Table("POST /classify, preset mfa, safetensors bodies", head, tuple(rows))
    return Measurement(tables=(table,), values={"seconds": seconds, "cases": values})


def _plain(found: dict[str, list[Asked]]) -> dict[str, list[dict[str, float]]]:
    return {name: [one._asdict() for one in each] for name, each in found.items()}


def _row(kind: str, connections: int, n: int, found: dict[str, list[Asked]]) -> tuple[str, ...]:
    alone, together = found["alone"], found["together"]
    ratios = [two.per_second / one.per_second for one, two in zip(alone, together, strict=True)]

    def shown(values: Sequence[float], digits: int = 0) -> str:
        return ", ".join(f"{value:,.{digits}f}" for value in values)

    return (
        kind,
        str(connections),
        str(n),
        shown([one.per_second for one in alone]),
        shown([one.per_second for one in together]),
        shown(ratios, 2),
        shown([1e3 * one.p99 for one in alone]),
        shown([1e3 * one.p99 for one in together]),
        f"{1e3 * statistics.median(one.processor for one in alone):.2f}",
        f"{1e3 * statistics.median(one.processor for one in together):.2f}",
    )


def _teach(url: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    with GMRClient(url) as client:
        for first in range(0, len(x), BATCH):
            client.ingest(x[first : first + BATCH], y[first : first + BATCH])
        client.wait_until_learned(300)


def _bodies(x: NDArray[Any], n: int) -> list[bytes]:
    """Whole requests, as they go over the wire."""
    requests = []
    for first in range(0, 1_000 - n, n):
        body = save({"features": np.ascontiguousarray(x[first : first + n])})
        head = (
            "POST /classify HTTP/1.1\r\nhost: localhost\r\naccept: application/vnd.safetensors\r\n"
            f"content-type: application/vnd.safetensors\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


def _ask(
    service: LocalService, requests: Sequence[bytes], connections: int, seconds: float
) -> Asked:
    api = _api_of(service.pid)
    before = _processor(api)
    taken, elapsed = asyncio.run(_load(service.port, requests, connections, seconds))
    spent = _processor(api) - before
    p50, p99 = np.quantile(taken, (0.5, 0.99)).tolist()
    return Asked(len(taken) / elapsed, p50, p99, spent / len(taken))


async def _load(
    port: int, requests: Sequence[bytes], connections: int, seconds: float
) -> tuple[list[float], float]:
    """Seconds that each request took, and all of them together."""
    taken: list[float] = []
    begun = time.perf_counter()

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        place = number
        while time.perf_counter() - begun < seconds:
            sent = time.perf_counter()
            writer.write(requests[place % len(requests)])
            place += connections
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b" 200 " not in head[:16]:
                raise RuntimeError(f"The service answered {head[:200]!r}; expected 200.")
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            taken.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*(ask(number) for number in range(connections)))
    return taken, time.perf_counter() - begun


def _api_of(supervisor: int) -> int:
    """Process id of the API that a service runs."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _is_api(folder, supervisor):
            return int(folder.name)
    raise RuntimeError(f"Process {supervisor} runs no API. Expected one of `gmr serve`, on Linux.")


def _is_api(folder: Path, supervisor: int) -> bool:
    try:
        words = (folder / "cmdline").read_bytes()
        parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:  # it has just ended
        return False
    return int(parent) == supervisor and b"service.api" in words


def _processor(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
