"""What does it cost that nothing is lost: on disk before it is acknowledged, archived, read again?

A private service with made-up images (d = 784, uint8), one connection, requests of 100:

* `price`: requests to three Redis servers that differ in one thing only, when the append-only file
  goes to disk: always, as a service demands; every second; never written. In turn.
* `archive`: the same with and without `GMR_ARCHIVE_MIB`, the default preset, always on disk.
* `backlog`: kill -9 of all parts with 10,000 entries in the stream that no checkpoint holds, then
  from the new start to the first answer of `POST /classify`; in pairs with a start without backlog.
* `endless`: ten million samples of d = 8, preset `flat`, in batches of 1,000: memory of each
  process, and of the data dir, after every tenth; the median of some readings, since processes
  share pages with whatever runs beside them. Only by name: `gmr bench promise endless`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import redis

from benchmarks._service import answers_at, children, memory_of, served, until
from benchmarks._streams import made_up
from clients.commands.bench import Measurement, Say, Table
from clients.evaluation.local import free_port
from clients.http.client import GMRClient
from clients.http.errors import InputError
from service.supervisor.embedded import find_binary

PARTS: Final = ("price", "archive", "backlog")
FSYNC: Final = {
    "always": ("--appendonly", "yes", "--appendfsync", "always"),
    "every second": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "never written": ("--appendonly", "no"),
}
D: Final = 8
"""Features of the endless stream."""

KEPT: Final = {"history_length": 1000, "events_length": 1000, "dedupe_ttl_s": 30}
"""What Redis keeps of an endless stream; by default it keeps ten times as much, and ids for a day,
so that ten million samples would end before it has all of that."""

READINGS: Final = 15


def measure(quick: bool, say: Say, arguments: Sequence[str]) -> Measurement:
    """The parts that are named, or all but `endless`."""
    chosen = arguments or PARTS
    parts = {"price": _price, "archive": _archive, "backlog": _backlog, "endless": _endless}
    if unknown := set(chosen) - set(parts):
        raise InputError(f"No part is named {unknown.pop()!r}. Known: {', '.join(parts)}.")
    found = {name: parts[name](quick, say) for name in chosen}
    return Measurement(
        tables=tuple(table for table, _ in found.values()),
        values={name: values for name, (_, values) in found.items()},
    )


def _spread(values: Sequence[float], digits: int = 0) -> str:
    middle, least, most = np.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})"


# What the disk and an archive cost ----------------------------------------------------------------


def _price(quick: bool, say: Say) -> tuple[Table, dict[str, Any]]:
    lives: dict[str, list[dict[str, float]]] = {name: [] for name in FSYNC}
    for i in range(1 if quick else 5):
        for name, options in FSYNC.items():
            say(f"price, round {i + 1}: {name}")
            with (
                tempfile.TemporaryDirectory(prefix="gmr-price-") as folder,
                _redis(folder, options) as url,
            ):
                given = {"redis_url": url, "accept_weak_durability": True, "preset": "flat"}
                lives[name].append(_sent(folder, 300 if quick else 60_000, given))
    return _table("Appended to disk", lives), dict(lives)


def _archive(quick: bool, say: Say) -> tuple[Table, dict[str, Any]]:
    ways: dict[str, dict[str, object]] = {"without an archive": {}, "with": {"archive_mib": 4096}}
    lives: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for i in range(1 if quick else 5):
        for name, given in ways.items():
            say(f"archive, round {i + 1}: {name}")
            with tempfile.TemporaryDirectory(prefix="gmr-archive-") as folder:
                lives[name].append(_sent(folder, 300 if quick else 20_000, given))
    return _table("An archive, preset `mfa`", lives), dict(lives)


def _table(title: str, lives: dict[str, list[dict[str, float]]]) -> Table:
    first, *_ = lives.values()
    rows = []
    for name, found in lives.items():
        accepted = [one["accepted"] for one in found]
        learned = [one["learned"] for one in found]
        ratios = [a["learned"] / b["learned"] for a, b in zip(found, first, strict=True)]
        rows.append((name, _spread(accepted), _spread(learned), _spread(ratios, 2)))
    columns = ("", "accepted/s", "learned/s", "learned, over the first")
    return Table(f"{title}: median of {len(first)} (least to most)", columns, tuple(rows))


def _sent(folder: str, n: int, settings: dict[str, object]) -> dict[str, float]:
    """Samples accepted and learned in a second, of n after a tenth as many."""
    x, y = made_up(n + n // 10)
    with served(folder, {"device": "cpu", **settings}) as (_, url, _), GMRClient(url) as client:
        until(lambda: answers_at(url + "/health/ready"))
        for start in range(0, n // 10, 100):
            client.ingest(x[start : start + 100], y[start : start + 100])
        client.wait_until_learned()
        begun = time.perf_counter()
        for start in range(n // 10, len(x), 100):
            client.ingest(x[start : start + 100], y[start : start + 100])
        accepted = time.perf_counter() - begun
        client.wait_until_learned()
        learned = time.perf_counter() - begun
    return {"accepted": n / accepted, "learned": n / learned}


@contextlib.contextmanager
def _redis(folder: str, options: Sequence[str]) -> Iterator[str]:
    port, binary = free_port(), str(find_binary().path)
    own = Path(folder) / "own"
    own.mkdir()
    server = subprocess.Popen(
        [binary, "--port", str(port), "--dir", str(own), "--save", "", *options],
        stdout=subprocess.DEVNULL,
    )
    try:
        with redis.Redis(port=port) as client:
            until(lambda: _pings(client))
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _pings(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


# A start with a backlog ---------------------------------------------------------------------------


def _backlog(quick: bool, say: Say) -> tuple[Table, dict[str, Any]]:
    entries = 100 if quick else 10_000
    found: dict[str, list[dict[str, float]]] = {"none": [], f"{entries:,} entries": []}
    for i in range(1 if quick else 3):
        for name, lives in found.items():
            say(f"backlog, round {i + 1}: {name}")
            lives.append(_restarted(0 if name == "none" else entries))
    rows = [
        (
            name,
            *(
                _spread([life[figure] for life in lives], 2)
                for figure in ("alive", "answers", "learned")
            ),
        )
        for name, lives in found.items()
    ]
    columns = ("backlog", "first answer, s", "first classification, s", "all learned, s")
    return Table("From a start after kill -9 of all parts", columns, tuple(rows)), dict(found)


def _restarted(entries: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    batches = generator.normal(size=(50 + entries, 20, 16)).astype("f4")
    given: dict[str, object] = {"preset": "flat", "device": "cpu", "max_backlog": 1_000_000}
    with tempfile.TemporaryDirectory(prefix="gmr-backlog-") as folder:
        with served(folder, given) as (process, url, _), GMRClient(url) as client:
            until(lambda: answers_at(url + "/health/ready"))
            for batch in batches[:50]:
                client.ingest(batch, [0] * 20)
            client.wait_until_learned()
            _signal(process.pid, signal.SIGSTOP, "service.trainer")
            for batch in batches[50:]:
                client.ingest(batch, [0] * 20)
            _kill_all(process)
        with served(folder, given) as (_, url, begun), GMRClient(url) as client:
            alive = until(lambda: answers_at(url + "/health/live")) - begun
            answers = until(lambda: _classifies(client, batches[0])) - begun
            client.wait_until_learned()
            learned = time.monotonic() - begun
            seen = client.model().samples_seen
    if seen != 20 * len(batches):
        raise AssertionError(f"{seen} samples were learned of {20 * len(batches)}")
    return {"alive": alive, "answers": answers, "learned": learned}


def _classifies(client: GMRClient, batch: Any) -> bool:
    with contextlib.suppress(Exception):
        return len(client.classify(batch).labels) == len(batch)
    return False


def _signal(supervisor: int, number: int, part: str) -> None:
    for pid in children(supervisor):
        if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, number)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    for pid in (process.pid, *children(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


# A stream without end -----------------------------------------------------------------------------


def _endless(quick: bool, say: Say) -> tuple[Table, dict[str, Any]]:
    total = 50_000 if quick else 10_000_000
    generator = np.random.default_rng(0)
    centres = generator.random((10, D), np.float32)
    rows, found = [], []
    given = {"preset": "flat", "device": "cpu", **KEPT}
    with (
        tempfile.TemporaryDirectory(prefix="gmr-endless-") as folder,
        served(folder, given) as (process, url, begun),
        GMRClient(url) as client,
    ):
        until(lambda: answers_at(url + "/health/ready"))
        for tenth in range(1, 11):
            for _ in range(total // 10_000):
                codes = generator.integers(0, 10, 1000)
                noise = generator.normal(0, 0.05, (1000, D)).astype("f4")
                client.ingest(np.clip(centres[codes] + noise, 0, 1), codes)
            client.wait_until_learned()
            row = _memories(process.pid) | {"data dir": _size(Path(folder))}
            said = f"{tenth * total // 10:,} samples, {time.monotonic() - begun:,.0f} s"
            say(f"{said}: " + ", ".join(f"{name} {mib:.0f}" for name, mib in row.items()))
            found.append(row)
        boundaries = client.drift().boundaries
    for name in found[0]:
        values = [row[name] for row in found]
        after = values[1:]
        rows.append(
            (name, *(f"{values[i]:.0f}" for i in (0, 1, 4, 9)), f"{max(after) / after[0] - 1:+.1%}")
        )
    columns = ("MiB", "after a tenth", "two", "five", "ten", "most, over two tenths")
    title = f"{total:,} samples, d = {D}, `flat`, batches of 1,000; boundaries: {boundaries}"
    return Table(title, columns, tuple(rows)), {"samples": total, "rows": found}


def _memories(supervisor: int) -> dict[str, float]:
    """MiB of each process of a service, over some seconds."""
    readings: dict[str, list[float]] = {}
    for _ in range(READINGS):
        readings.setdefault("supervisor", []).append(memory_of(supervisor))
        for pid in children(supervisor):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parts = [one.decode() for one in words if one.startswith(b"service.")]
            readings.setdefault(parts[0] if parts else "redis", []).append(memory_of(pid))
        time.sleep(0.2)
    return {name: float(np.median(values)) for name, values in readings.items()}


def _size(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total / 2**20
