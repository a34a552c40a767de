"""The supervisor's end of a process that has imported what parts import, and forks them.

A part that is forked is there at once, and shares with the others the memory of all that they
import. It is a child of the supervisor as any other is. Where there is no such process, or it
fails, parts begin as `python -m` begins them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from service.supervisor.kinship import adopt_orphans, die_with_parent

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 120.0
"""Seconds for a birth, the first of which waits for the imports."""

STEP_S: Final = 0.01

GPUS: Final = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
"""What is there where Linux drives a GPU: NVIDIA's, AMD's, that of Windows around it."""


def may_fork(device: str) -> bool:
    """Whether parts with this setting may be forks: not where they may come to use a GPU.

    No context of a GPU is there before a fork, but nobody has tried what its libraries leave.
    """
    return device == "cpu" or (device == "auto" and not any(path.exists() for path in GPUS))


class Forked:
    """A child that another process has forked; the part of `subprocess.Popen` that is asked of it.

    Arguments:
        pid: Of the child, which is this process's own.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, minus the number of a signal; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # a signal's handler was told first, as Popen has it, too
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(STEP_S)
        return status

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        # Its number is its own until its end has been asked for.
        if self.poll() is None:
            os.kill(self.pid, number)


class Birth:
    """A child that has been asked for.

    Arguments:
        ours: Socket on which it says its number, and goes on when that is answered.
        happened: Called when it is there.
    """

    def __init__(self, ours: socket.socket, happened: Callable[[], None]) -> None:
        self._socket, self._happened = ours, happened
        self._socket.setblocking(False)
        self._deadline = time.monotonic() + PATIENCE_S

    def fileno(self) -> int:
        """What becomes readable when there is something to be taken note of."""
        return self._socket.fileno()

    def child(self) -> Forked | None:
        """The child, once it is there.

        Raises:
            ChildProcessError: It will not come.
        """
        try:
            said = self._socket.recv(32)
            if said:
                self._socket.send(b"+")
        except BlockingIOError:
            if time.monotonic() < self._deadline:
                return None
            said = b""
        except OSError:
            said = b""
        self.give_up()
        if not said:
            raise ChildProcessError("no child was forked")
        self._happened()
        return Forked(int(said))

    def give_up(self) -> None:
        """Want it no longer: a child that has not been taken note of ends by itself."""
        self._socket.close()


class ForkServer:
    """Begins the process that forks, and asks it.

    Use it from the main thread: the process ends with that.

    Arguments:
        environment: Of the process, and of all that it forks.
        command: The arguments of its Python.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        command: Sequence[str] = ("-m", "service.supervisor.preloaded"),
    ) -> None:
        self._environment = dict(environment)
        self._command = [sys.executable, *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._usable, self._works = adopt_orphans(), False

    @property
    def pid(self) -> int | None:
        """The process; None where there is none."""
        ended = self._process is None or self._process.poll() is not None
        return None if self._process is None or ended else self._process.pid

    def begin(self) -> None:
        """Begin the process if it is not there, so that it imports meanwhile."""
        if not self._usable or self.pid is not None:
            return
        self.end()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                env=self._environment,
                process_group=0,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    def ask(self, arguments: Sequence[str]) -> Birth | None:
        """Ask for a child; None where none can be had.

        Arguments:
            arguments: A module to be run as by `python -m`, and what follows it.
        """
        for _ in range(2):
            self.begin()
            if self._control is None:
                return None
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    message = orjson.dumps(list(arguments))
                    socket.send_fds(self._control, [message], [theirs.fileno()])
                    return Birth(ours, self._has_worked)
                except OSError:  # it died just now: another one
                    ours.close()
                    self.end()
        return None

    def failed(self) -> None:
        """End the process, which did not do what was asked; for good where it never has."""
        logger.warning("the process that parts are forked from does not work; starting them alone")
        self.end()
        self._usable = self._works

    def _has_worked(self) -> None:
        self._works = True

    def end(self) -> None:
        """End the process. Nothing is lost by that."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
