"""The checkpoints of one model in a folder: bytes in, bytes out, whole or not at all.

A checkpoint is a file `<version>-<entries applied>.safetensors`, and one trainer has the folder to
itself. The file is written beside its final name, forced to disk, and renamed: a kill or a power
failure leaves the old files, or the old files and the new one. Its note is a file of the same name,
in JSON, written in the same way and before. The snapshot that answers in place of what is learned
is a file `held-<version>.snapshot`. `service.store.kept` says what is kept.

A write is read back. What differs from what was written is no checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from service.atomic_write import write_atomically
from service.store.kept import (
    NEWEST_KEPT,
    TWIN,
    Kept,
    Pins,
    answering_in,
    nothing_pinned,
    with_pinned,
    worth_keeping,
)

DAMAGED: Final = ".damaged"


@dataclass(frozen=True, kw_only=True)
class KeptFile(Kept):
    """A checkpoint in a folder.

    Arguments:
        path: Where it is.
    """

    path: Path

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)

    def read(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes()

    def measure(self) -> tuple[float, int]:
        """When it was written, in Unix seconds, and its bytes."""
        stat = self.path.stat()
        return stat.st_mtime, stat.st_size


class FolderCheckpoints:
    """The checkpoints in one folder.

    Example:
        >>> import tempfile
        >>> checkpoints = FolderCheckpoints(Path(tempfile.mkdtemp()) / "checkpoints")
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
        write_atomically(_note_of(path), json.dumps(note).encode(), durable=True)
        write_atomically(path, data, durable=True)
        if _read_from_disk(path) != data:
            self._set_apart(path)
            raise OSError(f"{path} was written, and the disk gives back other bytes")

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return str(self.directory)

    def leave_out(self, kept: Kept) -> None:
        """Let a damaged checkpoint be none any more; the newest such file stays for people."""
        assert isinstance(kept, KeptFile)
        self._set_apart(kept.path)

    def _set_apart(self, path: Path) -> None:
        for older in self.directory.glob(f"*{DAMAGED}"):
            older.unlink(missing_ok=True)
        path.rename(path.with_suffix(DAMAGED))

    def kept(self) -> list[KeptFile]:
        """What is on disk, newest first."""
        return kept_in(self.directory)

    def prune(
        self, gone_back_to: Mapping[int, int] = MappingProxyType({}), pins: Pins = nothing_pinned
    ) -> None:
        """Delete what need not be kept.

        Arguments:
            gone_back_to: Versions that rollbacks went back to, each with the entries applied by
                then; kept until the newest two checkpoints hold the rollback.
            pins: Is asked about the versions of what would be deleted.
        """
        found = self.kept()
        must, may = worth_keeping(found, gone_back_to)
        names = {kept.path.stem for kept in with_pinned(found, (*must, *may), pins)}
        newest, answering = found[:NEWEST_KEPT], answering_in(found)
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


def kept_in(directory: Path) -> list[KeptFile]:
    """The checkpoints of a folder, newest first. Nothing is changed there."""
    return sorted(_find(directory), key=lambda kept: (-kept.entries_applied, not kept.twin))


def _find(directory: Path) -> Iterator[KeptFile]:
    for path in directory.iterdir():
        match = re.fullmatch(rf"(\d+)-(\d+)({TWIN})?\.safetensors", path.name)
        if match:
            yield KeptFile(
                path=path,
                version=int(match[1]),
                entries_applied=int(match[2]),
                note=_read_note(path),
                twin=match[3] is not None,
            )


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
