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

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from clients.commands.bench import Measurement, Say, Table
from clients.evaluation.local import free_port
from clients.http.client import GMRClient

ALONE: Final = """
from service.supervisor import fork_server
fork_server.adopt_orphans = lambda: False
"""
SERVE: Final = """
from service.settings import Settings
from service.supervisor.run import serve
raise SystemExit(serve(Settings.load()))
"""
WAYS: Final = {"forked": SERVE, "python -m": ALONE + SERVE}
FIGURES: Final = ("answers", "ready", "processor", "trainer", "API", "memory")
MIB: Final = 1024
"""kB, of which the system tells memory."""

STEP_S: Final = 0.005
PATIENCE_S: Final = 120.0


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
    with tempfile.TemporaryDirectory(prefix="gmr-starts-") as name, _service(program, name) as one:
        process, url, begun = one
        answers = _until(lambda: _answers(url + "/health/live")) - begun
        ready = _until(lambda: _answers(url + "/health/ready")) - begun
        processor = sum(map(_processor, (process.pid, *_children(process.pid))))
        with GMRClient(url) as client:
            for batch in batches[:5]:
                client.ingest(batch)
            client.wait_until_learned()

            begun = _kill(process.pid, "service.trainer")
            client.ingest(batches[5])
            client.wait_until_learned()
            trainer = time.monotonic() - begun

            begun = _kill(process.pid, "service.api")
            api = _until(lambda: _answers(url + "/health/live")) - begun
            client.wait_until_learned()
        memory = sum(map(_memory, (process.pid, *_children(process.pid))))
        return dict(zip(FIGURES, (answers, ready, processor, trainer, api, memory), strict=True))


@contextlib.contextmanager
def _service(program: str, folder: str) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    port = free_port()
    settings = {"data_dir": folder, "port": port, "preset": "flat", "device": "cpu"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GMR_")}
    given = {f"GMR_{name.upper()}": str(value) for name, value in settings.items()}
    with (Path(folder) / "log").open("wb") as log:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", program], env={**kept, **given}, stdout=log, stderr=log
        )
    try:
        yield process, f"http://127.0.0.1:{port}", begun
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _until(true: Callable[[], Any]) -> float:
    """When it became true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Still not true after {PATIENCE_S:.0f} seconds.")
        time.sleep(STEP_S)
    return time.monotonic()


def _kill(supervisor: int, part: str) -> float:
    """Kill a part; when that was."""
    for pid in _children(supervisor):
        if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return time.monotonic()
    raise ProcessLookupError(f"Process {supervisor} runs no {part}.")


def _children(supervisor: int) -> list[int]:
    text = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("utf-8")
    return [int(pid) for pid in text.split()]


def _processor(pid: int) -> float:
    """Seconds of processor time that a process and its ended children have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """MiB of a process, what it shares with others divided by their number."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / MIB
