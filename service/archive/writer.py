"""Writes the archive of one model, beside learning.

Rules of this module:

1. A record is written when its entry is dealt with, and is on disk before a checkpoint holds what
   came of it: a start from that one reads the entry no more.
2. A disk that is full or fails stops no stream. The archive has a gap then, says so, and goes on
   with a new part as soon as it can.
3. Where all parts are larger than the limit, the oldest go; the newest stays, whatever it takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from service.archive.parts import Part, parts_in
from service.archive.record import Record
from service.atomic_write import force_names, write_atomically

logger = logging.getLogger(__name__)

PARTS: Final = 4
"""Into about so many an archive is divided once it is full."""

PAUSE_S: Final = 10.0
"""After an error of the disk, before another attempt."""


class Archive:
    """The archive of one model, to which one trainer writes.

    Arguments:
        directory: Made where it is missing.
        most_bytes: Of all parts, about.
    """

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._file: IO[bytes] | None = None
        self._nbytes = self._base_nbytes = 0
        self._failed_at = float("-inf")
        self.error: str | None = None

    def append(self, records: Sequence[Record], base: Callable[[], bytes]) -> None:
        """Write down entries that were applied together; no part ends between them.

        Arguments:
            records: Of these, at least one.
            base: Gives the checkpoint of the state before them, where a part begins.
        """
        if time.monotonic() - self._failed_at < PAUSE_S:
            return
        try:
            if self._file is None:
                self._file = self._begun(records[0].n - 1, base())
                self._prune()
            data = b"".join(record.to_bytes() for record in records)
            self._file.write(data)
            self._nbytes += len(data)
            # Never for less than another checkpoint takes, or these would be most of it.
            if self._nbytes > max(self._most_bytes / PARTS, self._base_nbytes):
                self._end()
            self.error = None
        except OSError as error:
            self._fail(error)

    def sync(self) -> None:
        """Return when all that was written is on disk, or cannot come there."""
        if self._file is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Finish."""
        try:
            self._end()
        except OSError as error:
            self._fail(error)

    def _begun(self, begins: int, base: bytes) -> IO[bytes]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max((part.number for part in parts_in(self._directory)), default=0)
        while True:
            number += 1
            part = Part(self._directory / f"{number:06d}-{begins}.entries", number, begins)
            # The base first: entries without it are of no use.
            write_atomically(part.base, base, durable=True)
            with contextlib.suppress(FileExistsError):  # of a trainer that was replaced just now
                file = part.path.open("xb")
                force_names(self._directory)
                self._nbytes, self._base_nbytes = 0, len(base)
                return file

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())

    def _prune(self) -> None:
        parts = parts_in(self._directory)
        begun = {part.base for part in parts}
        for base in self._directory.glob("*.safetensors"):
            if base not in begun:  # a kill came before its entries
                base.unlink(missing_ok=True)
        sizes = [part.nbytes for part in parts]
        total = sum(sizes)
        for part, nbytes in zip(parts[:-1], sizes, strict=False):
            if total <= self._most_bytes:
                break
            part.path.unlink(missing_ok=True)
            part.base.unlink(missing_ok=True)
            total -= nbytes

    def _fail(self, error: OSError) -> None:
        logger.error("the archive in %s has a gap: %s", self._directory, error)
        self.error = f"archive not written: {error}"
        self._failed_at = time.monotonic()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
