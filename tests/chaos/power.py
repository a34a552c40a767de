"""A power failure: every process ends at once, and what was never forced to the medium may be gone.

A kill alone takes nothing from the page cache, so that it cannot tell a service that forces bytes
to the medium from one that does not. Here the calls that do so are written down as they are made
(`power.c`, loaded into each process), and a failure cuts the rest: bytes of a file beyond its last
such call, and names that a folder did not have at its own. Of both, some may have arrived all the
same; chance says how much.

Not modelled: names of folders that nobody has ever forced, files that were deleted or replaced, and
bytes that arrive in another order than they were written in.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.preloaded import compiled

RECORD: Final = "CHAOS_POWER"
SOURCE: Final = Path(__file__).with_suffix(".c")
TORN: Final = b"*3\r\n$3\r\nSET\r\n$12\r\nhalf-wri"
"""The first half of a command, as a server that is writing leaves it."""


class Inode(NamedTuple):
    """A file or a folder, whatever it is called."""

    device: int
    number: int

    @classmethod
    def of(cls, path: Path) -> Inode:
        """Raises FileNotFoundError where there is none."""
        found = path.stat()
        return cls(found.st_dev, found.st_ino)


class Medium:
    """What a data dir's medium holds for certain.

    Arguments:
        folder: For the record and the library; outside the data dir.
    """

    def __init__(self, folder: Path) -> None:
        self._record = folder / "forced"
        self.library = compiled(SOURCE, folder)
        self.environment = {RECORD: str(self._record)}

    def fail(self, data_dir: Path, chance: random.Random, *, torn: bool = False) -> int:
        """Take away what is not safe; the number of files that lost something.

        Arguments:
            data_dir: On which nobody works any more.
            chance: Decides how much of it is lost.
            torn: Whether Redis was writing a command.
        """
        safe, names = self._read()
        changed = 0
        for path in _files(data_dir):
            folder = names.get(Inode.of(path.parent))
            inode = Inode.of(path)
            if folder is not None and path.name not in folder and chance.random() < 0.5:
                path.unlink()  # a name is data of its folder
                changed += 1
                continue
            size = path.stat().st_size
            least = min(safe.get(inode, 0), size)
            kept = least if chance.random() < 0.5 else chance.randint(least, size)
            if kept < size:
                os.truncate(path, kept)
                changed += 1
        if torn:
            with commands_of(data_dir / "redis").open("ab") as file:
                file.write(TORN)
                os.fsync(file.fileno())
            changed += 1
        return changed

    def _read(self) -> tuple[dict[Inode, int], dict[Inode, set[str]]]:
        """Bytes of files, and names in folders, that are safe."""
        safe, names = dict[Inode, int](), dict[Inode, set[str]]()
        for line in self._record.read_text("utf-8").splitlines():
            what, *listing = line.split("\t")
            kind, device, number, *size = what.split(" ")
            inode = Inode(int(device), int(number))
            if kind == "file":
                safe[inode] = int(size[0])
            else:
                names[inode] = set(listing)
        return safe, names


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.is_file())


def commands_of(folder: Path) -> Path:
    """The file to which Redis appends: of several parts the newest."""
    parts = sorted(folder.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
    return parts[-1] if parts else folder / "appendonly.aof"
