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
2. Kept are the newest few, from which a start tries in turn, the last one before
   each of the latest boundaries, to go back to, and what a rollback went back to, for as long
   as its entry may be read again.
3. A write is read back. What differs from what was written is no checkpoint.
4. A *twin* is a second file of the newest checkpoint: what no single file can lose.
5. A version that answers in place of what is learned is kept as long as one of the newest
   checkpoints says so, and beside it the very snapshot that answers, a file
   `held-<version>.snapshot`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

logger = logging.getLogger(__name__)

NEWEST_KEPT: Final = 3
BOUNDARIES_KEPT: Final = 10

BEFORE_BOUNDARY: Final = "before_boundary"
"""Key of a note that holds the number of the boundary that came right after."""

HELD: Final = "held"
"""Key of a note that names the version that answers in place of the checkpoint's own."""


TWIN: Final = "-twin"
DAMAGED: Final = ".damaged"


@dataclass(frozen=True)
class Kept:
    """One checkpoint on disk.

    Arguments:
        path: Where it is.
        version: Of the model in it.
        entries_applied: Entries of the input stream that it contains.
        note: Where it came from, JSON-ready; empty where that is lost.
        twin: Whether it is the second file of that checkpoint.
    """

    path: Path
    version: int
    entries_applied: int
    note: dict[str, Any]
    twin: bool = False


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
        self,
        data: bytes,
        *,
        version: int,
        entries_applied: int,
        note: Mapping[str, object],
        twin: bool = False,
    ) -> None:
        """Put a checkpoint on disk; it is durable, and was read back, when this returns.

        Raises:
            OSError: The disk is full or fails, or gives back other bytes; the checkpoints of
                before are whole.
        """
        path = self.directory / f"{version}-{entries_applied}{TWIN * twin}.safetensors"
        write_atomically(_note_of(path), json.dumps(note).encode(), durable=False)
        write_atomically(path, data, durable=True)
        if _read_from_disk(path) != data:
            self.leave_out(path)
            raise OSError(f"{path} was written, and the disk gives back other bytes")

    def leave_out(self, path: Path) -> None:
        """Let a damaged checkpoint be none any more; the newest such file stays for people."""
        for older in self.directory.glob(f"*{DAMAGED}"):
            older.unlink(missing_ok=True)
        path.rename(path.with_suffix(DAMAGED))

    def kept(self) -> list[Kept]:
        """What is on disk, newest first."""
        return kept_in(self.directory)

    def prune(self, gone_back_to: Mapping[int, int] = MappingProxyType({})) -> None:
        """Delete what need not be kept.

        Arguments:
            gone_back_to: Versions that rollbacks went back to, each with the entries applied by
                then; kept until the newest two checkpoints hold the rollback.
        """
        found = self.kept()
        newest = found[:NEWEST_KEPT]
        before_boundaries = [kept for kept in found if BEFORE_BOUNDARY in kept.note]
        held = found[1].entries_applied if len(found) > 1 else 0
        needed = {version for version, applied in gone_back_to.items() if applied > held}
        answering = {kept.note[HELD] for kept in newest if HELD in kept.note}
        needed |= answering
        keep = [
            *newest,
            *before_boundaries[:BOUNDARIES_KEPT],
            *(kept for kept in found if kept.version in needed),
        ]
        names = {kept.path.stem for kept in keep}
        for path in self.directory.iterdir():
            if path.suffix in (".safetensors", ".json") and path.stem not in names:
                path.unlink(missing_ok=True)
        for path in self.directory.glob("held-*.snapshot"):
            version = int(path.stem.partition("-")[2])
            # Of one that is not older than all that is kept, no checkpoint may speak yet.
            if version not in answering and newest and version < newest[0].version:
                path.unlink(missing_ok=True)

    def write_held(self, version: int, data: bytes) -> None:
        """Keep the snapshot that answers in place of what is learned.

        Raises:
            OSError: The disk is full or fails.
        """
        write_atomically(self._held(version), data, durable=True)

    def read_held(self, version: int) -> bytes:
        """A snapshot that `write_held` kept.

        Raises:
            OSError: It is not there, or cannot be read.
        """
        return self._held(version).read_bytes()

    def _held(self, version: int) -> Path:
        return self.directory / f"held-{version}.snapshot"


def kept_in(directory: Path) -> list[Kept]:
    """The checkpoints of a folder, newest first. Nothing is changed there."""
    return sorted(_find(directory), key=lambda kept: (-kept.entries_applied, not kept.twin))


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
        # The name is data of the folder.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _find(directory: Path) -> Iterator[Kept]:
    for path in directory.iterdir():
        match = re.fullmatch(rf"(\d+)-(\d+)({TWIN})?\.safetensors", path.name)
        if match:
            note, twin = _read_note(path), match[3] is not None
            yield Kept(path, int(match[1]), int(match[2]), note, twin)


def _read_from_disk(path: Path) -> bytes:
    """The bytes of a file as the disk has them, where the system forgets what it holds itself."""
    with path.open("rb") as file:
        with contextlib.suppress(OSError, AttributeError):  # no such call, or no such file system
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def _note_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _read_note(path: Path) -> dict[str, Any]:
    try:
        note = json.loads(_note_of(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
