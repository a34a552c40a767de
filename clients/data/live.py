"""Standard input that goes on: lines become samples as they come.

Rules of this module:

1. Lines are given in pieces: as many as were asked for, or those that have waited for a while.
2. The first piece says what there is: CSV or JSON, names of columns, which of them are features.
   Those that follow are read alike, and rows are counted on.
3. Nothing is read ahead but what a pipe holds and a few pieces: who writes faster than the service
   learns has to wait.
4. Who is asked to stop deals with what has come first: nobody would send it again.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from clients.data.files import open_source
from clients.data.formats.rows import Rows, Source
from clients.data.formats.text_source import TextSource
from clients.data.standard_input import STANDARD_INPUT, named_file, told_as_standard_input
from clients.http.errors import InputError
from service.wire import SampleId

_BLOCK: Final = 1 << 16
_BLOCKS_AHEAD: Final = 16
_LONGEST_LINE: Final = 1 << 25
"""Bytes; who sends longer ones means no lines."""

_LOOK_EVERY_S: Final = 0.1

_PIPE_HOLDS: Final = 1 << 20
"""Bytes that a pipe holds at most, unless somebody with special rights has made it larger."""


class LiveLines:
    """The lines of a stream, as they come; nothing is taken from it before they are asked for.

    Arguments:
        stream: Bytes, with a file descriptor.
        wait_s: Seconds after which lines are given, however few.
    """

    def __init__(self, stream: IO[bytes], wait_s: float) -> None:
        # None: what had come is read, though the stream goes on.
        self._blocks: queue.Queue[bytes | OSError | None] = queue.Queue(_BLOCKS_AHEAD)
        self._wait_s = wait_s
        self._closed, self._finishing = threading.Event(), threading.Event()
        self._lines: list[bytes] = []
        self._rest, self._ended = b"", False
        # Read without Python's buffer, whose lock would keep a process from its end.
        self._reader = threading.Thread(
            target=self._read, args=(stream.fileno(),), name="live-lines", daemon=True
        )

    def close(self) -> None:
        """Give no more lines, also to who waits for them."""
        self._closed.set()

    def finish(self) -> None:
        """Give what has come by now, and then no more; of a line that is not whole nothing."""
        self._finishing.set()

    def next(self, most: int) -> list[bytes]:
        """The next lines, with their ends, `most` at most; none once there are no more.

        Raises:
            InputError: The stream cannot be read, or has no lines.
        """
        if self._reader.ident is None:
            self._reader.start()
        began: float | None = None
        while not self._closed.is_set():
            if self._lines and began is None:
                began = time.monotonic()
            waited = began is not None and time.monotonic() - began >= self._wait_s
            if len(self._lines) >= most or self._ended or waited:
                lines, self._lines = self._lines[:most], self._lines[most:]
                return lines
            self._take(began)
        return []

    def _take(self, began: float | None) -> None:
        """Take in the next block, or wait for a while."""
        left = _LOOK_EVERY_S
        if began is not None:
            left = min(left, max(0.001, began + self._wait_s - time.monotonic()))
        try:
            block = self._blocks.get(timeout=left)
        except queue.Empty:
            return
        if isinstance(block, OSError):
            raise InputError(f"Standard input cannot be read on ({block.strerror}).")
        self._ended = not block
        if self._ended and self._finishing.is_set():
            self._rest = b""  # who writes may have been stopped in the midst of it, too
            return
        *lines, self._rest = (self._rest + (block or b"")).splitlines(keepends=True) or [b""]
        if self._rest.endswith(b"\n") or self._ended:
            lines, self._rest = [*lines, self._rest], b""
        self._lines += [line for line in lines if line.strip()]
        if len(self._rest) > _LONGEST_LINE:
            raise InputError(
                f"Standard input holds a line of more than {_LONGEST_LINE:,} bytes. Expected one "
                f"sample per line, as CSV or JSON."
            )

    def _read(self, descriptor: int) -> None:
        left = _PIPE_HOLDS  # to be read once no more is wanted
        while not self._closed.is_set():
            block: bytes | OSError | None = None
            try:
                finishing = self._finishing.is_set()
                if _has_come(descriptor, 0 if finishing else _LOOK_EVERY_S) and left > 0:
                    block = os.read(descriptor, _BLOCK)
                    left -= len(block) * finishing
                elif not finishing:
                    continue
            except OSError as error:
                block = error
            while not self._closed.is_set():
                try:
                    self._blocks.put(block, timeout=_LOOK_EVERY_S)
                    break
                except queue.Full:
                    continue
            if not block or isinstance(block, OSError):
                return


def _has_come(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the end; also where that cannot be asked."""
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    except (OSError, ValueError):
        return True


class LiveInput:
    """Standard input whose first lines have come, and are a file.

    Arguments:
        lines: Those that have come, and come.
        folder: For files of single pieces.
        most: Lines of the first piece, at most.

    Attributes:
        path: The file of the first piece.
        untold: Rows that were left out and that no samples tell of: those of a piece without any
            that can be used.

    Raises:
        InputError: No line comes.
    """

    def __init__(self, lines: LiveLines, folder: Path, most: int) -> None:
        self._lines, self._folder = lines, folder
        self.untold = 0
        first = lines.next(most)
        if not first:
            raise InputError(
                "Standard input brought nothing. Expected lines of CSV or JSON, one sample each."
            )
        is_json = first[0].lstrip().startswith((b"{", b"["))
        if not is_json and len(first) == 1:
            first += lines.next(most)  # the first may only name the columns
        self._ending = ".jsonl" if is_json else ".csv"
        self.path = self._file(first)

    def close(self) -> None:
        """Give no more samples, also to who waits for them."""
        self._lines.close()

    def next(self, most: int) -> tuple[Path, int] | None:
        """A file with the next lines, and how many they are; None once there are no more."""
        lines = self._lines.next(most)
        return (self._file(lines), len(lines)) if lines else None

    def _file(self, lines: list[bytes]) -> Path:
        file = self._folder / f"standard-input{self._ending}"
        file.write_bytes(b"".join(lines))
        return file


class LiveSource:
    """Samples as they come; once, from the first.

    Arguments:
        first: The opened first piece.
        live: Where the others come from.
        open_on: Opens a file as the first was opened, with `like` and `first_row`.
    """

    feature_names: tuple[str, ...] | None

    def __init__(
        self, first: TextSource, live: LiveInput, open_on: Callable[..., TextSource]
    ) -> None:
        self._first, self._live, self._open_on = first, live, open_on
        self.path, self.kind = Path("standard input"), first.kind
        self.n_samples: int | None = None
        self.n_features, self.labelled = first.n_features, first.labelled
        self.feature_names = first.feature_names

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        """See `Source`; what has gone by does not come again, so `start` is 0."""
        if start:
            raise InputError("Standard input that goes on cannot be read from another row.")
        row, source, n = 0, self._first, self._first.count()
        while True:
            told = 0
            for rows in source.read(size):
                told += len(rows) + rows.skipped
                yield rows
            self._live.untold += n - told
            row += n
            if (piece := self._live.next(size)) is None:
                return
            file, n = piece
            source = self._open_on(file, like=self._first, first_row=row)

    def read_ids(self) -> Iterator[list[SampleId]]:
        """None: they have not come yet."""
        yield from ()


def open_samples(path: Path, live: LiveInput | None, **options: Any) -> Source:
    """Open a file, or what goes on after it.

    Arguments:
        path: The file; of live input its first piece.
        live: Where the others come from; None for a file.
        options: Those of `open_source`.

    Raises:
        InputError: As `open_source`.
    """
    if live is None:
        return open_source(path, **options)

    def open_on(file: Path, **more: Any) -> TextSource:
        source = open_source(file, **options, **more)
        assert isinstance(source, TextSource)  # as the file's name says
        return source

    return LiveSource(open_on(path, goes_on=True), live, open_on)


@contextmanager
def input_of(
    file: Path, *, live: bool, wait_s: float, most: int
) -> Iterator[tuple[Path, LiveInput | None]]:
    """The file that was typed, or of standard input one that holds it, or its first lines.

    Arguments:
        file: What was typed.
        live: Standard input goes on; the second value that is given brings what comes.
        wait_s: Seconds after which samples are given then, however few.
        most: Samples of a piece then, at most.

    Raises:
        InputError: It cannot be read, or is no standard input and was to go on.
    """
    if not live:
        with named_file(file) as path:
            yield path, None
        return
    if file != STANDARD_INPUT:
        raise InputError(
            f"--live is for standard input, and {file} is a file. Expected -, as in: "
            f"tail -n +1 -F {file} | gmr ingest - --live"
        )
    with live_input(sys.stdin.buffer, wait_s, most) as coming:
        yield coming.path, coming


@contextmanager
def live_input(stream: IO[bytes], wait_s: float, most: int) -> Iterator[LiveInput]:
    """Standard input as it comes, until the block ends.

    Arguments:
        stream: Bytes, with a file descriptor.
        wait_s: Seconds after which samples are given, however few.
        most: Samples of a piece, at most.

    Raises:
        InputError: No line comes.
    """
    lines = LiveLines(stream, wait_s)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gmr-") as folder,
            _signals_finish(lines),
            told_as_standard_input(Path(folder)),
        ):
            yield LiveInput(lines, Path(folder), most)
    finally:
        lines.close()


@contextmanager
def _signals_finish(lines: LiveLines) -> Iterator[None]:
    """Let the first Ctrl-C, or SIGTERM, end the lines; the next one does what it always does."""
    before: dict[int, Any] = {}

    def finish(number: int, _: FrameType | None) -> None:
        restore()
        lines.finish()
        # Not by `print`, in the midst of which it may have come.
        os.write(2, b"Stopping after what has come; Ctrl-C again stops at once.\n")

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # as of a job of a script
                before[number] = signal.signal(number, finish)
    try:
        yield
    finally:
        restore()
