"""A server as a child process, for as long as a block lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.servers.environment import Unavailable
from benchmarks.servers.registry import Server
from benchmarks.servers.scorer import SNAPSHOT, THREADS
from clients.evaluation.local import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
_START_S: Final = 120.0
_END_S: Final = 10.0


@contextmanager
def started(server: Server, python: Path, snapshot: Path, threads: int, log: Path) -> Iterator[int]:
    """The port of a server that answers.

    Arguments:
        server: Which.
        python: Interpreter of its environment.
        snapshot: File that it serves.
        threads: Of torch.
        log: File for what it prints.

    Raises:
        Unavailable: It ended, or did not answer in time.
    """
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GMR_")},
        "PYTHONPATH": str(ROOT),
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "BENTOML_DO_NOT_TRACK": "true",
        # Ours writes none by default, nor do the others as they are started here.
        "BENTOML_CONFIG_OPTIONS": "services.Mixture.logging.access.enabled=false",
        SNAPSHOT: str(snapshot),
        THREADS: str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [str(python), "-m", f"benchmarks.servers.{server.module}", "--port", str(port)]
    with log.open("wb") as out:
        # A session of its own, since some start processes of their own that outlive them.
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            _wait(server, child, f"http://127.0.0.1:{port}{server.ready}", log)
            yield port
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask its whole session to end, and make it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_S)


def _wait(server: Server, child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if child.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise Unavailable(f"{server.name} did not become ready: {' '.join(last)}")
