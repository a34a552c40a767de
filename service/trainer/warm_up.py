"""When loops are compiled: at installation if asked for, else while a trainer starts.

Trainers that start together, as hosts of a cluster do, would each compile the same loops. So the
first does, and the others read what it has kept.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import core
from core.config import EngineConfig
from core.engine.warm_up import warm_up

logger = logging.getLogger(__name__)

FOLDER = Path(core.__file__).parent
"""In which loops are, and are kept beside their sources (`core.compiled.kept`)."""

PATIENCE_S: Final = 900.0
"""Seconds to wait for another process, which may be stopped in the middle. Then all is compiled
here as well, which does no harm. A start on a busy machine takes less."""
LOOK_S: Final = 0.2


def warm_up_meanwhile(config: EngineConfig) -> None:
    """Compile or load them while samples are on their way, if anybody needs them."""
    if not (config.advised or "sequential" in (config.detector, *config.shadows)):
        return
    if not any(FOLDER.rglob("__pycache__/*.nbi")):
        logger.info(
            "No compiled loops are kept yet, so they are compiled now, which takes a processor "
            "half a minute, and minutes where it is busy. What comes meanwhile waits."
        )
    # A daemon: whoever stops the process does not wait for it.
    threading.Thread(target=warm_up_in_turn, name="warm-up", daemon=True).start()


def warm_up_in_turn() -> None:
    """Compile or load them, one process of this installation at a time.

    Samples that come meanwhile wait for nobody: what they need is compiled or loaded beside this.
    """
    with _turn(PATIENCE_S):
        warm_up()


@contextmanager
def _turn(patience_s: float) -> Iterator[None]:
    """A lock on the folder itself, so that no file is left behind.

    The system frees it when its holder ends, however that comes about. Where nothing can be kept,
    or the file system has no locks, nobody waits: there would be nothing to read.
    """
    try:
        if not os.access(FOLDER, os.W_OK):
            raise PermissionError
        folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        _take(folder, patience_s)
        yield
    finally:
        # Not by closing alone: a child that was forked meanwhile has it open, too.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


def _take(folder: int, patience_s: float) -> None:
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                logger.warning(
                    "Another process has been compiling loops for %.0f s, or is stopped; expected "
                    "an end. They are compiled here as well.",
                    patience_s,
                )
                return
        except OSError:
            return
        else:
            return
        if not told:
            told = True
            logger.info("Another process compiles or loads the loops; waiting to read them.")
        time.sleep(LOOK_S)


__all__ = ["warm_up", "warm_up_in_turn", "warm_up_meanwhile"]
