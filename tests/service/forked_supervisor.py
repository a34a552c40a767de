"""What `python -m service.supervisor` is in a fork: its fork server is another fork of the same.

It runs in the fork (`tests.service.forked`), where all that parts import has been. What a part
does by itself it does as ever. How a service begins by itself is tried in tests/service/supervisor.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import socket
import sys
import traceback

from service.supervisor import preloaded, run
from service.supervisor.fork_server import Forked, ForkServer
from service.supervisor.kinship import die_with_parent, rename

MOST_FILES = 4096
"""Of which a fork of the supervisor closes those that are its own."""


class ForkingItself(ForkServer):
    """Begins the process that forks as a fork."""

    def begin(self) -> None:
        if not self._usable or self.pid is not None:
            return
        self.end()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        prepare = die_with_parent(signal.SIGKILL)
        with theirs:
            pid = os.fork()
            if not pid:
                # Never back into the supervisor, whose parts it would stop.
                os._exit(self._serve(theirs, prepare))
        self._process = Forked(pid)  # type: ignore[assignment]  # as much of Popen as is asked

    def _serve(self, theirs: socket.socket, prepare: object) -> int:
        """Be what `python -m service.supervisor.preloaded` would be; the exit status."""
        try:
            if callable(prepare):
                prepare()
            os.setpgid(0, 0)
            rename([sys.executable, "-m", preloaded.__name__])
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(theirs.fileno(), 0)
            os.closerange(3, MOST_FILES)
            logging.getLogger().handlers.clear()
            os.environ.clear()
            os.environ.update(self._environment)
            preloaded.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0


def main() -> None:
    """Do what `python -m service.supervisor` does."""
    run.ForkServer = ForkingItself  # type: ignore[misc]
    runpy.run_module("service.supervisor", run_name="__main__", alter_sys=True)
