"""A part that writes down what process it is, into a file named by its number in `FACTS`."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import prometheus_client
import torch

from core.engine.warm_up import warm_up

FACTS: Final = "FACTS"
STATUS: Final = 7


def _process() -> dict[str, Any]:
    """What a program finds in its process."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    mask = os.umask(0)
    os.umask(mask)
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "arguments": sys.argv,
        "name": __name__,
        "path": sys.path,
        "flags": str(sys.flags),
        "blocked, ignored and caught": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "files": _files(),
        "threads": [one.name for one in threading.enumerate()],
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "mask": mask,
        "limits": [resource.getrlimit(limit) for limit in limits],
        "niceness": os.nice(0),
        "session": os.getsid(0),
        "leads its group": os.getpgid(0) == os.getpid(),
        "parent": os.getppid(),
        "users": [*os.getresuid(), *os.getresgid()],
        "collects garbage": gc.isenabled(),
        "thresholds": gc.get_threshold(),
        "log": [logging.root.level, len(logging.root.handlers)],
        "timeout": socket.getdefaulttimeout(),
        "hooks": str((sys.excepthook, sys.displayhook, threading.excepthook)),
        "metrics": sorted(prometheus_client.REGISTRY._names_to_collectors),
        "pools": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "devices": [torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()],
    }


def _files() -> dict[str, str]:
    """What is open, by number."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the folder itself, while it was listed
            continue
    return found


def _bits() -> list[str]:
    """Digests of what pools of threads compute: those of torch, of OpenBLAS, of compiled loops."""
    torch.set_num_threads(1)
    warm_up()
    torch.set_num_threads(2)
    x = torch.randn(400, 400, generator=torch.Generator().manual_seed(1))
    matrix = x.numpy()
    computed = ((x @ x).numpy(), x.exp().sum().numpy(), matrix @ matrix)
    return [
        hashlib.sha256(one.tobytes()).hexdigest()
        for one in (*computed, np.linalg.eigvalsh(matrix + matrix.T))
    ]


def main() -> None:
    """Write all of it down."""
    found = {
        "process": _process(),
        "bits": _bits(),
        "computes by threads": len(os.listdir("/proc/self/task")) > 1,
        "drawn": [random.random(), np.random.rand(), torch.initial_seed(), os.urandom(4).hex()],
    }
    Path(os.environ[FACTS], str(os.getpid())).write_bytes(orjson.dumps(found))


if __name__ == "__main__":
    main()
    sys.exit(STATUS)
