"""A private service: `gmr serve` as a child process, for as long as a block lasts.

For commands that need a service and were given no address. Rules:

* the child is always stopped: at the end of the block, on an error, on Ctrl-C,
  and (on Linux) even when this process is killed;
* it never touches what is not its own: the embedded Redis in a directory of its
  own, and no `GMR_` variable that says where data live or how the model learns
  reaches it, so the same command gives the same results in every shell;
* its output goes to a file, and an error quotes the end of that file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from clients.http.errors import ClientError, InputError

# Settings of the machine, not of the model: these may come from the environment.
_INHERITED = (
    "GMR_REDIS_BINARY",
    "GMR_DEVICE",
    "GMR_TRAINER_THREADS",
    "GMR_API_THREADS",
)
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 60.0
_SETTINGS_MUST_CHANGE = 2
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec, only async-signal-safe calls are sound.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class ServiceStopped(ClientError):
    """The private service could not be started, or ended on its own."""


class LocalService:
    """A service of our own, reachable at `url` inside a `with` block.

    Arguments:
        data_dir: Where it keeps its data; None for a temporary directory, removed at the end.
        port: Port to listen on; 0 for any free one.
        settings: Flags of `gmr serve` by the names of the settings, for example
            `{"n_components": 200}`; None values are left out.
        log: File for its output; None for `service.log` in the data directory.

    Example:
        with LocalService(settings={"seed": 1}) as service:
            print(service.url)
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        log: Path | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="gmr-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary else Path(str(data_dir))
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log or self.data_dir / "service.log"
        self._settings = {name: v for name, v in (settings or {}).items() if v is not None}
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def command(self) -> list[str]:
        """What is run."""
        flags = {"host": "127.0.0.1", "port": self.port, "data_dir": self.data_dir}
        return [
            *(sys.executable, "-m", "clients.commands.cli", "serve"),
            *(
                part
                for name, value in {**flags, **self._settings}.items()
                for part in (f"--{name.replace('_', '-')}", str(value))
            ),
        ]

    @property
    def pid(self) -> int:
        """Process id of the supervisor; 0 while it does not run."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it and wait until it is ready; a `with` block does that.

        Raises:
            InputError: a setting will not do.
            ServiceStopped: it ended, or did not become ready in time.
        """
        try:
            self._spawn()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raise `ServiceStopped` if the service ended on its own."""
        code = self._process.poll() if self._process else None
        if code == _SETTINGS_MUST_CHANGE and (complaint := self._complaint()):
            raise InputError(f"A private service was not started: {complaint}")
        if code is not None:
            raise ServiceStopped(
                f"The service ended by itself with exit status {code}; it should have gone on "
                f"until it was stopped. The end of its log ({self.log}):\n{self._tail()}",
                exit_status=code,
            )

    def stop(self) -> int | None:
        """End the service: it drains and saves, then exits. Safe to call again.

        Returns:
            Its exit status, 0 for a clean end; None if it never ran.
        """
        process, self._process = self._process, None
        try:
            if process is None:
                return None
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                return process.wait(_STOP_TIMEOUT_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as impatience:
                process.kill()
                process.wait()
                if isinstance(impatience, KeyboardInterrupt):
                    raise
                return process.returncode
        finally:
            if self._output is not None:
                self._output.close()
                self._output = None
            if self._temporary is not None:
                self._temporary.cleanup()

    def _spawn(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._output = self.log.open("wb")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith("GMR_") or name in _INHERITED
        }
        root = str(Path(__file__).resolve().parent.parent.parent)
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            # A session of its own: Ctrl-C in the terminal is for us; we end the service in order.
            start_new_session=True,
            preexec_fn=_end_with_parent if _LIBC is not None else None,
        )

    def _wait_until_ready(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + _START_TIMEOUT_S
        reason = "it never answered"
        while time.monotonic() < deadline:
            self.check()
            try:
                with opener.open(f"{self.url}/health/ready", timeout=5):
                    return
            except urllib.error.HTTPError as answer:
                reason = answer.read().decode("utf-8", "replace")[:300]
            except OSError as error:
                reason = str(error)
            time.sleep(0.05)
        raise ServiceStopped(
            f"The service was not ready after {_START_TIMEOUT_S:.0f} s ({reason}). The end of its "
            f"log ({self.log}):\n{self._tail()}"
        )

    def _complaint(self) -> str | None:
        """What the command said of its flags; None where it said nothing of the kind."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        _, found, complaint = text.rpartition("Error: ")
        return complaint.strip() if found else None

    def _tail(self, lines: int = 15) -> str:
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "(empty)"


def free_port(preferred: int = 0) -> int:
    """`preferred` if nobody listens there, else any free port of the loopback interface."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            _keep_from_others(candidate)
            return int(candidate.getsockname()[1])
    raise ServiceStopped(
        "The system has no free port on 127.0.0.1 for a private service. Close programs that "
        "listen on many ports, or give the address of a running service with --url."
    )


def _keep_from_others(bound: socket.socket) -> None:
    """Let the system give the port to nobody else who asks for any, before it is bound again.

    A connection that its server ended keeps the port of the server for a minute (TIME-WAIT,
    RFC 9293, 3.6.1); whoever names the port and sets SO_REUSEADDR, as uvicorn does, gets it.
    """
    bound.listen(1)
    with socket.create_connection(bound.getsockname()) as caller:
        answering, _ = bound.accept()
        answering.close()
        caller.recv(1)


def _end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
