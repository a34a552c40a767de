"""Processes of a test that begin at once: forks of one that has imported what a trainer imports.

A process of Python that learns takes three seconds of a processor before it does anything, most
of them for torch. Whatever is tried of processes (signals, deaths, ends) is as real in a fork.
How a process starts by itself is tried where whole services run: tests/service/supervisor.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STEP_S = 0.01

TITLE = "the process that tests fork, whose name has room"
"""Its argument: a fork that is to have another name writes it over these."""

TRAINER = """
from service.ending import end_with
from service.trainer.__main__ import work
end_with(work)
"""


class Forks:
    """The process that is forked, which has a single thread and waits for what to do."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.forked", TITLE],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and whatever it has begun."""
        self._process.communicate()


class Forked:
    """A process, to be used as one of `subprocess`.

    Arguments:
        forks: Of which it is one.
        program: What it does.
        arguments: `sys.argv` behind its first.
        environment: All of it.
        output: What it writes goes there; None: where the tests' own goes.
        modules: Imported before the fork, once for all that ask for them.
    """

    def __init__(
        self,
        forks: Forks,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path | None,
        modules: Sequence[str] = (),
    ) -> None:
        self._forks = forks
        self.returncode: int | None = None
        self.pid = int(
            forks.ask(
                program=program,
                arguments=list(arguments),
                environment=dict(environment),
                output=None if output is None else str(output),
                modules=list(modules),
            )
        )

    def poll(self) -> int | None:
        """The exit status; minus a signal's number; None while it lives."""
        if self.returncode is None:
            self.returncode = self._forks.ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        """The exit status, once there is one."""
        end = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            assert time.monotonic() < end, f"process {self.pid} does not end"
            time.sleep(STEP_S)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_forks: list[Forks] = []
"""One for each process that runs tests."""


@contextlib.contextmanager
def forked(
    program: str,
    *arguments: str,
    variables: Mapping[str, str],
    output: Path | None = None,
    modules: Sequence[str] = (),
) -> Iterator[Forked]:
    """A process that runs a program; killed at the end if it still lives.

    Arguments:
        program: As behind `python -c`.
        arguments: Given to it.
        variables: Beside those of the tests' own environment.
        output: What it writes goes there.
        modules: Imported before the fork, once for all that ask for them.
    """
    if not _forks:
        _forks.append(Forks())
        atexit.register(end_forks)
    if output is not None:
        output.touch()
    one = Forked(_forks[0], program, arguments, {**os.environ, **variables}, output, modules)
    try:
        yield one
    finally:
        one.kill()
        one.wait(20)


def end_forks() -> None:
    """At the end of all tests; at the latest when the process that runs them ends."""
    while _forks:
        _forks.pop().close()


# In the process that is forked ------------------------------------------------------------


def _serve() -> tuple[str, list[str]] | None:
    """Do as asked until the other end is closed; in a fork, what it is to run."""
    children = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            children -= {pid}
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            for name in asked["modules"]:
                importlib.import_module(name)
            answer = os.fork()
            if not answer:
                return _begin(asked)
            children.add(answer)
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    return None


def _begin(asked: dict[str, Any]) -> tuple[str, list[str]]:
    nothing = os.open(os.devnull, os.O_RDWR)
    output = asked["output"]
    if output is not None:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["program"], asked["arguments"]


def main() -> None:
    for name in (
        "service.trainer.host",
        "service.trainer.__main__",
        "core.engine.warm_up",
        "scipy.special",  # which a trainer imports when it first reports
    ):
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("core.engine.warm_up").warm_up()  # loads compiled loops
    gc.collect()
    gc.freeze()
    todo = _serve()
    if todo is not None:
        program, arguments = todo
        sys.argv = ["-c", *arguments]
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
