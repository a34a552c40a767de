"""Checkpoints on disk: bytes in, bytes out, whole or not at all.

What a saver needs of a place for checkpoints is `CheckpointStore`; `Checkpoints` is a folder, and
`service.store.checkpoints` an object store.

In a folder, a checkpoint is a file `<version>-<entries applied>.safetensors`, and one trainer has
the folder to itself. The file is written beside its final name, forced to disk, and renamed: a kill
or a power failure leaves the old files, or the old files and the new one. A note of the same name,
in JSON, written in the same way and before, says where it came from; it is for people and for
choosing what to delete. What the bytes mean is core's business.

Rules of this module:

1. `entries applied` orders checkpoints in time. Versions do not: after a rollback an
   older version is served again.
2. Kept are the newest few, from which a start tries in turn, the last one before
   each of the latest boundaries, to go back to, and what a rollback went back to, for as long
   as its entry may be read again. What an accepted rollback asks for is kept until it is done.
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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

logger = logging.getLogger(__name__)

NEWEST_KEPT: Final = 3
BOUNDARIES_KEPT: Final = 10

BEFORE_BOUNDARY: Final = "before_boundary"
"""Key of a note that holds the number of the boundary that came right after."""

HELD: Final = "held"
"""Key of a note that names the version that answers in place of the checkpoint's own."""


TWIN: Final = "-twin"
DAMAGED: Final = ".damaged"


@dataclass(frozen=True, kw_only=True)
class Kept(ABC):
    """One checkpoint that is kept.

    Arguments:
        version: Of the model in it.
        entries_applied: Entries of the input stream that it contains.
        note: Where it came from, JSON-ready; empty where that is lost.
        twin: Whether it is the second copy of that checkpoint.
    """

    version: int
    entries_applied: int
    note: dict[str, Any]
    twin: bool = False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for people."""

    @abstractmethod
    def read(self) -> bytes:
        """Its bytes, as the place has them; whether they are whole is for the reader to find out.

        Raises:
            StoreUnavailable: It cannot be read for the moment.
            OSError: It cannot be read.
            InvalidCheckpoint: It is not there, or is another one.
        """

    @abstractmethod
    def measure(self) -> tuple[float, int]:
        """When it was written, in Unix seconds, and its bytes."""


class CheckpointStore(Protocol):
    """A place for the checkpoints of one model; `Checkpoints` says what each member means."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def write(
        self,
        data: bytes,
        *,
        version: int,
        entries_applied: int,
        note: Mapping[str, object],
        twin: bool = False,
    ) -> None:
        """Put a checkpoint there."""

    def leave_out(self, kept: Kept) -> None:
        """Let a damaged one be none any more."""

    def kept(self) -> Sequence[Kept]:
        """What is there, newest first."""

    def prune(self, gone_back_to: Mapping[int, int] = MappingProxyType({})) -> None:
        """Delete what need not be kept."""

    def write_held(self, version: int, data: bytes) -> None:
        """Keep the snapshot that answers in place of what is learned."""

    def read_held(self, version: int) -> bytes:
        """A snapshot that `write_held` kept."""


class StoreUnavailable(OSError):
    """A store does not answer, or refuses; it may go well another time."""


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


K = TypeVar("K", bound=Kept)


def answering_in(found: Sequence[Kept]) -> set[int]:
    """Versions that answer in place of what the newest checkpoints hold.

    Arguments:
        found: All, newest first.
    """
    return {kept.note[HELD] for kept in found[:NEWEST_KEPT] if HELD in kept.note}


def worth_keeping(found: Sequence[K], gone_back_to: Mapping[int, int]) -> tuple[list[K], list[K]]:
    """Of the checkpoints there are, those that rule 2 keeps.

    Arguments:
        found: All, newest first.
        gone_back_to: Versions that rollbacks went back to, each with the entries applied by
            then; kept until the newest two checkpoints hold the rollback.

    Returns:
        Those that a start may need, and those beside them that a person may want to go back to;
        newest first.
    """
    held = found[1].entries_applied if len(found) > 1 else 0
    needed = {version for version, applied in gone_back_to.items() if applied > held}
    needed |= answering_in(found)
    must = [
        kept for place, kept in enumerate(found) if place < NEWEST_KEPT or kept.version in needed
    ]
    boundaries = [kept for kept in found if BEFORE_BOUNDARY in kept.note][:BOUNDARIES_KEPT]
    return must, [kept for kept in boundaries if kept not in must]


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

    def prune(self, gone_back_to: Mapping[int, int] = MappingProxyType({})) -> None:
        """Delete what need not be kept.

        Arguments:
            gone_back_to: Versions that rollbacks went back to, each with the entries applied by
                then; kept until the newest two checkpoints hold the rollback.
        """
        found = self.kept()
        must, may = worth_keeping(found, gone_back_to)
        names = {kept.path.stem for kept in (*must, *may)}
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
