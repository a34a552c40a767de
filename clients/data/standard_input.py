"""Standard input as a file, because formats are told and read by looking twice."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clients.http.errors import InputError

STANDARD_INPUT = Path("-")
"""What is typed in place of a file."""

_BEGINNINGS = (
    *((b"PK", ".npz"), (b"\x93NUMPY", ".npy"), (b"PAR1", ".parquet"), (b"\0\0", ".idx")),
    *((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif")),
    *((b"{", ".jsonl"), (b"[", ".jsonl")),
)


@contextmanager
def named_file(path: Path, stream: IO[bytes] | None = None) -> Iterator[Path]:
    """The file of a path; of "-" one that holds what standard input brings, until the block ends.

    All of it is read before the block begins. What begins as no other format does is a table of
    text, plain or gzipped. (`live.py` has the one that goes on.)

    Arguments:
        path: What was typed.
        stream: Read in place of standard input.

    Raises:
        InputError: standard input brings nothing, or there is no room for it.
    """
    if path != STANDARD_INPUT:
        yield path
        return
    stream = sys.stdin.buffer if stream is None else stream
    with tempfile.TemporaryDirectory(prefix="gmr-") as folder:
        held = Path(folder) / "standard-input"
        try:
            with held.open("wb") as file:
                shutil.copyfileobj(stream, file)
        except OSError as error:
            raise InputError(
                f"Standard input cannot be kept in {folder} ({error.strerror}). Expected room for "
                f"all of it. Set TMPDIR to a folder that has it, or give the path of a file."
            ) from error
        with held.open("rb") as file:
            beginning = file.read(8)
        if not beginning:
            raise InputError(
                "Standard input brought nothing. Expected the content of a file of samples. Pipe "
                "one in, or give its path."
            )
        ending = next((end for start, end in _BEGINNINGS if beginning.startswith(start)), ".csv")
        if beginning.startswith(b"\x1f\x8b"):
            ending += ".gz"
        yield held.rename(held.with_name(held.name + ending))
