"""Files that are written whole or not at all, whatever is killed or fails meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, durable: bool) -> None:
    """Put bytes under a name at once: readers find the file whole or not at all.

    Arguments:
        path: Final name; a file that has it is replaced.
        data: All of the content.
        durable: Whether it must survive a power failure, too.
    """
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.rename(path)
    except OSError:
        # A disk that is full is not to be held full by half a file.
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    if durable:
        force_names(path.parent)


def force_names(directory: Path) -> None:
    """Return when the names in a folder would survive a power failure: they are data of it."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
