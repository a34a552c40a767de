"""Trainers as processes that begin at once: children of one that has imported everything."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from service.settings import Settings

ROOT = Path(__file__).parents[3]

SCRIPT = """
import importlib, json, os, signal, sys
from service.broker import lease
lease.LEASE_S = 2.0
from service.settings import Settings
from service.trainer import host, pace, takeover
import numba, obstore.store

def dying_at(path, method, when, nth):
    module, _, name = path.rpartition(".")
    owner, left = getattr(importlib.import_module(module), name), [nth]
    whole = getattr(owner, method)
    def dying(*given, **named):
        left[0] -= 1
        if when == "before" and not left[0]: os.kill(os.getpid(), signal.SIGKILL)
        result = whole(*given, **named)
        if when == "after" and not left[0]: os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, method, dying)

for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        said = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
    elif not (said := os.fork()):
        os.environ.update(asked["environment"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        if asked["dies"]:
            dying_at(*asked["dies"])
            # Reports wait for as long as they may, and longer.
            host.ALONE = pace.Pace(house_s=0.5, status_s=1.0)
        os._exit(host.main(Settings.load()))
    print(json.dumps(said), flush=True)
"""


class Zygote:
    """Begins trainers.

    Arguments:
        process: Of `SCRIPT`.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._alive: set[int] = set()

    def begin(self, settings: Settings, log: Path, dies: Sequence[Any] = ()) -> int:
        """A trainer; its process.

        Arguments:
            settings: Of the service.
            log: Where its log goes.
            dies: The path of a class, a method of it, "before" or "after", and which call: there
                it is killed.
        """
        log.touch()
        asked = {"environment": settings.environment(), "log": str(log), "dies": list(dies)}
        pid = self._ask(asked)
        self._alive.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """The exit status of a trainer, minus the signal that ended it."""
        status = self._ask({"wait": pid})
        self._alive.discard(pid)
        return status

    def kill(self) -> None:
        """End those that still run."""
        for pid in self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def _ask(self, what: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return int(json.loads(self._process.stdout.readline()))


@contextlib.contextmanager
def zygote() -> Iterator[Zygote]:
    """One at work; all that it began have ended afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        text=True,
    )
    made = Zygote(process)
    try:
        yield made
    finally:
        made.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
