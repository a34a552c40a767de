"""A process that the supervisor starts, starts again when it dies, and stops."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from core.errors import GMRError, InvalidSettings
from service.ending import MUST_CHANGE_SETTINGS
from service.supervisor.fork_server import Birth, Forked, ForkServer
from service.supervisor.kinship import die_with_parent
from service.supervisor.watchdog import LOOK_S

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
DEATHS_S: Final = 60.0
"""Seconds in which deaths of one part are counted."""


class PartFailed(GMRError):
    """A part of the service does not stay alive; the reason is in its own log."""


class Deaths:
    """How often a part died lately, and how long to wait before it is started again.

    Arguments:
        most: Deaths within a minute that are survived.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: deque[float] = deque()

    def count(self) -> float | None:
        """One more; the pause in seconds, or None when it was one too many."""
        now = time.monotonic()
        self._times.append(now)
        while now - self._times[0] > DEATHS_S:
            self._times.popleft()
        n = len(self._times)
        return (
            None if n > self._most else min(FIRST_PAUSE_S * 2.0 ** min(n, 10) / 2, LONGEST_PAUSE_S)
        )


class Part:
    """A child process of the supervisor: the trainer or the API.

    Arguments:
        name: For people.
        module: Run as `python -m module`.
        environment: All of it.
        deaths: That it has died so far.
        fork_server: With the same environment; None where the process begins by itself.
    """

    def __init__(
        self,
        name: str,
        module: str,
        environment: Mapping[str, str],
        deaths: Deaths,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.name = name
        self._arguments = [module]
        self._environment = dict(environment)
        self._fork_server = fork_server
        self.birth: Birth | None = None
        """Of its process, which has been asked for and is not there yet."""
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._deaths = deaths
        self._start_at = self._look_at = 0.0
        self.faults: Callable[[int], str | None] | None = None

    @property
    def pid(self) -> int | None:
        """The process, or None where there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process. Only from the main thread: its life is tied to that."""
        if self._fork_server is not None:
            self.birth = self._fork_server.ask(self._arguments)
        if self.birth is None:
            self._start_alone()

    def _start_alone(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self._arguments],
            stdin=subprocess.DEVNULL,
            env=self._environment,
            # Ctrl-C in a terminal reaches a whole group; the order is ours to keep.
            process_group=0,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )

    def watch(self) -> int | None:
        """Start the process again if it has died and its pause is over.

        Returns:
            Its exit status at the moment it is found dead, else None.

        Raises:
            InvalidSettings: It died because of a setting.
            PartFailed: It died too often.
        """
        if self.birth is not None:
            self._await(self.birth)
            return None
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self.start()
            return None
        status = self._process.poll()
        if status is None:
            return None
        self._process = None
        if status == MUST_CHANGE_SETTINGS:
            raise InvalidSettings(f"The {self.name} cannot work with these settings (see above).")
        pause = self._deaths.count()
        if pause is None:
            raise keeps_dying(self.name)
        logger.error("the %s died (%s); starting it again", self.name, describe(status))
        self._start_at = time.monotonic() + pause
        return status

    def _await(self, birth: Birth) -> None:
        assert self._fork_server is not None
        try:
            self._process = birth.child()
        except ChildProcessError:
            self.birth = None
            self._fork_server.failed()
            self._start_alone()
        if self._process is not None:
            self.birth = None

    def stop(self, timeout_s: float) -> bool:
        """Ask the process to end and wait; False when it had to be killed or failed."""
        self._forget_birth()
        if self._process is None:
            return True
        self._process.terminate()
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            logger.error("the %s did not end in %.0f s; killing it", self.name, timeout_s)
            self.kill()
            return False
        if status == -signal.SIGTERM:
            return True  # it was still starting, and had nothing to lose
        if status != 0:
            logger.error("the %s ended with %s", self.name, describe(status))
        return status == 0

    def look(self) -> None:
        """Kill the process if it hangs; `watch` starts it again."""
        now = time.monotonic()
        if self._process is None or self.faults is None or now < self._look_at:
            return
        fault = self.faults(self._process.pid)
        self._look_at = time.monotonic() + LOOK_S
        if fault is not None:
            logger.error("the %s hangs; killing it: %s", self.name, fault)
            self._process.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._forget_birth()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _forget_birth(self) -> None:
        if self.birth is not None:
            self.birth.give_up()
            self.birth = None


def keeps_dying(name: str) -> PartFailed:
    """What to raise where a part died too often."""
    return PartFailed(
        f"The {name} died too often within {DEATHS_S:.0f} seconds; the service "
        f"stops. The reason is in the log above."
    )


def describe(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"status {status}"
