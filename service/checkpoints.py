"""Checkpoints on disk: bytes in, bytes out, whole or not at all.

A checkpoint is a file `<version>-<entries applied>.safetensors` in a folder that one
trainer has to itself. It is written beside its final name, forced to disk, and
renamed: a kill or a power failure leaves the old files, or the old files and the new
one. A note of the same name, in JSON, says where it came from; it is for people and
for choosing what to delete, and nothing breaks without it. What the bytes mean is
core's business.

Rules of this module:

1. `entries applied` orders checkpoints in time. Versions do not: after a rollback an
   older version is served again.
2. Kept are the newest few, from which a start tries in turn, and the last one before
   each of the latest boundaries, to go back to.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

logger = logging.getLogger(__name__)

NEWEST_KEPT: Final = 3
BOUNDARIES_KEPT: Final = 10

BEFORE_BOUNDARY: Final = "before_boundary"
"""Key of a note that holds the number of the boundary that came right after."""


@dataclass(frozen=True)
class Kept:
    """One checkpoint on disk.

    Arguments:
        path: Where it is.
        version: Of the model in it.
        entries_applied: Entries of the input stream that it contains.
        note: Where it came from, JSON-ready; empty where that is lost.
    """

    path: Path
    version: int
    entries_applied: int
    note: dict[str, Any]


class Checkpoints:
    """The checkpoints in one folder.

    Example:
        >>> import tempfile
        >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()) / "checkpoints")
        >>> checkpoints.write(b"...", version=7, entries_applied=9, note={"sub_task": 2})
        >>> [(kept.version, kept.entries_applied, kept.note) for kept in checkpoints.kept()]
        [(7, 9, {'sub_task': 2})]
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in directory.glob("*.tmp"):  # of a write that was killed
            leftover.unlink(missing_ok=True)

    def write(
        self, data: bytes, *, version: int, entries_applied: int, note: Mapping[str, object]
    ) -> None:
        """Put a checkpoint on disk; it is durable when this returns.

        Raises:
            OSError: The disk is full or fails; the checkpoints of before are whole.
        """
        path = self.directory / f"{version}-{entries_applied}.safetensors"
        write_atomically(_note_of(path), json.dumps(note).encode(), durable=False)
        write_atomically(path, data, durable=True)

    def kept(self) -> list[Kept]:
        """What is on disk, newest first."""
        return sorted(self._find(), key=lambda kept: -kept.entries_applied)

    def prune(self) -> None:
        """Delete what need not be kept."""
        found = self.kept()
        before_boundaries = [kept for kept in found if BEFORE_BOUNDARY in kept.note]
        keep = found[:NEWEST_KEPT] + before_boundaries[:BOUNDARIES_KEPT]
        names = {kept.path.stem for kept in keep}
        for path in self.directory.iterdir():
            if path.suffix in (".safetensors", ".json") and path.stem not in names:
                path.unlink(missing_ok=True)

    def _find(self) -> Iterator[Kept]:
        for path in self.directory.iterdir():
            match = re.fullmatch(r"(\d+)-(\d+)\.safetensors", path.name)
            if match:
                yield Kept(path, int(match[1]), int(match[2]), _read_note(path))


def write_atomically(path: Path, data: bytes, *, durable: bool) -> None:
    """Put bytes under a name at once: readers find the file whole or not at all.

    Arguments:
        path: Final name; a file that has it is replaced.
        data: All of the content.
        durable: Whether it must survive a power failure, too.
    """
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.rename(path)
    if durable:
        # The name is data of the folder.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _note_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _read_note(path: Path) -> dict[str, Any]:
    try:
        note = json.loads(_note_of(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
