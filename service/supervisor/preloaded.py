"""`python -m service.supervisor.preloaded`: what parts import, imported once, and forked into them.

Its standard input is a socket, on which `service.supervisor.fork_server` asks. A part is what
`python -m` would have made of it, but for the imports, and is a child of the supervisor: it is
forked twice, and the supervisor adopts what has lost its parent. So this process may die, and no
part notices.

Rules of this module:

1. One thread, and no device: neither a pool of threads nor a context of CUDA survives a fork.
2. Whatever a part does by itself it does after the fork: settings, logs, signals, connections.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import signal
import socket
import sys
import time
from typing import Final

import orjson

from service.supervisor.kinship import die_with, rename

MODULES: Final = (
    "service.trainer.host",
    "service.api.app",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""The last four uvicorn imports by name when it begins to serve."""

MOST_BYTES: Final = 4096
STEP_S: Final = 0.0005


def preload() -> None:
    """Import what the parts import, and keep it out of the way of their garbage collectors."""
    gc.disable()  # next to nothing of this is garbage; looking for some takes a tenth of the time
    with contextlib.suppress(Exception):  # the part that cannot import it says so
        for module in MODULES:
            importlib.import_module(module)
    gc.freeze()


def has_one_thread() -> bool:
    """Whether a fork of this process leaves no thread behind.

    OpenBLAS has some as soon as numpy is imported. It ends them before a fork, and begins others
    where they are needed; so it is asked after one.
    """
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def serve(control: socket.socket) -> list[str] | None:
    """Fork as asked until the supervisor ends.

    Arguments:
        control: Connected to a `ForkServer`.

    Returns:
        In a part: the arguments of the Python that it is to be. None here, at the end.
    """
    supervisor = os.getppid()
    while True:
        message, given, _, _ = socket.recv_fds(control, MOST_BYTES, 1)
        if not given:
            return None
        with socket.socket(fileno=given[0]) as birth:
            between = os.fork()
            if between == 0:
                control.close()
                arguments = [str(one) for one in orjson.loads(message)]
                rename([sys.executable, "-m", arguments[-1]])
                between = os.getpid()
                if os.fork():
                    os._exit(0)
                _be_adopted(between, supervisor, birth)
                return arguments
        os.waitpid(between, 0)


def _be_adopted(parent: int, supervisor: int, birth: socket.socket) -> None:
    """Become a child of the supervisor, and wait until it has taken note; else end."""
    while os.getppid() == parent:
        time.sleep(STEP_S)
    die_with(supervisor, signal.SIGTERM)
    # Ctrl-C in a terminal reaches a whole group; the order is the supervisor's to keep.
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        birth.send(str(os.getpid()).encode())
        if birth.recv(1):
            return
    os._exit(0)


def _be(arguments: list[str]) -> None:
    """Do what `python -m` does with these arguments."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Else all parts would draw alike; Python's own generator sees to itself.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
    gc.enable()
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def main() -> None:
    """Preload, then serve on standard input."""
    preload()
    if not has_one_thread():
        sys.exit("The imports of the parts began threads, which no fork has; nothing is forked.")
    with socket.socket(fileno=os.dup(0)) as control:
        arguments = serve(control)
    if arguments is not None:
        _be(arguments)


if __name__ == "__main__":
    main()
