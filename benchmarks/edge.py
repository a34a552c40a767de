"""Does a service still say that it is alive while somebody attacks its port?

A private service learns 500 made-up samples of d = 16. Then each attack goes on for a few seconds,
on loopback, and meanwhile one connection asks `GET /health/live` without pause; every answer is
timed. The aim is 200 ms for 99 of 100 answers, whatever the attack:

* `header` and `address`: one line without end, 100 MB of it, again and again;
* `fields`: 50,000 headers of 4 kB;
* `half-open`: 400 connections that send half a head and wait;
* `slow bodies`: 400 connections that announce 30 MiB and send a part of it;
* `JSON`: six connections that post 30 MiB of JSON to `POST /classify`, 4,500 rows of 784;
* `rows`: six connections that post a million rows, a hundred times what is taken;
* `NaN`, `nested`, `flat`: likewise 30 MiB with a NaN, of brackets, and one list of numbers;
* `binary`: six connections that post 30 MiB of samples as safetensors.

The memory of the API process is read before and after each.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from clients.commands.bench import Floor, Measurement, Say, Table, milliseconds
from clients.evaluation.local import LocalService
from clients.http.client import GMRClient
from service.wire import RawBatch

AIM_S: Final = 0.2
MIB: Final = 1024 * 1024
JSON: Final = "application/json"
SAFETENSORS: Final = "application/vnd.safetensors"
D: Final = 784
ALONE: Final = "nobody attacks"
FEWEST: Final = 2
"""Answers that are waited for, however long they take."""


@dataclass(frozen=True)
class Address:
    """Where the service listens."""

    host: str
    port: int

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection((self.host, self.port), timeout=30)


Attack = Callable[[Address, threading.Event], None]
"""Goes on until the event is set."""


def measure(quick: bool, say: Say) -> Measurement:
    """Every attack, one after the other, on one service."""
    seconds = 0.5 if quick else 6.0
    rows: list[tuple[str, ...]] = []
    values: list[dict[str, Any]] = []
    with LocalService(settings={"preset": "flat"}) as service:
        parts = urlsplit(service.url)
        address = Address(str(parts.hostname), int(parts.port or 0))
        generator = np.random.default_rng(0)
        with GMRClient(service.url) as client:
            for _ in range(5):
                client.ingest(generator.normal(size=(100, 16)).astype("f4"))
            client.wait_until_learned()
        api = _api_process(service.pid)
        for name, attack in attacks(1 if quick else 30).items():
            say(f"{name}, {seconds:g} s")
            before = _resident_mib(api)
            taken = _ask_meanwhile(address, attack, seconds)
            p50, p99 = (float(np.quantile(taken, share)) for share in (0.5, 0.99))
            after = _resident_mib(api)
            values.append(
                {
                    "attack": name,
                    "answers": len(taken),
                    "p50": p50,
                    "p99": p99,
                    "slowest": max(taken),
                    "mib_before": before,
                    "mib_after": after,
                }
            )
            rows.append(
                (
                    name,
                    str(len(taken)),
                    milliseconds(p50),
                    milliseconds(p99),
                    milliseconds(max(taken)),
                    f"{before:.0f}",
                    f"{after:.0f}",
                )
            )
    slowest = max(values, key=lambda value: value["p99"])
    return Measurement(
        tables=(
            Table(
                "GET /health/live under attack",
                ("attack", "answers", "p50, ms", "p99, ms", "slowest, ms", "MiB before", "after"),
                tuple(rows),
            ),
        ),
        values={"seconds_per_attack": seconds, "attacks": values},
        floors=(
            Floor(
                f"answers a second that the p99 under `{slowest['attack']}` comes to",
                1 / slowest["p99"],
                1 / AIM_S,
                "a second",
            ),
        ),
    )


def attacks(mib: int) -> dict[str, Attack]:
    """The attacks by name.

    Arguments:
        mib: Size of large bodies, MiB.
    """
    head = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
    row = b"[" + b",".join(b"0.1234567" for _ in range(D)) + b"]"
    n_rows = mib * MIB // (len(row) + 1)
    table = b'{"features": [' + b",".join([row] * n_rows) + b"]}"
    size = len(table)
    batch = RawBatch.of(np.full((size // (4 * 1024), 1024), 0.5, "f4"))
    bodies = {
        "JSON": table,
        "rows": b'{"features": [' + b",".join([b"[0.5]"] * (mib * 40_000)) + b"]}",
        "NaN": table[: -len(row) - 2] + b"[NaN]]}",
        "nested": b'{"features": ' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
        "flat": b'{"features": [' + b"0.5," * (size // 4) + b"1]}",
    }
    return {
        ALONE: lambda address, stop: None,
        "header": _endless(head + b"X-Long: ", b"x" * 65536, 1600),
        "address": _endless(b"GET /", b"x" * 65536, 1600),
        "fields": _endless(head, b"X-Many: " + b"y" * 4000 + b"\r\n", 50_000),
        "half-open": _crowd(head, 400),
        "slow bodies": _crowd(_post(JSON, size) + table[:60_000], 400),
        **{name: _together(6, _posting(JSON, body)) for name, body in bodies.items()},
        "binary": _together(6, _posting(SAFETENSORS, batch.to_safetensors())),
    }


def _post(form: str, size: int) -> bytes:
    return (
        f"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: {form}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def _endless(begin: bytes, piece: bytes, times: int) -> Attack:
    """Begins as told, and goes on with the same piece."""

    def attack(address: Address, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), address.connect() as connection:
                connection.sendall(begin)
                for _ in range(times):
                    if stop.is_set():
                        break
                    connection.sendall(piece)

    return attack


def _crowd(begin: bytes, n: int) -> Attack:
    """Opens many connections, begins on each, and waits; opens those anew that were closed."""

    def attack(address: Address, stop: threading.Event) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(n):
                if stop.is_set():
                    break
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(address.connect())
                    connection.sendall(begin)
            stop.wait()

    return attack


def _posting(form: str, body: bytes) -> Attack:
    """Posts the same body again and again over one connection, and reads each answer."""

    def attack(address: Address, stop: threading.Event) -> None:
        while not stop.is_set():
            connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                while not stop.is_set():
                    connection.request("POST", "/classify", body, {"Content-Type": form})
                    connection.getresponse().read()

    return attack


def _together(n: int, attack: Attack) -> Attack:
    """The same attack from n threads."""

    def together(address: Address, stop: threading.Event) -> None:
        threads = [threading.Thread(target=attack, args=(address, stop)) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return together


def _ask_meanwhile(address: Address, attack: Attack, seconds: float) -> list[float]:
    """Seconds that each answer took, while the attack goes on."""
    stop = threading.Event()
    attacker = threading.Thread(target=attack, args=(address, stop))
    attacker.start()
    try:
        return list(_asked(address, time.monotonic() + seconds))
    finally:
        stop.set()
        attacker.join()


def _asked(address: Address, end: float) -> Iterator[float]:
    with contextlib.closing(http.client.HTTPConnection(address.host, address.port, 60)) as asking:
        answers = 0
        while time.monotonic() < end or answers < FEWEST:
            answers += 1
            begun = time.perf_counter()
            asking.request("GET", "/health/live")
            answer = asking.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            yield time.perf_counter() - begun
            time.sleep(0.002)


def _api_process(supervisor: int) -> int:
    """The process that answers, among the children of `gmr serve`."""
    for task in Path(f"/proc/{supervisor}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"service.api" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("gmr serve has no API process")


def _resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
