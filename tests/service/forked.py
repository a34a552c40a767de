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
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STEP_S = 0.01

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
SHARED = f"\0gmr-forks-{RUN}" if RUN and sys.platform == "linux" else ""
"""Address of the process that is forked for all workers of a run; it leaves no file behind."""

TITLE = "the process that tests fork, whose name has room"
"""Its argument: a fork that is to have another name writes it over these."""

TRAINER = """
from service.ending import end_with
from service.trainer.__main__ import work
end_with(work)
"""


class Forks:
    """A connection to the process that is forked, which has a single thread and does as asked.

    All workers of a run of pytest-xdist share one: the first that needs it starts it, and it ends
    with the last connection. A worker's forks are killed with its own, also where it was killed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        while not self._is_answered(connection := self._connected() or self._started()):
            connection.close()  # it was about to end, or another worker was quicker
            self._ended()

    def _connected(self) -> socket.socket | None:
        """To the one that is shared, where there is one."""
        if not SHARED:
            return None
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(SHARED)
            _check_peer(connection)
        except ConnectionRefusedError:
            connection.close()
            return None
        return connection

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.service.forked", TITLE],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                cwd=ROOT,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
            )
        return ours

    def _is_answered(self, connection: socket.socket) -> bool:
        self._socket, self._lines = connection, connection.makefile("rw")
        try:
            return bool(self.ask(hello=True))
        except (OSError, json.JSONDecodeError):
            with contextlib.suppress(OSError):
                self._lines.close()
            return False

    def ask(self, **request: Any) -> Any:
        print(json.dumps(request), file=self._lines, flush=True)
        return json.loads(self._lines.readline())

    def _ended(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End whatever it has begun; and where it was started here, wait until all have done so."""
        self._lines.close()
        self._socket.close()
        self._ended()


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


def _check_peer(connection: socket.socket) -> None:
    """Whoever else is on the machine may find the address, and has no business there.

    Raises:
        PermissionError: The other end belongs to another user.
    """
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", told)
    if user != os.getuid():
        raise PermissionError(f"the other end belongs to user {user}")


# In the process that is forked ------------------------------------------------------------


class Served:
    """Whoever has a connection, in the process that is forked."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.lines = connection, connection.makefile("rw")
        self._children: set[int] = set()

    def answer(self) -> dict[str, Any] | None:
        """Do as asked once; in a fork, what it is to run.

        Raises:
            EOFError, OSError: The other end is closed.
        """
        if not (line := self.lines.readline()):
            raise EOFError
        asked = json.loads(line)
        answer: Any = True
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            self._children -= {pid}
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif "program" in asked:
            for name in asked["modules"]:
                importlib.import_module(name)
            answer = os.fork()
            if not answer:
                begun: dict[str, Any] = asked
                return begun
            self._children.add(answer)
        print(json.dumps(answer), file=self.lines, flush=True)
        return None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.lines.close()
        self.socket.close()

    def kill(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _serve(listening: socket.socket | None) -> tuple[str, list[str]] | None:
    """Do as asked until all other ends are closed; in a fork, what it is to run."""
    served = [Served(socket.socket(fileno=os.dup(0)))]
    while served:
        sockets = [one.socket for one in served] + ([listening] if listening else [])
        ready, _, _ = select.select(sockets, [], [])
        for one in [one for one in served if one.socket in ready]:
            try:
                asked = one.answer()
            except (EOFError, OSError):
                one.close()
                one.kill()
                served.remove(one)
                continue
            if asked is not None:
                for other in served:
                    other.close()
                if listening:
                    listening.close()
                return _begin(asked)
        if listening and listening in ready:
            connection = listening.accept()[0]
            try:
                _check_peer(connection)
            except PermissionError:
                connection.close()
            else:
                served.append(Served(connection))
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


def _listening() -> socket.socket | None:
    """Where other workers connect.

    Raises:
        OSError: Another process is there already.
    """
    if not SHARED:
        return None
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(SHARED)
    listening.listen()
    return listening


def main() -> None:
    try:
        listening = _listening()
    except OSError:
        return
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
    todo = _serve(listening)
    if todo is not None:
        program, arguments = todo
        sys.argv = ["-c", *arguments]
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
