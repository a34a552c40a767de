"""`gmr serve` as a process, and what tests ask of it."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.settings import Settings
from service.wire import MEDIA_TYPE, RawBatch
from tests.service.running import LONGEST_S, wait_until

ROOT = Path(__file__).parents[3]


class Service:
    """`python -m service.supervisor` with a data dir of its own.

    Arguments:
        data_dir: Of the service.
        command: What python runs.
        environment: Beside that of this process.
        settings: Of the service; a port of 0 is a free one.
    """

    def __init__(
        self,
        data_dir: Path,
        command: Sequence[str] = ("-m", "service.supervisor"),
        environment: Mapping[str, str] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        values = {
            "data_dir": data_dir,
            "port": 0,
            "device": "cpu",
            "n_components": 4,
            "warm_up": 100,
            "settle_after_s": 3600,
            "publish_interval_s": 0.05,
            "checkpoint_interval_s": 0.1,
            **settings,
        }
        self.settings = Settings(**values)  # type: ignore[arg-type]
        given = {f"GMR_{name.upper()}": str(value) for name, value in values.items()}
        self.process = self._begun(command, {**environment, **given, "OMP_NUM_THREADS": "1"})
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = ""

    def _begun(self, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        """The process, with these variables beside those of this one."""
        return subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **variables},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)

    def wait_for_line(self, pattern: str, timeout_s: float = LONGEST_S) -> re.Match[str]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._new.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{pattern} not found in:\n{''.join(self.lines)}") from None
            if match := re.search(pattern, line):
                return match

    def wait_until_it_answers(self) -> None:
        self.url = self.wait_for_line(r"API: +(http://\S+)")[1]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def ingest(self, batch: RawBatch) -> None:
        """Send until it is accepted, as a client would."""

        def sent() -> bool:
            request = urllib.request.Request(
                self.url + "/ingest", batch.to_safetensors(), {"Content-Type": MEDIA_TYPE}
            )
            try:
                with urllib.request.urlopen(request, timeout=10):
                    return True
            except (OSError, urllib.error.URLError):
                return False

        wait_until(sent)

    def wait_for_backlog(self, entries: int) -> dict[str, Any]:
        def learned() -> dict[str, Any] | None:
            try:
                model: dict[str, Any] = self.get("/model")
            except (OSError, urllib.error.URLError):
                return None
            done = model["backlog"] == 0 and model["batches_seen"] + model["set_aside"] >= entries
            return model if done else None

        found: dict[str, Any] = wait_until(learned, 60)
        return found

    def children(self) -> dict[str, int]:
        """Process numbers of what runs, by name."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                command = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent != self.process.pid:
                continue
            if b"redis-server" in command[0]:  # which adds its socket to the name
                found["redis-server"] = int(path.name)
            elif command[1:2] == [b"-m"]:  # a process that has just died or begun has none
                found[os.fsdecode(next(filter(None, reversed(command))))] = int(path.name)
        return found

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30.0) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def service(data_dir: Path, **settings: object) -> Iterator[Service]:
    one = Service(data_dir, **settings)
    try:
        yield one
    finally:
        one.close()
