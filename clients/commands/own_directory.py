"""A directory that one demo uses at a time."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.http.errors import InputError

MARKER = "gmr-demo.lock"


@contextmanager
def own_directory(path: Path) -> Iterator[Path]:
    """An empty directory that no other demo uses meanwhile.

    Raises:
        InputError: it holds what a demo did not put there, or another demo runs in it.
    """
    marker = path / MARKER
    if path.exists() and not marker.exists() and any(path.iterdir()):
        raise InputError(
            f"{path} holds {next(path.iterdir()).name} and more that no demo put there; the demo "
            f"empties its directory. Choose another with --data-dir, or move these files away."
        )
    path.mkdir(parents=True, exist_ok=True)
    with marker.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"Another demo is running in {path}; each needs a directory of its own. Stop that "
                f"one, or choose another directory with --data-dir."
            ) from None
        for entry in path.iterdir():
            if entry == marker:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        yield path
