"""A service of a benchmark's own, whose processes it looks into, kills and begins again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from clients.evaluation.local import free_port

SERVE: Final = """
from service.settings import Settings
from service.supervisor.run import serve
raise SystemExit(serve(Settings.load()))
"""
"""The program of `gmr serve`."""

KIB: Final = 1024
"""KiB of a MiB: the system tells memory in KiB."""

STEP_S: Final = 0.005
PATIENCE_S: Final = 300.0


@contextlib.contextmanager
def served(
    folder: str, settings: Mapping[str, object], program: str = SERVE
) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    """A service, stopped at the end: its process, its address, and when it was begun.

    Arguments:
        folder: Its data dir.
        settings: Beside data dir and port.
        program: Python code that serves.
    """
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GMR_")}
    chosen = {"data_dir": folder, "port": port, **settings}
    given = {f"GMR_{name.upper()}": str(value) for name, value in chosen.items()}
    with (Path(folder) / "log").open("ab") as log:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", program], env={**kept, **given}, stdout=log, stderr=log
        )
    try:
        yield process, f"http://127.0.0.1:{port}", begun
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers_at(url: str) -> bool:
    """Whether GET of an address is answered by 200."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def until(true: Callable[[], Any]) -> float:
    """When it became true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Still not true after {PATIENCE_S:.0f} seconds.")
        time.sleep(STEP_S)
    return time.monotonic()


def kill(supervisor: int, part: str) -> float:
    """Kill a part; when that was."""
    for pid in children(supervisor):
        if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return time.monotonic()
    raise ProcessLookupError(f"Process {supervisor} runs no {part}.")


def children(supervisor: int) -> list[int]:
    """Processes that a process has begun, or adopted."""
    text = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("utf-8")
    return [int(pid) for pid in text.split()]


def processor_of(pid: int) -> float:
    """Seconds of processor time that a process and its ended children have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> float:
    """MiB of a process, what it shares with others divided by their number."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / KIB
